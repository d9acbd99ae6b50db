# Everything a developer does here. `make help` lists it; only python3 (3.11+), a JDK (17+), Maven
# and make need to be on the machine; chromium is installed where it is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: the runtime's packages for `make demo`, or everything.
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.stamp
# A lock is complete, so nothing is resolved: without --no-deps, pip before 24 asks the index for the
# newest release of a package with an extra, and refuses the lock on the day of that release.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

SEEDS ?= 2000
REPEAT ?= 5
FIRST_SEED ?= 0
# A run of chaos takes about two minutes, a run of the swarm milliseconds: SEEDS has two defaults.
CHAOS_SEEDS = $(if $(filter file,$(origin SEEDS)),1,$(SEEDS))

# Processes that test, for two cores: two mostly wait for brokers, one computes. A fourth would run
# quick tests in the time that is left: a minute less, but tests on brokers then time out more often.
# On one core, three brokers that start at once do not answer in time.
CORES = $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)))' 2>/dev/null)
WORKERS ?= $(if $(filter 1,$(CORES)),1,3)

PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --no-loadscope-reorder

# Seeds that nobody has played; the soak and chaos print the seed of each failure.
FRESH_SEED := $(shell date +%s)

# Runs of `make flaky`, and what it repeats: nothing named is the first tier.
N ?= 20
TESTS ?=

# Pages are read once, for both builders.
SPHINX = $(BIN)/python -m sphinx -n -W --keep-going -q -d build/doctrees

# Releases of Kafka for `make brokers`, the oldest line that works first.
VERSIONS ?= 2.5.1 2.8.2 3.0.2 3.3.2 3.5.2 3.7.2 3.9.1 4.0.0 4.1.1 4.2.0 4.3.0 4.3.1 4.4.0

# The modules below tests/ are found by their path from here, also where PYTHONSAFEPATH is set.
FROM_ROOT := PYTHONPATH=$(CURDIR)

.DEFAULT_GOAL := help

.PHONY: help setup demo history test verify flaky tools lint types imports generated docs package release pytest quick coverage bench measure brokers soak exhaust chaos format lock jars clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## the environment in .venv, from the hash-pinned lock

$(BIN)/python:
	@scripts/require python '$(PYTHON)'
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements.txt | $(BIN)/python
	@echo 'coopgroup: installing the packages of requirements.txt; takes some seconds'
	$(INSTALL) --require-hashes -r requirements.txt
	@touch $@

$(STAMP): requirements-dev.txt pyproject.toml | $(BIN)/python
	@echo 'coopgroup: installing the packages of requirements-dev.txt, Spark among them; takes a minute or two'
	$(INSTALL) --require-hashes -r requirements-dev.txt
	$(INSTALL) --no-build-isolation --editable .
	@touch $(RUNTIME) $@

# It needs neither the packages for development nor an installed coopgroup.
demo: $(RUNTIME) ## a group on a real broker: members join, leave and die while a table shows who owns what
	@scripts/require java
	@PYTHONPATH=src $(BIN)/python -m coopgroup demo

history: setup ## the pipeline on real groups: rebalances, absences and advice; the page is build/advice.html
	@scripts/require java
	@mkdir -p build
	$(FROM_ROOT) $(BIN)/python -m tests.lab.pipeline_demo --html build/advice.html

test: tools lint imports ## the first tier: what guards every change; the closing line is that of the tests
	@$(MAKE) --no-print-directory --jobs 2 types docs
	@$(MAKE) --no-print-directory pytest

verify: tools setup package ## the second tier: everything else; run it before a change is complete
	@$(MAKE) --no-print-directory soak FIRST_SEED=$(FRESH_SEED)
	@$(MAKE) --no-print-directory exhaust MINUTES=15
	@$(MAKE) --no-print-directory brokers
	@$(MAKE) --no-print-directory chaos SEEDS=100 FIRST_SEED=$(FRESH_SEED) MINUTES=5
	@$(MAKE) --no-print-directory chaos SEEDS=100 FIRST_SEED=$(FRESH_SEED) MINUTES=5 PROTOCOL=consumer
	$(PYTEST) -m verify --durations=20

