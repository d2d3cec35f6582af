# Every target sets up what it needs. PYTHON=... chooses the interpreter of the new .venv.

SHELL := /bin/bash
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
IN := .venv/bin
INSTALLED := .venv/installed
FOR_DEMO := .venv/for-demo
COMPILED := .venv/compiled

# Python keeps what it has compiled: Spark starts it often.
unexport PYTHONDONTWRITEBYTECODE

# Files go to workers, the longest first (tests/scheduling.py). Five workers, which mostly
# wait, keep two cores busy; three of them have a session of Spark: 2 to 3 GB each.
WORKERS := 5
SPREAD = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# What starts with it has a folder for temporary files of its own, in memory if it can be.
IN_MEMORY = place=$$(mktemp -d "$$($(IN)/python -m integration.cluster.memory)/tXXXXX") \
	&& chmod 755 "$$place" && trap 'rm -rf "$$place"' EXIT && TMPDIR=$$place

.PHONY: setup servers archives jars programs engine demo test test-cost test-fast test-all \
    matrix simulate mutants chaos integration check format bench stored dashboard docs pictures \
    wheel release-check sanitize clean

setup: $(INSTALLED)
	@$(IN)/python -m integration.cluster.java >/dev/null

# The Spark of tests and demo: pip is told beside the package, or it downloads newer ones, too.
SPARK_OF_TESTS := $(shell sed -n 's/.*"\(pyspark==[^"]*\)".*/\1/p' pyproject.toml)
BUILT_FROM := pyproject.toml setup.py kafka_tx/stored.py $(wildcard kafka_tx/native/src/*)
NO_COMPILER := No C compiler: kafka_tx will read and write in Python, which is slower. \
	On Debian and Ubuntu: apt-get install gcc libc6-dev python3-dev

# An environment with nothing in it yet: enough for what builds. Its pip is made last, so
# that one that was interrupted is made again.
$(IN)/pip:
	@if [ -z "$(PYTHON)" ]; then \
	    echo "Python 3.11 or newer is missing; on Debian 12 and later, or Ubuntu 24.04:" \
	        "apt-get install python3 python3-venv. PYTHON=/path/to/python chooses one."; \
	    exit 1; \
	fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "$(PYTHON) is $$($(PYTHON) -V); kafka_tx needs Python 3.11 or newer." \
	        "PYTHON=/path/to/python chooses another."; \
	    exit 1; \
	}
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu:" \
	        "apt-get install python3-venv"; \
	    exit 1; \
	}
	@$(PYTHON) -m venv --clear .venv

# What the demo needs, and no more: PySpark is nearly all of it.
$(FOR_DEMO): $(BUILT_FROM) | $(IN)/pip
	@$(IN)/python -m integration.cluster.java
	@command -v $${CC:-cc} >/dev/null || echo "$(NO_COMPILER)"
	@echo "Installing kafka_tx with PySpark (some 450 MB) and 25 small packages into .venv:"
	$(IN)/python -m pip install --no-compile --editable . $(SPARK_OF_TESTS)
	@$(IN)/kafka-tx demo --help >/dev/null  # compiles the modules that the demo imports
	@touch $@

$(INSTALLED): $(BUILT_FROM) | $(IN)/pip
	@$(IN)/python -m integration.cluster.java
	@command -v $${CC:-cc} >/dev/null || echo "$(NO_COMPILER)"
	@echo "Installing what the tests need into .venv; PySpark (some 450 MB) is most of it"
	@set -o pipefail; $(IN)/python -m pip install --no-compile \
	    --editable '.[postgresql,test,docs,dev]' \
	    --constraint <(echo '$(SPARK_OF_TESTS)') \
	    | grep -E --line-buffered '^ *(Downloading|Building|Installing|Successfully)'
	@touch $(FOR_DEMO) $@

# The tests and what they import, compiled once; else each of the workers would do it.
$(COMPILED): $(INSTALLED)
	-@$(IN)/python -m pytest tests integration --collect-only -q >/dev/null
	@touch $@

# What the tests start: jars of Kafka, ZooKeeper and Spark's connector, PostgreSQL,
# Prometheus and Chromium, fetched once; and archives of classes, with which a JVM starts in
# half the time, and without which it starts too. What computes runs beside what is fetched.
servers: setup
	@case "$(CURDIR)" in *" "*) \
	    echo "Spark's tests need a folder without a blank in its path: '$(CURDIR)' has one."; \
	    exit 1;; \
	esac
	@echo "Fetching and preparing the servers of the tests into .cache, once:"
	@$(MAKE) --no-print-directory -j4 archives jars programs $(COMPILED)

archives:
	-@$(IN)/python -m integration.cluster.rehearsals

jars:
	@$(IN)/python -m integration.cluster.jars

programs:
	@$(IN)/python -m integration.cluster.debian

# What runs containers: an engine that is there, or Podman with images built here.
engine: servers
	$(IN)/python -m integration.containers.prepare

demo: $(FOR_DEMO)
	$(IN)/kafka-tx demo

test: servers
	@$(IN_MEMORY) $(IN)/python -m pytest tests integration $(SPREAD)

# What `make test` costs, by file, fixture and server. RECORD=1 writes the order of files.
test-cost: servers
	@$(IN_MEMORY) $(IN)/python -m pytest -p tests.cost $(if $(RECORD),--record) tests integration $(SPREAD)

# What needs no server and no Spark, on two cores: for the moment between two edits.
test-fast: setup $(COMPILED)
	@$(IN_MEMORY) $(IN)/python -m pytest tests $(SPREAD)

# Everything: all kills with all stores, long simulations, examples as processes, chaos.
# It waits more than it computes: hence one worker more.
test-all: WORKERS := 6
test-all: servers
	@$(IN_MEMORY) KAFKA_TX_ALL=1 KAFKA_TX_SIMULATED_STEPS=10000 \
	    $(IN)/python -m pytest tests integration $(SPREAD)
	$(MAKE) --no-print-directory chaos

# The tests that matter on every line of Spark, each in an environment of its own, and jobs
# that move from one to another. SPARK=4.0.5 runs one of them; SMOKE=1 only the shortest
# part of those that `make test` does not run, side by side.
matrix: servers
ifdef SMOKE
	set -o pipefail; $(IN)/nox --list-sessions --json -s smoke | $(IN)/python -c 'import json, sys; \
	    print(*(s["session"] for s in json.load(sys.stdin)), sep="\0", end="")' \
	    | xargs -0 -n 1 -P 0 $(IN)/nox -s
else
	$(IN)/nox -s $(if $(SPARK),"spark($(SPARK))",spark moved)
endif

# The source's planner, and people around all doors, for a million steps each; `make test`
# takes five thousand at least, and as many more as it takes to see all that must happen.
simulate: setup
	KAFKA_TX_ALL=1 KAFKA_TX_SIMULATED_STEPS=1000000 $(IN)/python -m pytest -s \
	    tests/properties/test_source.py tests/properties/test_people.py

# How many of some hundred mutants of the code `make test-fast` notices; within an hour.
MUTANTS := 320
mutants: setup
	$(IN)/python -m tests.mutants --mutants $(MUTANTS)

# Two runs of four minutes that break everything around all doors, two that do what people
# do and what errors say, and count; then one each with tables of a lakehouse.
chaos: servers
	for people in "" --people; do for seed in 1 2; do \
	    $(IN)/python -m integration.chaos $$people --seed $$seed --minutes 4 || exit 1; \
	done; done
	for people in "" --people; do \
	    $(IN)/python -m integration.chaos $$people --minutes 4 --within 120 --jobs delta \
	        || exit 1; \
	done

integration: engine
	KAFKA_TX_CLUSTER=containers $(IN)/python -m pytest integration

check: setup
	$(IN)/ruff format --check .
	$(IN)/ruff check .
	$(IN)/mypy
	$(IN)/lint-imports

format: setup
	$(IN)/ruff format .
	$(IN)/ruff check --fix .

# make bench BENCH=read runs one benchmark; without BENCH all of them.
bench: servers
	$(IN)/python -m benchmarks $(BENCH)

stored: setup
	$(IN)/python -m integration.stored

dashboard: setup
	$(IN)/python -m grafana.dashboard kafka_tx/metrics/dashboard.json

# The documentation as a site with a search, which needs nothing from outside. Sphinx is
# given the whole repository, so that links between pages are those of the repository.
docs: setup
	$(IN)/python -m sphinx -q -W --keep-going -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

# The drawings of the documentation, from docs/draw.py, Chromium's view of the status page, and
# what a Prometheus that watches two jobs for two minutes answers to the dashboard.
pictures: servers
	$(IN)/python docs/draw.py
	$(IN)/python -m tests.metrics.status_pictures docs/pictures
	PYSPARK_PYTHON=$(CURDIR)/$(IN)/python $(IN)/python -m integration.tools.dashboard_picture docs/pictures

# A wheel for this platform, which holds the native reader and serves Python 3.11 and
# every later one.
WHEELS := dist
WHEEL_OF := .
wheel: | $(IN)/pip
	$(IN)/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEELS) $(WHEEL_OF)

# Wheel and sdist in dist/, as they are published: the wheel for every Linux with glibc
# 2.28 or newer, the sdist also where there is no compiler. Both run a job beside the
# oldest and the newest PySpark; hashes and a bill of materials (SBOM) lie beside them.
release-check: setup
	$(IN)/python -m integration.tools.release

# The native reader under AddressSanitizer, UBSan and valgrind, with its fuzz tests.
sanitize: setup
	$(IN)/python -m tests.native.sanitize

clean:
	rm -rf .venv .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache \
	    .import_linter_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
