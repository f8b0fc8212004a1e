# The worker of tests/integration and tests/multi, twice: `worker` is linked with the driver, `doors`
# finds it at run time. Included by tests/tests.mk.

WORKER_FLAGS := -Itests/multi/worker -Itests/common -I$(B)/gen $(CUDA_INC) -D__CUDA_API_VERSION_INTERNAL
WORKER_SRC := $(wildcard tests/multi/worker/*.c)
WORKER_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(filter-out %/calls.c,$(WORKER_SRC)))
WORKER_CALLS := $(B)/obj/tests/multi/worker/calls
WORKER_PROGRAMS := $(B)/tests/multi/worker $(B)/tests/multi/doors

$(B)/obj/tests/multi/worker/%.o: tests/multi/worker/%.c tests/multi/multi.mk | $(B)/gen/kernels_ptx.h
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(call compile,$@,$(WORKER_FLAGS)) $<
$(WORKER_CALLS)_linked.o: tests/multi/worker/calls.c tests/multi/multi.mk
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(call compile,$@,$(WORKER_FLAGS) -DWORKER_LINKED) $<

$(B)/tests/multi/worker: $(WORKER_OBJ) $(WORKER_CALLS)_linked.o $(SIM_DRIVER)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(B)/sim/libcuda.so.1 -ldl $(LDLIBS)
$(B)/tests/multi/doors: $(WORKER_OBJ) $(WORKER_CALLS).o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -ldl $(LDLIBS)
EXTRA_CHECK += $(WORKER_PROGRAMS)
