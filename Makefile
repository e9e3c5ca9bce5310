# Everything a newcomer needs; `make help` lists it. Only Python 3.11 (with venv and pip), make and git are needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AXE_VERSION := 4.14.1
AXE := $(VENV)/axe/node_modules/axe-core/axe.min.js

.DEFAULT_GOAL := help
.PHONY: help setup demo lab test browser check fix notebooks samples bench gpu clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[all]' --group dev
	touch $@

$(AXE): Makefile | $(READY)
	@npm install --prefix $(VENV)/axe --no-save --no-audit --no-fund --ignore-scripts --loglevel=error \
	  axe-core@$(AXE_VERSION) && touch $@ || echo "Without axe-core the tests in the browser are left out."

setup: $(READY) $(AXE) ## Create .venv with everything in it

demo: $(READY) ## Compare the shipped runs, replay the captured call, write the report
	$(BIN)/detlab demo

lab: $(READY) ## Open JupyterLab on the first notebook
	$(BIN)/jupyter lab notebooks/01_first_divergence.ipynb

test: $(READY) $(AXE) ## Run the tests
	$(BIN)/pytest

browser: $(READY) $(AXE) ## Run the tests in JupyterLab and Chromium alone
	$(BIN)/pytest -m browser

check: $(READY) $(AXE) ## Format, lint, types, tests and notebooks: what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest

fix: $(READY) ## Format, and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

notebooks: $(READY) ## Run the notebooks alone
	$(BIN)/pytest tests/test_notebooks.py

samples: $(READY) ## Record sample_traces/ anew with a real Megatron-Core model
	$(BIN)/python -m tests.megatron_cpu.record_samples

bench: $(READY) ## Print the table of measured ratios
	$(BIN)/python -m tests.bench

gpu: $(READY) ## Run the tests that need a CUDA device; what was seen goes to detlab-gpu.json
	DETLAB_GPU_JSON="$${DETLAB_GPU_JSON:-detlab-gpu.json}" $(BIN)/pytest -m gpu

clean: ## Remove what the other targets made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
