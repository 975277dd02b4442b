# tests.mk - set-up, tests, lint, demo, install. Included by the Makefile.
.PHONY: help setup setup-check check check-quick check-long lint demo install uninstall clean format docs

help:
	@echo 'make                 build/release/: taperc, libtaper.so, libtaper-cuda.so, libtaper-sim.so   (VARIANT=release|debug|asan|coverage|clang)'
	@echo 'make demo            sets up, builds, and shows the main job on real text (under 4 minutes after the downloads)'
	@echo 'make check           sets up, builds, runs all tests; last line: N passed, N failed, N skipped'
	@echo 'make check-quick     the tests to run at each commit (under 2 minutes)'
	@echo 'make check-long      sanitizers, clang, every image of the gate, kills, fuzzing, coverage (60 minutes); summary in docs/check-long.md'
	@echo 'make lint            clang-format, cppcheck, clang-tidy, include directions, file sizes, generated docs'
	@echo 'make setup           Debian packages (and, with check, a Python venv for oracles)'
	@echo 'make gpu-bundle      build/gpu-bundle/: what a machine with a GPU needs to test and measure (run.sh there)'
	@echo 'make gpu-report      docs/performance-gpu.md from DIR=the folder that run.sh wrote'
	@echo 'make install         PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make format          clang-format over all sources'
	@echo 'make clean           removes build/'

setup:
	@sh tests/setup.sh build
setup-check:
	@sh tests/setup.sh check

# The phases below call make again, so that set-up is complete before anything that uses it is looked at.
demo: setup
	@$(MAKE) --no-print-directory -j2 all
	@sh examples/demo.sh $(B)

check: setup-check
	@$(MAKE) --no-print-directory -j2 all unit
	@$(PYTHON) tests/run.py --build $(B)
check-quick: setup-check
	@$(MAKE) --no-print-directory -j2 all unit
	@$(PYTHON) tests/run.py --build $(B) --quick
check-long: setup-check
	@$(PYTHON) tests/long.py
lint: setup-check
	@sh tests/lint/lint.sh $(B)
format:
	@git ls-files '*.c' '*.h' '*.cpp' | grep -v '^templates/' | xargs clang-format-14 -i
