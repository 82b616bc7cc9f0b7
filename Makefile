# Two commands for a fresh machine with Python (3.11 or 3.12), pip and make: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
SMALL = $(VENV)/.small
INSTALLED = $(VENV)/.installed
# On a terminal uv shows the downloads.
QUIET = $(shell test -t 2 || echo --quiet)
SEEDS ?= 6
STEPS ?= 6000
WORKERS ?= 2

.PHONY: demo test docs lint format system pins install clean help

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED)  ## create the virtual environment with all pinned packages

# What trains and draws. The versions and hashes are the pinned ones.
$(SMALL): requirements/pinned.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || { echo "cta needs Python 3.11 or 3.12 (a simulator package has no wheels for others); set PYTHON=python3.12"; exit 1; }
	@echo "installing 1.1 GB of packages into $(VENV): one to five minutes, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5'
	@$(BIN)/uv pip install $(QUIET) --python $(BIN)/python -c requirements/pinned.txt -e '.[report]'
	@touch $@

# And what tests, checks, builds the site and starts clusters; `cta theory` and `cta bench`.
$(INSTALLED): $(SMALL) packages/theory/pyproject.toml packages/bench/pyproject.toml
	@echo "installing 0.6 GB of packages for tests, checks, documentation and Ray"
	@$(BIN)/uv pip install $(QUIET) --python $(BIN)/python --require-hashes -r requirements/pinned.txt
	@$(BIN)/uv pip install $(QUIET) --python $(BIN)/python --no-deps -e packages/theory -e packages/bench
	@touch $@

demo: $(SMALL)  ## cut pairs out of data, train CTA and HIQL, ask for the pairs, a page about it (SEEDS=6 STEPS=6000)
	$(BIN)/cta demo --seeds $(SEEDS) --steps $(STEPS)

test: $(INSTALLED)  ## the whole test suite (WORKERS=2)
	$(BIN)/python -m pytest -n $(WORKERS)

docs: $(INSTALLED)  ## the documentation as a site, in build/site, with the tutorial executed
	@mkdir -p build
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site: build/site/index.html"

lint: $(INSTALLED)  ## ruff and pyright
	$(BIN)/ruff check src packages tests examples
	$(BIN)/ruff format --check src packages tests examples
	$(BIN)/pyright

format: $(INSTALLED)  ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix src packages tests examples
	$(BIN)/ruff format src packages tests examples

system:  ## optional system libraries (Debian, Ubuntu): OpenGL for rendering, Chromium for reports
	apt-get update
	apt-get install -y --no-install-recommends libegl1 libgl1 libgl1-mesa-dri libosmesa6 chromium

pins: $(INSTALLED)  ## resolve the pinned set anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header --extra dev --extra report --extra minari --extra lerobot --extra onnx --extra cluster --extra docs -c requirements/constraints.txt pyproject.toml -o requirements/pinned.txt

clean:  ## remove what can be made again
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
