# Every target makes the environment it needs, pinned by constraints*.txt; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3),python3)
VENV ?= .venv
VENV_BENCH ?= .venv-bench
VENV_E1 ?= .venv-e1
VENV_E3 ?= .venv-e3
VENV_ACCELERATORS ?= .venv-accelerators
# A Python whose JAX finds the device: `make bench-device DEVICE_PYTHON=python`.
DEVICE_PYTHON ?= $(VENV)/bin/python
SIDE_BY_SIDE ?= 2
WORKERS ?= 2

# Compiled programs are kept between runs, in the user's cache folder.
export JAX_COMPILATION_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/powerzoo_jax/jax
export PIP_DISABLE_PIP_VERSION_CHECK := 1

, := ,
BIN := $(VENV)/bin
# Files in the order of their names: by size, the few long ones would come last and leave a worker idle.
PYTEST := -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
CHECKED := powerzoo_jax tools $(wildcard compat/powerzoo compat/powerzoo_compat)
# One seed of every script and 90 s for it; empty: three seeds.
FOREIGN ?= --quick
# Folders that need learners of other projects; everything else runs without torch and gymnax.
E1_TESTS := tests/compat_e1
E3_TESTS := tests/compat_e3
OWN_TESTS := --ignore=$(E1_TESTS) --ignore=$(E3_TESTS) --ignore=tests/packaging tests
# Where the compiled kernel is used: tested in the JAX form too.
KERNEL_USERS := tests/powerflow/meshed tests/families/transmission
E1_EXTRAS := sb3$(,)pettingzoo$(,)rllib$(,)mo$(,)smartgrid$(,)torchrl$(,)minari$(,)viz
COMPILERS := jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12 libtpu
E1_MORE := sb3-contrib SuperSuit ethical-smart-grid moviepy skrl tianshou d3rlpy rl_zoo3 pytest pytest-xdist

.PHONY: help demo test test-all test-long test-compat test-foreign test-browser bench bench-device accelerators accelerators-quick
.PHONY: build-check lint types docs wheel-check native native-sanitize soak-quick memory hostile hashes sbom clean
help:  ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

demo: $(VENV)/.native  ## train on battery_arbitrage, print scores beside rule, causal planner and oracle, write a plot
	$(BIN)/python -m powerzoo_jax demo

test: lint types $(VENV)/.native  ## style, types and every quick test: what a contributor waits for
	$(BIN)/python $(PYTEST) -m "not full and not long" $(OWN_TESTS)

test-all: $(VENV)/.native  ## every test but the long ones, the notebooks and the built wheel: what CI runs
	@$(MAKE) --no-print-directory -j $(SIDE_BY_SIDE) lint types wheel-check
	$(BIN)/python $(PYTEST) -m "not long" $(OWN_TESTS)
	POWERZOO_JAX_NATIVE=0 $(BIN)/python $(PYTEST) -m "not full and not long" $(KERNEL_USERS)

test-long: lint types wheel-check $(VENV)/.native  ## every test, and a hundred thousand abused steps of every task
	POWERZOO_TESTS_OPTIMISED=1 $(BIN)/python $(PYTEST) $(OWN_TESTS)
	$(BIN)/python -m tools.soak --steps 1e5
	@$(MAKE) --no-print-directory test-foreign FOREIGN=

native: $(VENV)/.native  ## the compiled kernel of meshed power flow; without a C++ compiler everything runs in JAX

native-sanitize: $(VENV)/.native  ## driver of the compiled kernel under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/cmake -S native -B build/native-sanitize -DPOWERZOO_SANITIZE=ON
	$(BIN)/cmake --build build/native-sanitize -- --no-print-directory
	build/native-sanitize/driver

test-browser: $(VENV)/.stamp  ## pages of episodes and of the site in headless Chromium (Debian package chromium)
	$(BIN)/python -m pytest -q tests/browser/check_page.py tests/browser/check_site.py

soak-quick: $(VENV)/.native  ## two thousand abused steps of every task and preset: only finite numbers, one program each
	$(BIN)/python -m tools.soak --quick --steps 2e3 --jobs $(SIDE_BY_SIDE)

memory: $(VENV)/.stamp  ## memory in use over 200 makes and runs of a task and ten minutes of training: fails where it grows
	@mkdir -p results
	$(BIN)/python -m tools.memory --out results/memory.tsv

hostile: $(VENV)/.stamp  ## files made to exhaust, escape or mislead the readers, in full size
	@mkdir -p results
	$(BIN)/python -m tools.hostile --out results/hostile.tsv

hashes: $(VENV)/.stamp  ## SHA-256 of every file that an installation by the pins may download, into requirements-hashed.txt
	printf 'hatchling\neditables\n' | $(BIN)/uv pip compile -q --python-version 3.11 --python-platform linux --no-annotate \
	  --generate-hashes -c constraints.txt --custom-compile-command "make hashes" -o requirements-hashed.txt pyproject.toml -

