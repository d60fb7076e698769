# One command for each thing that one does with the project. On a fresh machine every target first makes .venv, with the
# newest Python that it finds and the pinned tools; after that only when something has changed that they are made of.

PYTHON ?=
PYTEST_ARGS ?=
KAFKA_ARGS ?=
BENCH_ARGS ?=
SEEDS ?= 1000
MINUTES ?= 10
NODES ?= 1
SEED ?= 0
KINDS ?=
CHAOS_ARGS ?=
ORACLE_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(RUN)/python -m pip --quiet --disable-pip-version-check --no-input
PYTHONS := $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo kafka kafka-ready test test-long lint format types sim chaos oracle bench bench-peers bench-more bench-local bench-state clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## run the main job on the embedded log, kill its processes, check the result
	@$(RUN)/tidegate demo

kafka: kafka-ready ## run a Kafka for development until Ctrl-C (KAFKA_ARGS='--topic orders:4')
	@$(RUN)/tidegate dev-kafka $(KAFKA_ARGS)

# Java, Maven and Kafka's jars: installed and fetched where they are missing, or one line that says what to install.
kafka-ready: $(READY)
	@$(RUN)/python -m tidegate.deploy.dev_kafka

test: lint types kafka-ready ## everything that must pass before a change is taken (PYTEST_ARGS=...)
	@$(RUN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-long: kafka-ready ## the slow tests: processes that are started and killed (PYTEST_ARGS=...)
	@$(RUN)/python -m pytest -m slow $(PYTEST_ARGS)

lint: $(READY) ## style, bans, format, layers
	@$(RUN)/ruff check --quiet --output-format concise .
	@$(RUN)/ruff format --check --quiet .
	@$(RUN)/lint-imports --no-logo

format: $(READY) ## rewrite what `make lint` can mend by itself
	@$(RUN)/ruff check --quiet --fix .
	@$(RUN)/ruff format --quiet .

types: $(READY) ## mypy, strict
	@$(RUN)/mypy

sim: $(READY) ## crash schedules in the simulated world, one for each seed (SEEDS=1000)
	@$(RUN)/tidegate-sim --seeds $(SEEDS) --jobs 0

chaos: kafka-ready ## kill and stop all there is of a running job on Kafka (MINUTES=10 NODES=1|3 SEED=... KINDS=...)
	@$(RUN)/python -m tests.chaos --minutes $(MINUTES) --nodes $(NODES) --seed $(SEED) --kinds "$(KINDS)" $(CHAOS_ARGS)

oracle: kafka-ready ## run the same windows and joins on Apache Flink and compare the rows (ORACLE_ARGS=...)
	@$(RUN)/python -m benchmarks.oracle $(ORACLE_ARGS)

bench-local: $(READY) ## measure throughput and checkpoint pauses on the embedded log (BENCH_ARGS=...)
	@$(RUN)/python benchmarks/run.py $(BENCH_ARGS)

bench: kafka-ready ## measure throughput from Kafka to Kafka, beside a bare loop (BENCH_ARGS=...)
	@$(RUN)/python -m benchmarks.suite $(BENCH_ARGS)

bench-peers: kafka-ready ## the same beside Flink, PyFlink, Quix Streams and Bytewax, in turns (BENCH_ARGS=...)
	@$(RUN)/python -m benchmarks.suite --systems tidegate bare-loop flink pyflink quix bytewax $(BENCH_ARGS)

bench-more: kafka-ready ## measure latency, pauses, recovery, costs of a record, memory of a key
	@set -e; for measure in latency pauses recovery sweeps memory; do $(RUN)/python -m benchmarks.suite.$$measure; done

bench-state: $(READY) ## measure the pause at a barrier and the state backends beside each other (BENCH_ARGS=...)
	@$(RUN)/python benchmarks/state_pause.py $(BENCH_ARGS)
	@$(RUN)/python benchmarks/state_backends.py

clean: ## remove everything that these commands made, .venv too
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist demo-data
	@rm -rf src/*.egg-info src/tidegate/_native.*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate counts only if it starts: version managers put names on the path that end in an error.
$(READY): pyproject.toml constraints.txt setup.py src/tidegate/_native.c
	@set -eu; found=; without_venv=; \
	for candidate in $(PYTHONS); do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  "$$candidate" -c 'import ensurepip, venv' 2>/dev/null || { without_venv="$$candidate"; continue; }; \
	  found="$$candidate"; break; \
	done; \
	if [ -z "$$found" ] && [ -n "$$without_venv" ]; then \
	  echo "$$without_venv cannot make a virtual environment: install its venv package (Debian, Ubuntu: python3-venv)." >&2; exit 1; \
	fi; \
	if [ -z "$$found" ]; then \
	  echo "Tidegate needs Python 3.11 or newer and found none among: $(PYTHONS). Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; \
	fi; \
	if ! $(RUN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "making $(VENV) with $$found ($$("$$found" -V))"; "$$found" -m venv --clear $(VENV); \
	fi; \
	$(PIP) install --editable '.[dev]' --constraint constraints.txt
	@touch $@
