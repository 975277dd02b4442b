# taperc - see `make help`. Out of tree: build/<variant>/ ; variants: release debug asan coverage clang
VARIANT ?= release
CC ?= gcc
ifeq ($(origin CC),default)
CC = gcc
endif
B := build/$(VARIANT)
PREFIX ?= /usr/local
DESTDIR ?=
PYTHON ?= /usr/bin/python3
VERSION := 0.1.0

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion
CFLAGS_release  := -O2 -g -DNDEBUG
CFLAGS_debug    := -O0 -g3
CFLAGS_asan     := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CFLAGS_coverage := -O0 -g --coverage -fprofile-update=atomic
CFLAGS_clang    := -O1 -g
ifeq ($(VARIANT),clang)
CC := clang
endif
CFLAGS ?=
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -DTAPER_VERSION_TEXT='"$(VERSION)"' -I. -I$(B) -fPIC -fvisibility=hidden $(WARN) $(CFLAGS_$(VARIANT)) $(CFLAGS)
# generated parsers are not ours to make warning-free
GEN_CFLAGS := $(ALL_CFLAGS) -Wno-conversion -Wno-sign-conversion -Wno-unused-function -Wno-missing-prototypes -Wno-shadow
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_coverage := --coverage
ALL_LDFLAGS := $(LDFLAGS_$(VARIANT)) $(LDFLAGS)

# one static library per room
ROOMS := runtime/base compiler/diag compiler/front compiler/ir compiler/analysis compiler/passes compiler/formats \
         compiler/schedule compiler/emit compiler/driver compiler/cli runtime runtime/text cuda cuda/sim
