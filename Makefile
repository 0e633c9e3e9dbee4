# Each target sets up what it needs. PYTHON is the interpreter (3.11 or later) that creates .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Older releases of the dependencies. PYTHONPATH puts them before .venv for tests marked `wire`.
LINES := oldest protobuf-6
LAID := $(LINES:%=.cache/%/.ready)

# Runs in any Python: exits with a one-line error if its version is too old.
NEEDED := import sys; v = sys.version_info; v < (3, 11) and \
	sys.exit("needs Python 3.11 or later, this is %d.%d.%d" % tuple(v[:3]))
VERSION := import sys; print(sys.version_info[:2])

.PHONY: setup demo test test-lines coverage browser lint bench differential newest mutants attack planted damage power stress fuzz conformance site dist image test-cluster
.DELETE_ON_ERROR:

# More workers than CPUs, because most tests wait for sockets and processes.
WORKERS ?= $(shell echo $$((5 * $$(nproc) / 2)))
# Idle workers take tests from others. Otherwise the last worker runs minutes longer.
PARALLEL := -n $(WORKERS) --dist worksteal

# Always write bytecode: the suite starts hundreds of Python processes.
export PYTHONDONTWRITEBYTECODE :=

# The directories of all tests marked `wire`. Collecting the others would take longer than the run.
WIRE := tests/plugin/typed tests/podresources tests/protos

# One worker per CPU, because each worker starts a browser.
BROWSERS ?= $(shell nproc)

# Set .venv up again if its interpreter is missing or too old.
ifneq ($(shell (test -x $(BIN)/python && $(BIN)/python -c '$(NEEDED)') 2>&1 && echo fits),fits)
.PHONY: $(READY)
endif

setup: $(READY)
	@:

demo: $(READY)
	@$(BIN)/python -m tools.demo $(ARGS)

# The whole suite runs last, so that its summary is the last line.
test: test-lines
	WIRE_LINE=dev $(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# The minimum includes branches and child processes. Not part of `make test`, which must stay short:
# measuring slows the suite down.
coverage: $(READY)
	WIRE_LINE=dev $(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term --cov-fail-under=95

# Runs against a real API server. KUBERNETES=1.36.3 selects another release than the newest. In
# `make test`, the same tests use the fake API server. The explicit rule takes precedence over
# `test-%`.
test-cluster: $(READY)
	programs=`$(BIN)/python -m tools.cluster.build $(KUBERNETES:%=--kubernetes %)` && \
		DEVICEMANAGER_CLUSTER_BINARIES=$$programs \
		$(BIN)/python -m pytest tests/cluster -p no:cacheprovider $(ARGS)

test-lines: $(LINES:%=test-%)

test-%: .cache/%/.ready
	WIRE_LINE=$* PYTHONPATH=$(CURDIR)/.cache/$* $(BIN)/python -m pytest -q $(PARALLEL) -m wire $(WIRE)

# The driver is not in .venv, so that `make test` runs the same tests with and without it.
browser: .cache/browser/.ready
	PYTHONPATH=$(CURDIR)/.cache/browser $(BIN)/python -m pytest -n $(BROWSERS) tests/observe/web/page/browser $(ARGS)

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generate_protos --check
	$(BIN)/python -m tools.prose

bench: $(READY)
	@$(BIN)/python -m tools.bench $(ARGS)

differential: $(READY)
	@$(BIN)/python -m tools.differential $(ARGS)

newest: $(READY)
	@$(BIN)/python -m tools.differential --kubelet-version newest $(ARGS)

mutants: $(READY)
	@$(BIN)/python -m tools.mutants $(ARGS)

attack: $(READY)
	@$(BIN)/python -m tools.attack $(ARGS)

# Each attack and fuzz target must fail with its planted bug.
planted: $(READY)
	@$(BIN)/python -m pytest -q -n $$(nproc) tests/tools/test_planted.py
	@$(BIN)/python -m tools.attack --planted $(ARGS)

conformance: $(READY)
	@$(BIN)/python -m tools.conformance $(ARGS)

damage: $(READY)
	@$(BIN)/python -m tools.damage $(ARGS)

power: $(READY)
	@$(BIN)/python -m tools.power $(ARGS)

stress: $(READY)
	@$(BIN)/python -m tools.stress $(ARGS)

fuzz: .cache/fuzz/.ready
	@$(BIN)/python -m tools.fuzz $(ARGS)

site: .cache/docs/.ready
	@$(BIN)/python -m tools.site $(ARGS)

dist: $(READY)
	@$(BIN)/python -m tools.dist $(if $(RELEASE),--version $(RELEASE))

image: $(READY)
	@$(BIN)/python -m tools.image $(ARGS)

# Install the pinned pip first: the pip of an old Python may not have the option --group.
$(READY): pyproject.toml constraints/dev.txt
	@$(PYTHON) -c '$(NEEDED)'
	@echo "setting up .venv"
	@test "`$(BIN)/python -c '$(VERSION)' 2>&1`" = "`$(PYTHON) -c '$(VERSION)'`" || rm -rf .venv
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --upgrade pip
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --editable . --group dev
	@touch $@

.cache/docs/.ready: $(READY)
	@echo "setting up the site generator"
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --group docs
	@mkdir -p $(@D)
	@touch $@

.cache/fuzz/.ready: $(READY)
	@echo "setting up the fuzzer"
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --group fuzz
	@mkdir -p $(@D)
	@touch $@

.cache/browser/.ready: $(READY)
	@echo "setting up the browser driver"
	@rm -rf .cache/browser
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --target .cache/browser --group browser
	@touch $@

$(LAID): .cache/%/.ready: constraints/%.txt $(READY)
	@echo "setting up .cache/$*"
	@rm -rf .cache/$*
	@$(BIN)/python -m pip install --quiet --no-deps --target .cache/$* --requirement $<
	@touch $@
