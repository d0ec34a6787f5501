# `make` lists what there is to do. Every target runs with plain Python and pip.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# One process a core; whoever is free takes the next test. `make test ARGS="-n 0"` for one process.
SPREAD := --numprocesses auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup check test test-gpu smoke golden docs bench fuzz demo clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install redlang with its development tools into it

# Only what pyproject.toml says decides what is installed, so the stamp depends on it alone.
$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	@touch $@ $(RUNTIME)

# What users install; enough for the demonstration, and half the download.
$(RUNTIME): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

check: $(STAMP) ## check format, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP) ## run every test that needs no GPU (a few minutes on two cores)
	$(BIN)/python -m pytest -m "not gpu and not strict" --ignore tests/docs --ignore tests/examples $(SPREAD) $(ARGS)

test-gpu: $(STAMP) ## run the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest -m gpu $(ARGS)

smoke: ## try the shortest way through everything (PYTHON=python3.13 VENV=.venv-next: elsewhere)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[test]' $(NUMPY)
	$(BIN)/python -m pytest tests/smoke $(ARGS)

golden: $(STAMP) ## renew the golden files and the outputs in the docs, then show what changed
	$(BIN)/python -m pytest tests/golden tests/frontend/test_mistakes.py --renew-golden -q
	$(BIN)/python -m tests.docs.blocks README.md $$(find docs -name '*.md')
	git diff --stat -- tests/golden tests/mistakes README.md docs

docs: $(STAMP) ## run every code block of the documentation and every example
	$(BIN)/python -m pytest tests/docs tests/examples $(SPREAD) $(ARGS)

bench: $(STAMP) ## measure against NumPy, torch and hand-written Numba on this machine
	$(BIN)/redlang bench --backend cpu $(ARGS)

fuzz: $(STAMP) ## interpret 10,000 generated cascades and compile one in fifty (under an hour)
	$(BIN)/python -m redlang.testing.fuzz $(ARGS)

demo: $(RUNTIME) ## run attention, softmax, variance and cross-entropy fused, with errors and times
	$(BIN)/redlang demo

clean: ## remove the virtual environment and the caches of the tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
