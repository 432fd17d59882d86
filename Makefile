# HeteroTP. `make demo` and `make test` do all set-up themselves; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
EXAMPLES := 10000
FUZZ := tests/unit/cli/test_manifest_fuzz.py tests/unit/operator/test_odd_objects.py \
  tests/unit/operator/test_odd_events.py tests/unit/trainer/boundary/test_control_fuzz.py \
  tests/integration/api/test_manifests_judged_alike.py
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
CRDS := charts/heterotp/templates/crds
CLUSTER := tools/cluster

.PHONY: help setup demo test test-fast test-bare test-kueue test-gangs fuzz chaos check format generate docs lock release cluster-up cluster-down cluster-load images

help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(READY) ## make the virtual environment from the pinned lock file

$(READY): requirements.lock pyproject.toml
	@echo "setting up $(VENV) (some 6 GB with PyTorch; once)"
	@test -x $(PY) || python3 -m venv $(VENV)
	@$(PY) -m pip install --quiet "uv>=0.5"
	@$(VENV)/bin/uv pip install --quiet --compile-bytecode --python $(PY) --require-hashes -r requirements.lock
	@$(VENV)/bin/uv pip install --quiet --python $(PY) --no-deps --editable .
	@touch $@

demo: setup ## train a ViT on handwritten digits over four unequal ranks on this machine
	@$(VENV)/bin/heterotp run examples/demo.yaml --fresh

test: setup ## run every test, on a real API server and a kind cluster that it starts and stops
	@tools/test.sh

test-fast: setup ## run unit and distributed tests, which need no cluster; tests of the chart only if helm is built
	@tools/test.sh fast

test-bare: ## run `make demo` and `make test` in a fresh clone with empty caches; print the time of each step
	@tools/test-bare.sh

test-kueue: setup ## run the tests with Kueue's own controller, which it builds, on a kind cluster that it starts and stops
	@tools/test-kueue.sh

test-gangs: setup ## run the tests with Volcano's and the coscheduling plugin's own programs, which it builds
	@tools/test-gangs.sh

fuzz: setup ## run the tests of random input with EXAMPLES=10000 other examples each; those on an API server, too
	@tools/cluster/ensure.sh programs
	@HETEROTP_FUZZ_EXAMPLES=$(EXAMPLES) $(PY) -m pytest -q --timeout 0 --hypothesis-profile=search $(FUZZ)

chaos: setup ## random faults by a seed: MINUTES=5 SEED=1 WHERE=api (or kind: the cluster of cluster-up)
	@tools/chaos.sh $(or $(WHERE),api) --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1)

check: setup ## check format, lint, types, import rules, generated files, scripts, advisories on packages
	@tools/check.sh

format: setup ## format the code
	@$(VENV)/bin/ruff format -q .
	@$(VENV)/bin/ruff check -q --fix .

generate: setup ## write all generated files: CRDs, boards, rules, the chart's tables, pages of the docs
	@$(PY) -m heterotp_api.generate $(CRDS)
	@$(PY) -m heterotp_dashboards.generate .
	@PYTHONPATH=tools $(PY) -m reference docs/reference

docs: setup ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

lock: setup ## pin all dependencies anew, those of the images too
	@$(VENV)/bin/uv pip compile -q pyproject.toml --extra operator --extra trainer --extra hf --extra cli --extra dev \
	  --universal --python-version 3.11 --generate-hashes --no-header -o requirements.lock
	@tools/image-locks.sh

release: setup ## all that a release publishes, made and tried in dist/; nothing is published. IMAGES=no: without images
	@$(CLUSTER)/ensure.sh programs
	@$(PY) tools/release.py $(or $(IMAGES),yes)

images: ## build the operator's and the trainer's image; SBOMs of these and the other two in dist/sbom
	@$(CLUSTER)/build-images.sh

cluster-up: ## make a kind cluster: one control plane, two workers with labels of unlike accelerators
	@$(CLUSTER)/ensure.sh kind

cluster-load: images ## load the images into the nodes of the cluster
	@$(CLUSTER)/load-images.sh

cluster-down: ## delete the cluster and stop the Docker that was started for it
	@$(CLUSTER)/kind-down.sh
	@$(CLUSTER)/dockerd.sh stop
