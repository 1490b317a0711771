# make run    the main job: three dataflows over twelve networks, each at its proven best tiling
# make test   style, types and tests
# make coverage  the tests once more, with what they reach; half as long again
# make bench  speed of the simulator itself; not part of `make test`
# make bench-search  quality of the methods of search, about ten minutes
# make bench-sweep  two thousand points, killed three times and resumed: the same rows; a minute
#
# Needs make, python3 (3.11 or later) and python3-venv. Everything is installed into .venv, and again only when
# pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MAIN := $(VENV)/.installed-main
TOOLS := $(VENV)/.installed-tools

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Compiled code is kept beside byte code in __pycache__; without it every run would compile for a minute.
unexport PYTHONDONTWRITEBYTECODE
unexport NUMBA_DISABLE_JIT

.PHONY: run test coverage bench bench-search bench-sweep clean
.DELETE_ON_ERROR:

run: $(MAIN)
	$(BIN)/mas-sim compare

test: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "types, and beside them the first compilation"
	$(BIN)/mypy & types=$$!; $(BIN)/mas-sim compare --workload vit_b_16 --dataflow all --check >/dev/null && wait $$types
	$(BIN)/pytest -n 2

coverage: $(TOOLS)
	$(BIN)/pytest -n 2 --cov --cov-report=term:skip-covered

bench: $(TOOLS)
	$(BIN)/pytest benchmarks --benchmark-only --benchmark-columns=min,median,stddev,rounds --benchmark-group-by=group

bench-search: $(TOOLS)
	$(BIN)/pytest benchmarks/test_search_quality.py

bench-sweep: $(TOOLS)
	$(BIN)/pytest benchmarks/test_sweep_survival.py

clean:
	rm -rf $(VENV) build dist *.egg-info .benchmarks .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A half-made environment (python3-venv is missing) has no pip, and is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mas_sim needs Python 3.11 or later: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(MAIN): pyproject.toml | $(BIN)/pip
	$(BIN)/pip install -qq -e .
	@touch $@

# The tools' environment contains the main one, so `make run` has nothing left to install after `make test`.
$(TOOLS): pyproject.toml | $(BIN)/pip
	$(BIN)/pip install -qq -e '.[test,dev,notebooks]'
	@touch $@ $(MAIN)