sbom: $(VENV)/.stamp  ## software bill of materials (CycloneDX JSON) under results/
	@mkdir -p results
	$(BIN)/python -m tools.sbom --out results/sbom.json

lint: $(VENV)/.stamp  ## style
	$(BIN)/ruff check .

types: $(VENV)/.stamp  ## static types
	$(BIN)/mypy $(CHECKED)

wheel-check: $(VENV)/.stamp  ## build the wheel, look inside, use it from a temporary directory
	$(BIN)/python -m pytest -q tests/packaging

test-compat: $(VENV_E1)/.stamp $(VENV_E3)/.stamp  ## the views against learners of other projects, in environments of their own
	$(VENV_E1)/bin/python $(PYTEST) $(E1_TESTS)
	$(VENV_E3)/bin/python $(PYTEST) $(E3_TESTS)

test-foreign: $(VENV_E1)/.stamp $(VENV_E3)/.stamp  ## learners of other projects must beat random and idle play
	VENV_E1=$(VENV_E1) VENV_E3=$(VENV_E3) $(VENV_E1)/bin/python -m tests.foreign $(FOREIGN) --jobs $(SIDE_BY_SIDE)

docs: $(VENV)/.stamp  ## build the documentation under build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q

bench: $(VENV_BENCH)/.stamp  ## speeds against other engines, as TSV under results/
	@mkdir -p results
	for what in powerflow contingency operation dc threephase opf opf_ac env_steps ppo; do \
	  $(VENV_BENCH)/bin/python benchmarks/$$what.py --out results/$$what.tsv; done

bench-device: $(if $(filter $(VENV)/%,$(DEVICE_PYTHON)),$(VENV)/.stamp)  ## speeds on JAX's default device, as TSV under results/
	@mkdir -p results
	$(DEVICE_PYTHON) benchmarks/device.py --out results/device.tsv

accelerators: $(VENV_ACCELERATORS)/.stamp  ## compile all programs for an H200 and a v5e, count, compare with the limits
	$(VENV_ACCELERATORS)/bin/python -m tools.accelerators

accelerators-quick: $(VENV_ACCELERATORS)/.stamp  ## every task for one of the two: part of what CI runs
	$(VENV_ACCELERATORS)/bin/python -m tools.accelerators --quick --jobs $(SIDE_BY_SIDE) --out results/accelerators.tsv

build-check: $(VENV)/.stamp  ## rebuild the bundled tables and series from their pinned sources and compare
	$(BIN)/python -m tools.cases.build_tables
	$(BIN)/python -m tools.cases.build_feeders
	$(BIN)/python -m tools.data.build_bundle
	$(BIN)/python -m tools.data.synthetic_fit

clean:  ## remove environments, caches and results
	rm -rf $(VENV) $(VENV_BENCH) $(VENV_E1) $(VENV_E3) $(VENV_ACCELERATORS) build dist results .pytest_cache .mypy_cache .ruff_cache

# A stamp is older than what it was made from: then the environment is brought up to date in place.
# The build back end comes first and from the same pins, so no build downloads one of its own.
define install
	@echo "setting up $(1) ($(3))"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@for first in $(5); do $(1)/bin/python -m pip install -qq -c $(2) $$first; done
	@$(1)/bin/python -m pip install -qq -c $(2) hatchling editables
	@$(1)/bin/python -m pip install -qq -c $(2) --no-build-isolation -e ".$(if $(3),[$(3)])" $(4)
	@touch $(1)/.stamp
endef

$(VENV)/.stamp: pyproject.toml constraints.txt
	$(call install,$(VENV),constraints.txt,dev$(,)viz$(,)notebooks$(,)build$(,)docs)

# Beside the stamp and not part of it: where this fails it prints one line, succeeds and is tried again the next time.
$(VENV)/.native: $(VENV)/.stamp tools/native_build.py $(shell find native -type f ! -name '*.pyc' ! -name '*.md')
	@$(BIN)/python -m tools.native_build --stamp $@

$(VENV_BENCH)/.stamp: pyproject.toml constraints.txt
	$(call install,$(VENV_BENCH),constraints.txt,bench)

# Compilers only: no device, no driver, and none of the libraries that a run would need.
$(VENV_ACCELERATORS)/.stamp: pyproject.toml constraints-accelerators.txt
	$(call install,$(VENV_ACCELERATORS),constraints-accelerators.txt,,$(COMPILERS))

# torch goes first: a range would draw the newest build and its accelerator packages.
$(VENV_E1)/.stamp: pyproject.toml constraints-e1.txt
	$(call install,$(VENV_E1),constraints-e1.txt,$(E1_EXTRAS),$(E1_MORE),$$(grep ^torch== constraints-e1.txt))

$(VENV_E3)/.stamp: pyproject.toml constraints-e3.txt
	$(call install,$(VENV_E3),constraints-e3.txt,gymnax$(,)jaxmarl,rejax evosax pytest pytest-xdist)
