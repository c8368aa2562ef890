# SPDX-License-Identifier: Apache-2.0
# Front door only: CMake builds, scripts/ test. `make help` lists the doors.
PROFILE ?= resume
JOBS ?= $(shell nproc)
PYTHON := .venv/bin/python
RELEASE := build/release
RUN_PYTHON = PYTHONPATH=$(CURDIR)/$(RELEASE)/python PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" $(PYTHON)

.PHONY: all help build release test test-full test-crash test-s3 demo bench-bitsnap bench-coder bench-lossless bench-mixed bench-save bench-optim bench-optim-policy bench-plan bench-quality bench-resident bench-sensitivity bench-transfer install clean distclean

all: build

help:
	@echo "make              build library, command and Python module into $(RELEASE)"
	@echo "make test         all tests (20 to 25 minutes on 2 cores); make test-full: every fault, arm64, coverage"
	@echo "make test-crash   every crash point of saves, deletions and copies; 1000 kills of a training (KILLS=n)"
	@echo "make test-s3      a training killed again and again over two S3 servers that throttle, fail, cut and keep silent (3 minutes)"
	@echo "make demo         train a small GPT, kill it 10 times, compare (PROFILE=lossless|resume|small)"
	@echo "make bench-coder | bench-lossless | bench-save | bench-plan"
	@echo "make bench-transfer  a published model in a file 9 to 12 times smaller: its embeddings, and fine-tuning from it; make bench-sensitivity"
	@echo "make bench-optim  an optimizer step with state of 3 to 8 bits beside torch's and torchao's"
	@echo "make bench-optim-policy  widths of moments chosen on the way: cost, growth, factors, trainings beside fixed widths (40 minutes)"
	@echo "make bench-quality  what restores cost a training, beside rivals (TASK=a|b|c|d), what resident optimizers do (TASK=optim); QUICK=1; an hour at a time, run it again to go on"
	@echo "make install      PREFIX=/usr/local"

build:
	@scripts/bootstrap.sh build
	@$(MAKE) --no-print-directory release CKP_PY=$$(python3 -c 'import sysconfig, os; print("ON" if os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")) else "OFF")' 2>/dev/null || echo OFF)

release:
	@cmake --preset release -DCKP_PYTHON=$(or $(CKP_PY),ON) >build/.configure.log 2>&1 || { cat build/.configure.log; exit 1; }
	@cmake --build $(RELEASE) -j $(JOBS)

build/.dir:
	@mkdir -p build && touch $@
release: | build/.dir

test:
	@scripts/bootstrap.sh test
	@scripts/test.sh

# Every point of the fault tables, ckpt-chaos at all of its own, and KILLS (1000) of a real training.
test-crash:
	@scripts/bootstrap.sh test
	@scripts/test-crash.sh

test-full:
	@scripts/bootstrap.sh full
	@scripts/test-full.sh

test-s3:
	@scripts/bootstrap.sh test
	@$(MAKE) --no-print-directory release
	@$(RUN_PYTHON) tests/python/s3_chaos.py

demo:
	@scripts/bootstrap.sh demo
	@$(MAKE) --no-print-directory release
	@$(RUN_PYTHON) demo/run.py --profile $(PROFILE) --out build/demo

# bench/<name>.py where there is one, else the C program bench/<name>.c.
bench-bitsnap bench-coder bench-lossless bench-mixed bench-optim bench-plan bench-quality bench-resident bench-sensitivity bench-transfer: bench-%:
	@scripts/bootstrap.sh bench
	@$(MAKE) --no-print-directory release
	@mkdir -p build/bench
	@if [ -f bench/$*.c ]; then cmake --build $(RELEASE) -j $(JOBS) --target bench_$*; fi
	@if [ -f bench/$*.py ]; then $(RUN_PYTHON) bench/$*.py; else $(RELEASE)/bench/bench_$*; fi

bench-optim-policy:
	@scripts/bootstrap.sh bench
	@$(MAKE) --no-print-directory release
	@mkdir -p build/bench
	@$(RUN_PYTHON) bench/optim_policy.py

# The first part is built apart, so that it can mask CPU features and print what AVX2 gives.
bench-save:
	@scripts/bootstrap.sh bench
	@mkdir -p build/bench
	@cmake --preset release -B build/bench-save -DCKP_TEST_ENV=ON >build/.configure.log 2>&1 || { cat build/.configure.log; exit 1; }
	@cmake --build build/bench-save -j $(JOBS) --target bench_save
	@build/bench-save/bench/bench_save $(if $(QUICK),100)
	@$(MAKE) --no-print-directory release
	@$(RUN_PYTHON) -W ignore bench/save_training.py $(if $(QUICK),--quick)
	@$(RUN_PYTHON) -W ignore bench/save_killed.py $(if $(QUICK),--mb 50 --deltas 2)

PREFIX ?= /usr/local
install: build
	cmake --install $(RELEASE) --prefix $(PREFIX) --component dev

clean:
	rm -rf build

distclean: clean
	rm -rf .venv
