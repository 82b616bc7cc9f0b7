# Two commands for a fresh machine with Python (3.11 or newer), pip and make: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
SEEDS ?= 1
STEPS ?= 6000
WORKERS ?= 2

.PHONY: demo test lint format system pins install clean help

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED)  ## create the virtual environment with the pinned packages

$(INSTALLED): requirements/pinned.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cta needs Python 3.11 or newer; set PYTHON=python3.x"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/pinned.txt && \
	  uv pip install --quiet --python $(BIN)/python --no-deps -e . ; \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/pinned.txt && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e . ; \
	fi
	@touch $@

demo: $(INSTALLED)  ## cut data, two agents, held-out pairs, analogies and a page about it, on the embedded desk (SEEDS=1 STEPS=6000)
	$(BIN)/cta demo --seeds $(SEEDS) --steps $(STEPS)

test: $(INSTALLED)  ## the whole test suite (WORKERS=2)
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(INSTALLED)  ## ruff and pyright
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/pyright

format: $(INSTALLED)  ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

system:  ## optional system libraries (Debian, Ubuntu): OpenGL for rendering, Chromium for reports
	apt-get update
	apt-get install -y --no-install-recommends libegl1 libgl1 libgl1-mesa-dri libosmesa6 chromium

pins:  ## resolve the pinned set anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header --extra dev --extra report --extra minari -c requirements/constraints.txt pyproject.toml -o requirements/pinned.txt

clean:  ## remove what can be made again
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
