# make run    set up, send work through each of the five systems, serve a dashboard with live work (ONCE=1: only the first)
# make test   set up, then run all checks and tests (FAST=1: about three minutes; ARGS="-k name": a selection)
# make chaos  inject random faults on both stores for ten minutes, then account for every job (SECONDS=, SEED=)
# make soak   the long run: simulated crashes, lowest versions, 5 million finished jobs, chaos (JOBS=, SECONDS=)
# make bench  measure Holdfast, the raw loops and other queues (QUICK=1: about seven minutes)
# make check  style, types, import contracts, tidiness
# make pictures  regenerate the pictures in the docs
# make screenshots  photograph each page of the dashboard in Chromium
# make reference  regenerate the references of the Python API and the HTTP API
# make lock   regenerate requirements/*.txt

export PYTHON ?= python3
export FAST ONCE QUICK JOBS

.DEFAULT_GOAL := help
.PHONY: help run test chaos soak bench check format pictures screenshots reference lock clean

RUNTIME := .venv/.runtime
DEV := .venv/.dev
INSTALL := .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input

help:
	@sed -n 's/^# //p' Makefile

run: $(RUNTIME)
	@.venv/bin/holdfast demo all $(if $(ONCE),,--serve)

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

screenshots: $(DEV)
	@scripts/services
	@.venv/bin/python -m scripts.screenshots $(ARGS)

reference: $(DEV)
	@.venv/bin/python -m scripts.reference

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
