# The simulated driver's own rules: what is generated from the toolkit's headers, and how the driver
# library is bound. Rooms and products are the top Makefile's.

SIM_GEN := procs.c stubs.c abi.c errors.h
SIM_GENERATED += $(B)/gen/errors.h
EXTRA_OBJ_sim_client += $(B)/obj/gen/procs.o $(B)/obj/gen/stubs.o $(B)/obj/gen/abi.o

# Every entry keeps an address of its own, and the library's look-ups end in itself whatever is
# preloaded, as a real driver's do. The classic hash table tells how many symbols there are.
SIM_DRIVER_LDFLAGS += -Wl,-Bsymbolic -Wl,--hash-style=both \
	-Wl,--version-script=tests/sim/gen/libcuda.map
FLAGS_tests/sim/client += -Itests/sim/gen -fvisibility=hidden \
	-D__CUDA_API_PUSH_VISIBILITY_DEFAULT

$(addprefix $(B)/gen/,$(SIM_GEN)) &: tests/sim/gen/gen.py tests/sim/gen/symbols.txt $(B)/cuda.mk
	$(call say,GEN,$(B)/gen)
	$(Q)python3 tests/sim/gen/gen.py --include '$(CUDA_INCLUDE)' \
		--symbols tests/sim/gen/symbols.txt --out $(B)/gen

$(B)/obj/gen/%.o: $(B)/gen/%.c tests/sim/gen/procs.h
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(call compile,$@,-Itests/sim/gen $(CUDA_INC) -fPIC) $<

$(B)/sim/libcuda.so.1: tests/sim/gen/libcuda.map

SIM_NVML_LDFLAGS += -Wl,-Bsymbolic -Wl,--version-script=tests/sim/nvml/libnvidia-ml.map
FLAGS_tests/sim/nvml += -fvisibility=hidden
$(B)/sim/libnvidia-ml.so.1: tests/sim/nvml/libnvidia-ml.map