srcs = $(sort $(wildcard $(1)/*.c))
objs = $(patsubst %.c,$(B)/%.o,$(call srcs,$(1)))
lib  = $(B)/lib$(subst /,_,$(1)).a

.PHONY: all
# what executes CUDA (opened by libtaper when it is asked for), and what stands in for the driver with no GPU
CUDA_SO := $(if $(wildcard cuda/*.c),$(B)/libtaper-cuda.so) $(if $(wildcard cuda/sim/*.c),$(B)/libtaper-sim.so)
all: $(B)/taperc $(B)/libtaper.so $(CUDA_SO)

define room_rule
$(call lib,$(1)): $(call objs,$(1)) $(if $(filter compiler/front,$(1)),$(B)/grammar/tmodel.tab.o $(B)/grammar/tmodel.lex.o) $(if $(filter compiler/emit,$(1)),$(B)/templates/embedded.o)
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

Q := $(if $(V),,@)
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(B)/grammar/tmodel.tab.c $(B)/grammar/tmodel.tab.h &: grammar/tmodel.y
	@mkdir -p $(B)/grammar
	$(Q)bison -Werror -Wcounterexamples -o $(B)/grammar/tmodel.tab.c --header=$(B)/grammar/tmodel.tab.h $<
$(B)/grammar/tmodel.lex.c $(B)/grammar/tmodel.lex.h &: grammar/tmodel.l
	@mkdir -p $(B)/grammar
	$(Q)flex --outfile=$(B)/grammar/tmodel.lex.c --header-file=$(B)/grammar/tmodel.lex.h $<
$(B)/grammar/tmodel.tab.o: $(B)/grammar/tmodel.tab.c $(B)/grammar/tmodel.lex.h
	$(Q)$(CC) $(GEN_CFLAGS) -MMD -MP -c $< -o $@
$(B)/grammar/tmodel.lex.o: $(B)/grammar/tmodel.lex.c $(B)/grammar/tmodel.tab.h
	$(Q)$(CC) $(GEN_CFLAGS) -MMD -MP -c $< -o $@
$(call objs,compiler/front): | $(B)/grammar/tmodel.tab.h

# templates (and abi.h, which heads every emitted source) are carried inside the compiler
TEMPLATES := $(sort $(wildcard templates/cpu/*.c templates/cpu/*.h templates/cpu/train/*.h templates/cuda/*.cu templates/cuda/*.cuh)) runtime/abi/abi.h runtime/abi/train_abi.h runtime/abi/cuda_abi.h
$(B)/templates/embedded.c: $(TEMPLATES) tests/lint/embed.sh
	@mkdir -p $(@D)
	$(Q)sh tests/lint/embed.sh $(TEMPLATES) > $@.tmp && mv $@.tmp $@
$(B)/templates/embedded.o: $(B)/templates/embedded.c
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

# registers of the simulated GPU are read under many types; its floats must round as the GPU's
$(call objs,cuda/sim): ALL_CFLAGS += -fno-strict-aliasing -fno-math-errno -ffp-contract=off $(if $(filter release,$(VARIANT)),-O3)

RUNTIME_LIBS := $(call lib,runtime) $(call lib,runtime/text) $(call lib,runtime/base)
COMPILER_LIBS := $(call lib,compiler/driver) $(call lib,compiler/emit) $(call lib,compiler/schedule) $(call lib,compiler/passes) \
  $(call lib,compiler/analysis) $(call lib,compiler/front) $(call lib,compiler/formats) $(call lib,compiler/ir) $(call lib,compiler/diag) $(call lib,cuda)

$(B)/libtaper.so: $(RUNTIME_LIBS)
	$(Q)$(CC) -shared -o $@ -Wl,-soname,libtaper.so.0 -Wl,--whole-archive $(call lib,runtime) $(call lib,runtime/text) -Wl,--no-whole-archive \
	  $(call lib,runtime/base) $(ALL_LDFLAGS) -lm -lpthread
	@ln -sf libtaper.so $(B)/libtaper.so.0
$(B)/libtaper-cuda.so: $(call lib,cuda) $(RUNTIME_LIBS)
	$(Q)$(CC) -shared -o $@ -Wl,-soname,libtaper-cuda.so -Wl,--exclude-libs,$(subst $(eval) ,:,$(notdir $(RUNTIME_LIBS))) \
	  -Wl,--whole-archive $(call lib,cuda) -Wl,--no-whole-archive $(RUNTIME_LIBS) $(ALL_LDFLAGS) -lm -lpthread -ldl
$(B)/libtaper-sim.so: $(call lib,cuda/sim) $(call lib,runtime/base)
	$(Q)$(CC) -shared -o $@ -Wl,-soname,libtaper-sim.so -Wl,--whole-archive $(call lib,cuda/sim) -Wl,--no-whole-archive \
	  $(call lib,runtime/base) $(ALL_LDFLAGS) -lm -lpthread
$(B)/taperc: $(call lib,compiler/cli) $(COMPILER_LIBS) $(RUNTIME_LIBS)
	$(Q)$(CC) -o $@ -Wl,--start-group $^ -Wl,--end-group $(ALL_LDFLAGS) -ljansson -lm -lpthread -ldl

# unit tests: tests/unit/test_X.c -> build/<variant>/tests/unit/test_X (cmocka), linked with every room but the command line
UNIT := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/unit/test_*.c)))
$(B)/tests/unit/%: tests/unit/%.c $(COMPILER_LIBS) $(RUNTIME_LIBS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MF $@.d -o $@ $< -Wl,--start-group $(COMPILER_LIBS) $(RUNTIME_LIBS) -Wl,--end-group $(ALL_LDFLAGS) -lcmocka -ljansson -lm -lpthread -ldl
# the interpreter of PTX, without what else a unit test is linked with
$(B)/tests/unit/test_ptx_%: tests/unit/test_ptx_%.c $(call lib,cuda/sim) $(call lib,runtime/base)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MF $@.d -o $@ $^ $(ALL_LDFLAGS) -lcmocka -lm -lpthread -ldl
# these open the simulator as the runtime does
$(B)/tests/unit/test_sim_driver $(B)/tests/unit/test_sim_queue $(B)/tests/unit/test_sim_early $(B)/tests/unit/test_sim_cublas $(B)/tests/unit/test_cuda_traffic $(B)/tests/unit/test_cuda_seeded: | $(B)/libtaper-sim.so $(B)/taperc
# the kernels of training, for each vector width, as an image is compiled
KERNEL_CFLAGS := -std=gnu11 -I. $(CFLAGS_$(VARIANT)) -O3 -fno-builtin -fno-math-errno -fno-trapping-math -ffp-contract=fast -w
TRAIN_KERNELS := $(foreach v,v2 v3 v4,$(B)/tests/unit/train/kernels_$(v).o)
$(B)/tests/unit/train/kernels_%.o: tests/unit/train/kernels.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(KERNEL_CFLAGS) $(if $(filter x86_64,$(shell uname -m)),-march=x86-64-$*) -DKERNELS=train_kernels_$* -DKERNELS_NAME='"$*"' -MMD -MP -c $< -o $@
$(B)/tests/unit/test_train_kernels $(B)/tests/unit/test_train_attention: $(B)/tests/unit/%: tests/unit/%.c $(TRAIN_KERNELS)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(TRAIN_KERNELS) $(ALL_LDFLAGS) -lcmocka -lm
.PHONY: unit
unit: $(UNIT)

-include $(shell [ -d $(B) ] && find $(B) -name '*.d')
include tests/tests.mk
