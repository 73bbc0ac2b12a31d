# Every target works on a bare checkout and installs what it needs by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-header --no-emit-index-url --no-emit-find-links
PYTEST_WORKERS ?= 2

.PHONY: help setup demo test e2e compat soak bench freeze lint format lock clean

help: ## list the targets
	@grep -E '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(READY) ## make .venv with .venv/bin/equipoise

$(READY): pyproject.toml requirements/bootstrap.txt requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is too old; Python 3.11 or newer is needed (make setup PYTHON=python3.12)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "error: no venv module; on Debian run: apt-get install python3-venv" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## watch every balancer at work, without a cluster; ARGS=--once ends by itself
	$(BIN)/equipoise demo $(ARGS)

test: setup ## the fast tests: Python and PyPI only
	$(BIN)/python -m pytest tests --ignore tests/e2e --ignore tests/compat -n $(PYTEST_WORKERS) --durations 15

e2e: setup ## build and start the real neighbours, and test against them
	$(BIN)/python -m tests.testbed build
	$(BIN)/python -m pytest tests/e2e -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations 25

compat: setup ## real VictoriaMetrics, Thanos and Prometheus 3 beside Prometheus 2
	$(BIN)/python -m tests.testbed build victoria-metrics prometheus3 thanos
	EQUIPOISE_COMPAT=1 $(BIN)/python -m pytest tests/compat --durations 10

soak: setup ## long runs against the real neighbours; figures into docs/soak.md
	$(BIN)/python -m tests.testbed build
	$(BIN)/python -m tests.soak.rest
	$(BIN)/python -m tests.soak.batch
	$(BIN)/python -m tests.soak.connections
	$(BIN)/python -m tests.soak.pools
	$(BIN)/python -m tests.soak.pools_faults
	$(BIN)/python -m tests.soak.agent
	$(BIN)/python -m tests.soak.readers
	$(BIN)/python -m tests.soak

$(BENCH_READY): $(READY) requirements/bench.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/bench.txt
	@touch $@

bench: $(BENCH_READY) ## ratios beside peers; results into docs/benchmarks.md
	$(BIN)/python -m benchmarks

freeze: setup ## what the outside sees of this checkout beside BASE, a commit; a difference fails
	$(BIN)/python -m tools.freeze against $(or $(BASE),main)

lint: setup ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup ## pin the dependencies anew
	$(COMPILE) requirements/bootstrap.in -o requirements/bootstrap.txt
	$(COMPILE) pyproject.toml -o requirements/run.txt
	$(COMPILE) requirements/build.in -o requirements/build.txt
	$(COMPILE) pyproject.toml requirements/dev.in -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra dashboard -c requirements/dev.txt -o requirements/dashboard.txt
	$(COMPILE) requirements/bench.in -c requirements/dev.txt -o requirements/bench.txt

clean: ## remove what the other targets made in this folder
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
