# Everything runs from .venv, made here without root. `make install` first, or let the others call it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help install demo test test-slow test-torch lint bench against answers fuzz screenshots clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

install: $(STAMP) ## install agviz and its tools into .venv

$(STAMP): pyproject.toml constraints.txt hatch_build.py agviz/measure/kernel.c agviz/record/capture.c
	@set -e; \
	if [ ! -x $(BIN)/python ]; then \
	  for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then \
	    echo "make install: no Python 3.11 or newer on PATH; install python3.11 (with venv) and try again." >&2; exit 1; \
	  fi; \
	  $$found -m venv .venv; \
	fi; \
	echo "Installing agviz and its tools into .venv (torch is large: the first time takes a while)."; \
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'; \
	touch $@

demo: install ## train one step of a built-in model and show its backward pass
	$(BIN)/agviz demo

test: lint ## format, lint, types and the tests that are neither slow nor need a GPU
	$(BIN)/pytest -q -n auto --maxprocesses 4 --dist loadfile

test-slow: install ## the slow tests
	$(BIN)/pytest -q -m 'slow and not gpu'

test-torch: install ## tests on another torch: make test-torch TORCH=2.15.0 [PYTHON=python3.12]
	@test -n "$(TORCH)" || { echo "make test-torch: which one? TORCH=2.15.0" >&2; exit 1; }
	$(BIN)/python -m tests.releases $(TORCH) $(if $(PYTHON),--python $(PYTHON))

lint: install ## ruff format --check, ruff check, mypy
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

bench: install ## measure the engine, the recorder and the readers
	$(BIN)/python -m benchmarks

against: install ## measure this tree beside another one: make against OTHER=../other
	$(BIN)/python -m benchmarks.against $(OTHER)

answers: install ## write what agviz answers about 434 recordings: make answers OUT=folder
	$(BIN)/python -m tests.frozen $(OUT)

fuzz: install ## every Hypothesis test with many fresh examples
	$(BIN)/pytest -q -m 'hypothesis and not gpu' --hypothesis-profile=fuzz

screenshots: install ## draw the pictures in screenshots/ again
	$(BIN)/python -m screenshots

clean: ## remove caches and build results; .venv and traces stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis snapshot_report.html
	find agviz engine tests -name __pycache__ -type d -prune -exec rm -rf {} +
