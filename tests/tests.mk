# The CUDA client programs of the tests: kernels, conformance, GPU checks. Part of the one build.

CLIENT_GENERATED += $(B)/gen/kernels_ptx.h
KERNEL_TEXTS := tests/kernels/kernels.ptx tests/kernels/pdl.ptx
$(B)/gen/kernels_ptx.h: tests/kernels/ptx2h.sh $(KERNEL_TEXTS)
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)tests/kernels/ptx2h.sh $(KERNEL_TEXTS) > $@

# Bound at the call, so that a program runs on a driver that lacks a call it does not make.
$(CLIENTS): LDFLAGS_ALL += -Wl,-z,lazy

GPU_CLIENTS := $(patsubst %.c,$(B)/%,$(wildcard tests/gpu/*.c))
$(GPU_CLIENTS:$(B)/%=$(B)/obj/%.o): $(B)/obj/%.o: %.c Makefile | $(B)/gen/kernels_ptx.h
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(call compile,$@,$(CLIENT_FLAGS)) $<
$(GPU_CLIENTS): LDFLAGS_ALL += -Wl,-z,lazy
$(GPU_CLIENTS): $(B)/%: $(B)/obj/%.o $(OBJ_client) $(SIM_DRIVER)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(B)/sim/libcuda.so.1 -lm -ldl $(LDLIBS)
EXTRA_CHECK += $(GPU_CLIENTS)

# The benchmark's driver, which does nothing, with launches that call back.
FRAMES_DRIVER := $(B)/tests/integration/frames/libcuda.so.1
$(B)/obj/tests/integration/frames/driver.o: tests/integration/frames/driver.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(call compile,$@,$(CUDA_INC) -fPIC -fvisibility=hidden -D__CUDA_API_PUSH_VISIBILITY_DEFAULT) $<
$(FRAMES_DRIVER): $(B)/obj/tests/integration/frames/driver.o $(B)/obj/bench/stub/driver.o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(SHARED_FLAGS) -Wl,-soname,$(@F) -Wl,-Bsymbolic -o $@ $^ -ldl $(LDLIBS)
EXTRA_CHECK += $(FRAMES_DRIVER)

-include tests/multi/multi.mk
