# Everything a contributor runs. `make` alone lists the targets.

PYTHON      ?= python3
# Four workers on two cores: tests wait for sockets and timers for more than half of their time.
PYTEST_ARGS ?= -n 4
SOAK_ARGS   ?=
LOAD_S      ?= 600
FUZZ_ARGS   ?= --minutes 10
LOCK_ARGS   ?=
BENCH_ARGS  ?=
DEMO_ARGS   ?=

VENV := .venv
BIN  := $(VENV)/bin
PY   := $(BIN)/python

# The tool that resolves the lock has its own environment, so that a broken lock can always be resolved again.
LOCK_VENV  := .venv-lock
BENCH_VENV := .venv-bench
UV_VERSION := 0.13.7

define require_python
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Broadloom needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	echo "Choose another one, as in: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; \
	exit 1; }
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  Variables: PYTHON=$(PYTHON)  PYTEST_ARGS='$(PYTEST_ARGS)'  SOAK_ARGS='$(SOAK_ARGS)'  LOAD_S=$(LOAD_S)  FUZZ_ARGS='$(FUZZ_ARGS)'  LOCK_ARGS='$(LOCK_ARGS)'  BENCH_ARGS='$(BENCH_ARGS)'  DEMO_ARGS='$(DEMO_ARGS)'"

.PHONY: setup
setup: $(VENV)/.installed ## Create .venv with the locked packages and Broadloom (editable)

# Two stamps: a changed lock recreates the environment, so that no unlocked package remains; a changed
# pyproject.toml only reinstalls Broadloom.
$(VENV)/.locked: requirements.lock
	@$(require_python)
	$(PYTHON) -m venv --clear $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: setup ## Run a local cluster with live pages: traffic, kills, repair, tables (DEMO_ARGS='--peers 60')
	$(BIN)/broadloom demo $(DEMO_ARGS)

.PHONY: test
test: setup browser lint imports ## Run all checks: lint, imports, types, tests
	@$(MAKE) --no-print-directory --jobs 2 types pytest

# In parallel with mypy, which keeps one core busy for the first minute.
.PHONY: pytest
pytest: setup
	$(PY) -m pytest $(PYTEST_ARGS)

# Tests of the web pages run in a real browser. Without one they are skipped.
.PHONY: browser
browser: ## Install Chromium and its driver if they are missing and apt is available
	@command -v chromedriver >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || { \
		apt-get update --quiet=2; \
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends chromium chromium-driver; \
	} >/dev/null || echo "Chromium could not be installed: the tests of the web pages will be skipped." >&2

.PHONY: test-long
test-long: setup ## Run the long tests: a Spark cluster, killed drivers, larger cases (about half an hour)
	$(PY) -m pytest -m long -n 2

.PHONY: lint
lint: setup ## Check style and formatting (ruff)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

.PHONY: format
format: setup ## Format the code and apply fixes (ruff)
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

.PHONY: types
types: setup ## Check types (mypy)
	$(BIN)/mypy

.PHONY: imports
imports: setup ## Check that imports respect the layers (import-linter)
	$(BIN)/lint-imports --no-logo

.PHONY: soak
soak: setup ## Ten minutes of load with real processes, then sweeps over many seeds (45; SOAK_ARGS='--first 20000')
	$(BIN)/broadloom chaos load --peers 8 --duration $(LOAD_S) --no-tls
	$(PY) -m tools.soak $(SOAK_ARGS)

.PHONY: bench
bench: $(BENCH_VENV)/.installed ## Benchmark Broadloom against other systems, about an hour (BENCH_ARGS=--quick: a few minutes)
	$(BENCH_VENV)/bin/python -m bench $(BENCH_ARGS)

$(BENCH_VENV)/.installed: bench/requirements.txt bench/install.py pyproject.toml
	@$(require_python)
	$(PYTHON) -m venv --clear $(BENCH_VENV)
	$(BENCH_VENV)/bin/python bench/install.py
	@touch $@

.PHONY: bench-pipeline
bench-pipeline: setup ## Benchmark the pipeline: small tapes by the clock, and 1, 3 and 10 million events next to DuckDB
	$(PY) -m bench.pipeline.clock
	$(PY) -m bench.pipeline --plot docs/images/pipeline-growth.svg $(BENCH_ARGS)

.PHONY: fuzz
fuzz: setup ## Fuzz real peers for ten minutes (FUZZ_ARGS='--minutes 2')
	$(PY) -m tests.fuzz $(FUZZ_ARGS)

.PHONY: chaos
chaos: setup ## Run the chaos scenarios with real processes (about ten minutes; some need root)
	$(BIN)/broadloom chaos kill --peers 200 --kill 40
	$(BIN)/broadloom chaos kill --peers 200 --kill 100
	$(BIN)/broadloom chaos kill --peers 1000 --processes 20 --kill 500
	$(BIN)/broadloom chaos pause --peers 40 --pause 8
	$(BIN)/broadloom chaos churn --peers 100
	$(BIN)/broadloom chaos join-storm --peers 100
	$(BIN)/broadloom chaos join --peers 200
	$(BIN)/broadloom chaos partition --peers 40 --duration 20

.PHONY: docs
docs: setup ## Build the documentation site in site/
	$(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

.PHONY: lock
lock: ## Resolve requirements.lock (LOCK_ARGS=--upgrade for newer versions)
	@$(require_python)
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(LOCK_VENV)/bin/uv pip compile pyproject.toml \
		--all-extras --group test --group lint --group docs --group build --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate --quiet \
		$(LOCK_ARGS) --output-file requirements.lock
	@! grep -n '://' requirements.lock || { echo "requirements.lock must not contain URLs." >&2; exit 1; }

.PHONY: clean
clean: ## Remove everything that make and the tools have created
	rm -rf $(VENV) $(LOCK_VENV) $(BENCH_VENV) build dist site
	rm -rf .ruff_cache .mypy_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