tools:
	@scripts/require python '$(PYTHON)'
	@scripts/require java
	@scripts/require chromium
	@scripts/require prometheus

lint: setup ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup ## mypy --strict over src and tests, pyright over the public interface
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python tests/typing

imports: setup ## the layers of the architecture
	$(BIN)/lint-imports --no-logo

generated: setup ## all files and tables that are made from code, but for figures (measured, or of simulations)
	@$(FROM_ROOT) $(BIN)/python -m docs.make
	@$(FROM_ROOT) $(BIN)/python deploy/monitoring/make.py

docs: setup ## the documentation, warnings are errors, its examples run
	$(SPHINX) -E -b html docs build/docs
	$(SPHINX) -b doctest docs build/doctest

package: setup ## sdist and wheel pass the checks of a package index, and work in an empty environment
	@scripts/check-package $(BIN)/python

release: package ## the package, and what must be true before it is published
	@$(BIN)/python scripts/check-release

pytest: tools setup ## the tests of the first tier, those on a real broker included
	$(PYTEST) -m 'not verify'

flaky: tools setup ## TESTS="…" N=n times in random order beside a busy loop; prints the tests that did not always pass
	$(BIN)/python scripts/flaky $(N) $(TESTS)

quick: setup ## the tests that need no Java and take no time
	$(BIN)/python -m pytest -m 'not broker and not interop and not spark and not slow and not verify'

coverage: setup ## branch coverage of the core by the tests that need no broker
	$(BIN)/python -m pytest -q -m 'not broker and not interop and not spark and not slow and not verify' --cov --cov-report=
	$(BIN)/python -m coverage report --omit='*/cli/*,*/kafka/*,*/testing/*'

bench: tools setup ## the benchmarks, into build/benchmarks.json
	$(FROM_ROOT) $(BIN)/python -m tests.benchmarks.run

measure: tools setup ## what a rebalance costs at default time-outs, on an idle machine, into the pages: REPEAT=n (5)
	$(FROM_ROOT) $(BIN)/python -m tests.benchmarks.headline --default-timeouts --write --repeat $(REPEAT)

brokers: tools setup ## our members on each release of Kafka in VERSIONS, into build/brokers
	@rm -rf build/brokers
	COOPGROUP_KAFKA_VERSIONS='$(VERSIONS)' $(BIN)/python -m pytest tests/broker/test_versions.py; \
	    status=$$?; scripts/brokers-table; exit $$status

soak: setup ## the swarm over SEEDS=n seeds from FIRST_SEED=k on, on all cores
	@scripts/soak $(BIN)/python $(FIRST_SEED) $(SEEDS)

exhaust: setup ## every fault at every message of small histories, on all cores: [PAIRS=1] [PART=k/n] [MINUTES=m]
	@scripts/exhaust $(BIN)/python $(if $(PAIRS),--pairs) $(if $(PART),--part $(PART)) $(if $(MINUTES),--minutes $(MINUTES))

chaos: tools setup ## real brokers and members under faults: SEEDS=n (1) FIRST_SEED=k [MINUTES=m] [PROTOCOL=consumer]
	$(FROM_ROOT) $(BIN)/python -m tests.chaos.run $(FIRST_SEED) $(CHAOS_SEEDS) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(PROTOCOL),--protocol $(PROTOCOL))

format: setup ## rewrite the sources as ruff likes them
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: setup ## compile the locks from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	    --no-header --quiet --upgrade -o requirements.txt
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	    --no-header --quiet --upgrade --constraints requirements.txt --extra faststream --extra keystore --extra metrics --extra report --extra spark --extra watch --group dev -o requirements-dev.txt
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.12 --generate-hashes \
	    --no-header --quiet --constraints requirements-dev.txt --extra metrics --group build -o deploy/kubernetes/requirements.txt

jars: tools setup ## the list of SHA-256 of the jars of Kafka and Spark, from an empty Maven repository
	$(BIN)/python scripts/list-jars $(VERSIONS)

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) build
