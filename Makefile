# cuslice: one non-recursive build of every room, out of tree. `make help` lists the targets.
#
# A new source file needs no line here: rooms are found by wildcard. What is special about the test
# programs, the simulated driver, the demonstration and the benchmarks stands in the fragments
# included below (tests/sim/sim.mk, tests/tests.mk, examples/demo/demo.mk, bench/bench.mk).
#
# B=DIR       where everything is built (build)
# CC=...      gcc or clang
# SAN=...     address, undefined, thread, or a comma-separated list; built under build/san-...
# V=1         show the commands

all:
.PHONY: all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

VERSION := $(shell sed -n 's/^.define CUSLICE_VERSION "\(.*\)"/\1/p' include/cuslice/version.h)

comma := ,
B := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
# An empty B, from an unset variable, would build into the root directory.
ifeq ($(strip $(B)),)
override B := build
endif
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(2)')

# ---- What the build needs from outside: found, or brought, by tests/setup/deps -----------------
# The goals that promise to run on a bare machine let the script install what is missing; the others
# only let it look. Make restarts itself when the file has changed.

BRING_GOALS := demo check check-unit check-gpu check-model bench deps
QUIET_GOALS := clean help
ifneq ($(filter-out $(QUIET_GOALS),$(or $(MAKECMDGOALS),all)),)
include $(B)/cuda.mk
endif
ifneq ($(filter $(BRING_GOALS),$(MAKECMDGOALS)),)
$(B)/cuda.mk: force
	@tests/setup/deps $(if $(filter check-model deps,$(MAKECMDGOALS)),--try spin) $@
else
$(B)/cuda.mk: tests/setup/deps
	@tests/setup/deps --find $@
endif
CUDA_INC := $(if $(CUDA_INCLUDE),-isystem $(CUDA_INCLUDE))
.PHONY: force deps
deps: $(B)/cuda.mk

# ---- Flags -------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
	-Wwrite-strings -Wundef -Werror
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# gcc warns that the thread sanitizer does not model fences; the code relies on them all the same.
ifneq ($(findstring thread,$(SAN)),)
SAN_FLAGS += $(if $(findstring clang,$(CC)),,-Wno-tsan)
endif
OPT ?= -O2 -g
CPPFLAGS_ALL := -D_GNU_SOURCE $(CPPFLAGS)
CFLAGS_ALL := -std=gnu11 $(OPT) $(WARNINGS) $(SAN_FLAGS) -pthread $(CFLAGS)
LDFLAGS_ALL := -Wl,-z,relro,-z,now -Wl,--as-needed $(SAN_FLAGS) -pthread $(LDFLAGS)
LIBRARY_FLAGS := -fPIC -fvisibility=hidden -ftls-model=initial-exec
SHARED_FLAGS := -shared $(if $(SAN),,-Wl,-z,defs)

# ---- Rooms: each sees itself and the rooms below, and no others --------------------------------

ROOMS := lib scheduler hooks scheduler/ctl tests/sim/common tests/sim/client tests/sim/device \
	tests/sim/nvml tests/common tests/unit tests/integration tests/multi tests/sim/conformance \
	examples/demo bench
CLIENT_FLAGS := -Itests/common -I$(B)/gen $(CUDA_INC)
TEST_FLAGS := -Iinclude -Ilib -Ischeduler

FLAGS_lib := -Iinclude -Ilib $(LIBRARY_FLAGS)
FLAGS_scheduler := -Iinclude -Ilib -Ischeduler $(LIBRARY_FLAGS)
FLAGS_hooks := -Iinclude -Ilib -Ischeduler -Ihooks -I$(B)/gen $(CUDA_INC) $(LIBRARY_FLAGS)
FLAGS_scheduler/ctl := -Iinclude -Ilib -Ischeduler -Ischeduler/ctl -I$(B)/gen
FLAGS_tests/sim/common := -Itests/sim/common -fPIC -fvisibility=hidden $(CUDA_INC)
FLAGS_tests/sim/client := -Itests/sim/common -Itests/sim/client -I$(B)/gen $(CUDA_INC) -fPIC
FLAGS_tests/sim/device := -Itests/sim/common -Itests/sim/device $(CUDA_INC)
FLAGS_tests/sim/nvml := -Itests/sim/common -Itests/sim/nvml -I$(B)/gen $(CUDA_INC) -fPIC
FLAGS_tests/common := $(CLIENT_FLAGS)
FLAGS_tests/unit := $(TEST_FLAGS) -Itests/unit
FLAGS_tests/integration := $(TEST_FLAGS) -Itests/unit
FLAGS_tests/multi := $(TEST_FLAGS) -Itests/unit
FLAGS_tests/sim/conformance := $(CLIENT_FLAGS)
FLAGS_examples/demo := $(TEST_FLAGS)
FLAGS_bench := $(TEST_FLAGS)

