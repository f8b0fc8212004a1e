# What the benchmarks need besides their programs: a driver that does nothing, a library that is
# empty, and where the words of a ring's file lie. Part of the one build.

BENCH_STUBS := $(B)/bench/stub/libcuda.so.1 $(B)/bench/stub/empty.so
$(B)/bench/stub/libcuda.so.1: $(B)/obj/bench/stub/driver.o
$(B)/bench/stub/empty.so: $(B)/obj/bench/stub/empty.o

# Its look-ups end in itself whatever is preloaded, as a driver's do.
$(BENCH_STUBS):
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(SHARED_FLAGS) -Wl,-soname,$(@F) -Wl,-Bsymbolic -o $@ $^ -ldl $(LDLIBS)

$(B)/obj/bench/stub/%.o: bench/stub/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(call compile,$@,$(CUDA_INC) -fPIC -fvisibility=hidden -D__CUDA_API_PUSH_VISIBILITY_DEFAULT) $<

bench tests: $(BENCH_STUBS) $(B)/tests/multi/places
