# make run    set up, and send work through each of the five systems
# make test   set up, and run all checks and tests (FAST=1: below two minutes; ARGS="-k name": some)
# make chaos  break everything at random on both stores for ten minutes, account for every job (SECONDS=, SEED=)
# make soak   the long run: kills by schedule, lowest versions, 5 million finished jobs, chaos (JOBS=, SECONDS=)
# make bench  measure Holdfast, the raw loops and other queues (QUICK=1: about seven minutes)
# make check  style, types, import contracts, tidiness
# make pictures  record the pictures of the docs anew
# make lock   write requirements/*.txt anew

export PYTHON ?= python3
export FAST ONCE QUICK JOBS

.DEFAULT_GOAL := help
.PHONY: help run test chaos soak bench check format pictures lock clean

RUNTIME := .venv/.runtime
DEV := .venv/.dev
INSTALL := .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input

help:
	@sed -n 's/^# //p' Makefile

run: $(RUNTIME)
	@.venv/bin/holdfast demo all

test: $(DEV)
	@scripts/test $(ARGS)

chaos: $(DEV)
	@scripts/chaos --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(DEV)
	@CHAOS_SECONDS=$(or $(SECONDS),600) scripts/soak $(ARGS)

bench: $(DEV)
	@scripts/bench $(ARGS)

check: $(DEV)
	@scripts/check

format: $(DEV)
	@.venv/bin/ruff check --quiet --fix . ; .venv/bin/ruff format --quiet .

pictures: $(DEV)
	@.venv/bin/python -m scripts.pictures

lock:
	@scripts/lock

clean:
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/bin/python:
	@python=$$(scripts/python) && echo "setting up .venv" && "$$python" -m venv --clear .venv

$(RUNTIME): .venv/bin/python requirements/runtime.txt pyproject.toml
	@$(INSTALL) --require-hashes --requirement requirements/runtime.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): $(RUNTIME) requirements/dev.txt
	@$(INSTALL) --require-hashes --requirement requirements/dev.txt
	@touch $@