objects = $(patsubst %,$(B)/obj/%.o,$(basename $(wildcard $(1)/*.c $(1)/*.S)))
OBJ_lib := $(call objects,lib)
OBJ_scheduler := $(call objects,scheduler)
OBJ_hooks := $(call objects,hooks)
OBJ_ctl := $(call objects,scheduler/ctl)
OBJ_sim_common := $(call objects,tests/sim/common)
OBJ_sim_client := $(call objects,tests/sim/client)
OBJ_sim_device := $(call objects,tests/sim/device)
OBJ_sim_nvml := $(call objects,tests/sim/nvml)
OBJ_client := $(call objects,tests/common)

# Programs: `*_client.c`, and all of conformance, are CUDA clients and link the driver directly; the
# others link lib and scheduler and know no CUDA.
PROGRAM_ROOMS := tests/unit tests/integration tests/multi tests/sim/conformance examples/demo bench
PROGRAM_SRC := $(wildcard $(addsuffix /*.c,$(PROGRAM_ROOMS)))
CLIENT_SRC := $(filter %_client.c tests/sim/conformance/%,$(PROGRAM_SRC))
PROGRAMS := $(patsubst %.c,$(B)/%,$(filter-out $(CLIENT_SRC),$(PROGRAM_SRC)))
CLIENTS := $(patsubst %.c,$(B)/%,$(CLIENT_SRC))
UNIT_TESTS := $(filter $(B)/tests/unit/%,$(PROGRAMS))

LIBCUSLICE := $(if $(OBJ_hooks),$(B)/libcuslice.so)
TOOL := $(if $(OBJ_ctl),$(B)/cuslice)
SIM_DRIVER := $(if $(OBJ_sim_client),$(B)/sim/libcuda.so.1)
SIM_DEVICE := $(if $(OBJ_sim_device),$(B)/sim/simcuda-device)
SIM_NVML := $(if $(OBJ_sim_nvml),$(B)/sim/libnvidia-ml.so.1)

# What the fragments may add to (all may stay empty):
# X_GENERATED     headers that must exist before a room is compiled (order only)
# EXTRA_OBJ_X     further objects of a product
# EXTRA_ALL       further products of `make all`
# EXTRA_CHECK     further prerequisites of `make check`
HOOKS_GENERATED :=
SIM_GENERATED :=
CLIENT_GENERATED :=
EXTRA_OBJ_sim_client :=
EXTRA_OBJ_sim_device :=
EXTRA_OBJ_sim_nvml :=
EXTRA_OBJ_hooks :=
EXTRA_ALL :=
EXTRA_CHECK :=
SIM_DRIVER_LDFLAGS :=
SIM_NVML_LDFLAGS :=
DEMO := examples/demo/run
BENCH := bench/run
CHECK_GPU := tests/gpu/run
CHECK_MODEL := tests/model/run

compile = $(CC) $(CPPFLAGS_ALL) $(2) $(CFLAGS_ALL) -MMD -MP -c -o $(1)

-include $(wildcard tests/sim/sim.mk tests/tests.mk examples/demo/demo.mk bench/bench.mk)

# ---- Compiling ---------------------------------------------------------------------------------

# One pattern rule per room, so that a file is compiled with its own room's flags only.
define room_rules
$(B)/obj/$(1)/%.o: $(1)/%.c Makefile | $(2)
	$$(call say,CC,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(call compile,$$@,$$(call flags_of,$(1),$$<)) $$<
$(B)/obj/$(1)/%.o: $(1)/%.S Makefile | $(2)
	$$(call say,AS,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(call compile,$$@,$$(FLAGS_$(1))) $$<
endef
flags_of = $(if $(filter $(2),$(CLIENT_SRC)),$(CLIENT_FLAGS),$(FLAGS_$(1)))
generated_of = $(if $(filter hooks,$(1)),$(HOOKS_GENERATED)) \
	$(if $(filter scheduler/ctl,$(1)),$(B)/gen/hook_names.h) \
	$(if $(filter tests/sim/client tests/sim/nvml,$(1)),$(SIM_GENERATED)) \
	$(if $(filter tests/common tests/integration tests/multi tests/sim/conformance examples/demo \
	bench,$(1)),$(CLIENT_GENERATED))
$(foreach room,$(ROOMS),$(eval $(call room_rules,$(room),$(call generated_of,$(room)))))

# The tool lists the hooks by name and knows no CUDA.
$(B)/gen/hook_names.h: hooks/hooks.def hooks/names.sh
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)hooks/names.sh '$(CC)' > $@

# Its assembly names functions and variables of other files, which link-time optimisation must see.
$(B)/obj/hooks/entry.o: CFLAGS_ALL += -fno-lto

# ---- Products ----------------------------------------------------------------------------------

EXPORTS := $(wildcard hooks/libcuslice.map)
$(B)/libcuslice.so: $(OBJ_lib) $(OBJ_scheduler) $(OBJ_hooks) $(EXTRA_OBJ_hooks) $(EXPORTS)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(SHARED_FLAGS) -Wl,-soname,libcuslice.so -Wl,-z,nodelete \
		$(if $(EXPORTS),-Wl$(comma)--version-script=$(EXPORTS)) -o $@ $(filter %.o,$^) $(LDLIBS)

$(B)/cuslice: $(OBJ_ctl) $(OBJ_scheduler) $(OBJ_lib)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -lcjson $(LDLIBS)

$(B)/sim/libcuda.so.1: $(OBJ_sim_client) $(OBJ_sim_common) $(EXTRA_OBJ_sim_client)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(SHARED_FLAGS) -Wl,-soname,libcuda.so.1 $(SIM_DRIVER_LDFLAGS) \
		-o $@ $(filter %.o,$^) $(LDLIBS)

$(B)/sim/simcuda-device: $(OBJ_sim_device) $(OBJ_sim_common) $(EXTRA_OBJ_sim_device)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(LDLIBS)

$(B)/sim/libnvidia-ml.so.1: $(OBJ_sim_nvml) $(OBJ_sim_common) $(EXTRA_OBJ_sim_nvml)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(SHARED_FLAGS) -Wl,-soname,libnvidia-ml.so.1 $(SIM_NVML_LDFLAGS) \
		-o $@ $(filter %.o,$^) $(LDLIBS)

$(PROGRAMS): $(B)/%: $(B)/obj/%.o $(OBJ_scheduler) $(OBJ_lib)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -lm -lrt $(LDLIBS)

$(CLIENTS): $(B)/%: $(B)/obj/%.o $(OBJ_client) $(SIM_DRIVER)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(B)/sim/libcuda.so.1 -lm -ldl $(LDLIBS)

# ---- Targets -----------------------------------------------------------------------------------

PRODUCTS := $(LIBCUSLICE) $(TOOL)
SIM := $(SIM_DRIVER) $(SIM_DEVICE) $(SIM_NVML)
.PHONY: sim tests demo check check-unit check-gpu check-model bench lint install clean help

all: $(PRODUCTS) $(SIM) $(EXTRA_ALL)

sim: $(SIM)

tests: all $(PROGRAMS) $(CLIENTS) $(EXTRA_CHECK)

# T= picks tests by a part of their name, J= runs so many at once.
RUN_TESTS = B='$(abspath $(B))' CC='$(CC)' SAN='$(SAN)' tests/run -j $(or $(J),$(shell nproc))

check: tests
	@$(RUN_TESTS) $(T)

check-unit: $(UNIT_TESTS)
	@$(RUN_TESTS) --room unit $(T)

lint: all
	@$(RUN_TESTS) --room lint $(T)

demo: all $(filter $(B)/examples/demo/%,$(PROGRAMS) $(CLIENTS))
	@B='$(abspath $(B))' $(DEMO)

bench: all $(filter $(B)/bench/%,$(PROGRAMS) $(CLIENTS))
	@B='$(abspath $(B))' $(BENCH)

check-gpu: tests
	@B='$(abspath $(B))' $(CHECK_GPU)

# 77: there is no spin, and nothing was checked. No failure but where CI is set (tests/model/run).
check-model: $(B)/cuda.mk
	@CC='$(CC)' $(CHECK_MODEL) $(T) || [ $$? = 77 ]

install: $(PRODUCTS)
	install -d '$(DESTDIR)$(PREFIX)/lib' '$(DESTDIR)$(PREFIX)/bin' \
		'$(DESTDIR)$(PREFIX)/include/cuslice'
	install -m 755 $(LIBCUSLICE) '$(DESTDIR)$(PREFIX)/lib/'
	install -m 755 $(TOOL) '$(DESTDIR)$(PREFIX)/bin/'
	install -m 644 $(wildcard include/cuslice/*.h) '$(DESTDIR)$(PREFIX)/include/cuslice/'

clean:
	rm -rf '$(B)'

help:
	@echo 'make [all]        libcuslice.so, the cuslice tool and the simulated driver, under $(B)/'
	@echo 'make demo         what it does, in two minutes; brings what is missing first'
	@echo 'make check        every test that needs no GPU (T=part of a name, J=how many at once)'
	@echo 'make check-unit   the unit tests alone'
	@echo 'make check-gpu    the checks that need a GPU; skipped without one'
	@echo 'make check-model  the turn protocol and its mutants, checked exhaustively with spin'
	@echo 'make bench        what is measured'
	@echo 'make lint         the house rules'
	@echo 'make deps         only bring what the build needs'
	@echo 'make install      PREFIX=$(PREFIX) DESTDIR='
	@echo 'make clean        removes $(B)/'
	@echo 'Settings: B=DIR CC=gcc|clang SAN=address,undefined|thread V=1'

-include $(shell test -d '$(B)/obj' && find '$(B)/obj' -name '*.d')