docs:
	@sh tests/lint/diagnostics_doc.sh > docs/diagnostics.md

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/taperc/examples $(DESTDIR)$(PREFIX)/share/doc/taperc/docs/adr
	install -m 755 $(B)/taperc $(DESTDIR)$(PREFIX)/bin/taperc
	install -m 755 $(B)/libtaper.so $(DESTDIR)$(PREFIX)/lib/libtaper.so.$(VERSION)
	install -m 755 $(CUDA_SO) $(DESTDIR)$(PREFIX)/lib/
	ln -sf libtaper.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libtaper.so.0
	ln -sf libtaper.so.0 $(DESTDIR)$(PREFIX)/lib/libtaper.so
	install -m 644 runtime/taper.h $(DESTDIR)$(PREFIX)/include/taper.h
	install -m 644 examples/*.tmodel examples/*.c examples/*.cpp $(DESTDIR)$(PREFIX)/share/taperc/examples/
	install -d $(DESTDIR)$(PREFIX)/share/taperc/examples/recipes
	install -m 644 examples/recipes/* $(DESTDIR)$(PREFIX)/share/taperc/examples/recipes/
	install -m 644 README.md CONTRIBUTING.md LICENSE CHANGELOG.md $(DESTDIR)$(PREFIX)/share/doc/taperc/
	install -m 644 docs/*.md $(DESTDIR)$(PREFIX)/share/doc/taperc/docs/
	install -m 644 docs/adr/*.md $(DESTDIR)$(PREFIX)/share/doc/taperc/docs/adr/
	@if command -v scdoc >/dev/null; then install -d $(DESTDIR)$(PREFIX)/share/man/man1 && scdoc < docs/man/taperc.1.scd > $(DESTDIR)$(PREFIX)/share/man/man1/taperc.1; \
	  else echo 'install: no man page, since scdoc is not there (apt install scdoc)' >&2; fi
	@printf 'prefix=%s\nlibdir=$${prefix}/lib\nincludedir=$${prefix}/include\n\nName: taper\nDescription: runtime of taperc, an ahead-of-time compiler for transformer language models\nVersion: %s\nLibs: -L$${libdir} -ltaper\nLibs.private: -lm -lpthread\nCflags: -I$${includedir}\n' '$(PREFIX)' '$(VERSION)' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/taper.pc
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/taperc $(DESTDIR)$(PREFIX)/lib/libtaper.so* $(DESTDIR)$(PREFIX)/lib/libtaper-cuda.so $(DESTDIR)$(PREFIX)/lib/libtaper-sim.so $(DESTDIR)$(PREFIX)/include/taper.h $(DESTDIR)$(PREFIX)/lib/pkgconfig/taper.pc \
	  $(DESTDIR)$(PREFIX)/share/man/man1/taperc.1
	rm -rf $(DESTDIR)$(PREFIX)/share/taperc $(DESTDIR)$(PREFIX)/share/doc/taperc
clean:
	rm -rf build

# fuzz targets: libFuzzer, everything but the generated kernels under ASan+UBSan; `make fuzz/fuzz_X`
fuzz/%: setup-check
	@$(MAKE) --no-print-directory -s -j2 VARIANT=fuzz CC=clang 'CFLAGS=-O1 -g -fsanitize=fuzzer-no-link,address,undefined' build/fuzz/tests/$*
build/fuzz/tests/%: tests/fuzz/%.c $(COMPILER_LIBS) $(RUNTIME_LIBS)
	@mkdir -p $(@D)
	@clang $(ALL_CFLAGS) -fsanitize=fuzzer,address,undefined -o build/fuzz/$* $< -Wl,--start-group $(COMPILER_LIBS) $(RUNTIME_LIBS) -Wl,--end-group -ljansson -lm -lpthread -ldl

# what tests/numerics/ops.py and tests/emit/cuda_gate.py drive
unit: $(B)/tests/unit/eval_tir $(B)/tests/unit/nvrtc_tool

# timing of the kernels of training: `make build/release/tests/bench/kernels`
$(B)/tests/bench/kernels: tests/bench/kernels.c $(TRAIN_KERNELS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $< $(TRAIN_KERNELS) $(ALL_LDFLAGS) -lm -ldl
# instructions a second of the interpreter of PTX: `make build/release/tests/bench/sim`
$(B)/tests/bench/sim: tests/bench/sim.c $(call lib,cuda/sim) $(call lib,runtime/base)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MF $@.d -o $@ $^ $(ALL_LDFLAGS) -lm -lpthread
# timing of training stages: `make build/release/tests/bench/train_step`
$(B)/tests/bench/%: tests/bench/%.c $(COMPILER_LIBS) $(RUNTIME_LIBS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MF $@.d -o $@ $< -Wl,--start-group $(COMPILER_LIBS) $(RUNTIME_LIBS) -Wl,--end-group $(ALL_LDFLAGS) -lcmocka -ljansson -lm -lpthread -ldl

# what a machine with a GPU gets, and what comes back from it: cuda/gpu/, docs/cuda.md
.PHONY: gpu-bundle gpu-report
GPU_PROGRAMS := $(B)/gpu-calibrate $(B)/gpu-decode $(B)/gpu-fill
$(B)/gpu-calibrate: $(B)/cuda/gpu/calibrate.o $(B)/cuda/gpu/rig.o $(B)/cuda/gpu/measures.o
$(B)/gpu-decode: $(B)/cuda/gpu/decode.o
$(B)/gpu-fill: $(B)/cuda/gpu/fill.o
$(GPU_PROGRAMS): $(call lib,cuda) $(RUNTIME_LIBS)
	$(Q)$(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ALL_LDFLAGS) -lm -lpthread -ldl
unit: $(GPU_PROGRAMS)
# judges mutants of kernels for tests/sim/mutate.py
$(B)/sim-mutants: tests/sim/mutants.c $(call lib,cuda) $(RUNTIME_LIBS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MF $@.d -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ALL_LDFLAGS) -lm -lpthread -ldl
unit: $(B)/sim-mutants
gpu-bundle: setup-check
	@$(MAKE) --no-print-directory -j2 all unit
	@$$([ -x build/venv/bin/python ] && echo build/venv/bin/python || echo $(PYTHON)) cuda/gpu/bundle.py $(B) build/gpu-bundle
gpu-report:
	@[ -d '$(DIR)' ] || { echo "gpu-report: DIR='$(DIR)' is no folder; give DIR=the one that run.sh wrote" >&2; exit 2; }
	@$(PYTHON) cuda/gpu/report.py '$(DIR)' > docs/performance-gpu.md.tmp && mv docs/performance-gpu.md.tmp docs/performance-gpu.md || { rm -f docs/performance-gpu.md.tmp; exit 1; }
