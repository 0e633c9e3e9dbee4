# Every target sets up what it needs. PYTHON names the interpreter (3.11 or later) .venv is made with.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Older releases of the dependencies, each laid over .venv for the tests marked `wire`.
LINES := oldest protobuf-6
LAID := $(LINES:%=.cache/%/.ready)

# In any Python: exits with a line if it is too old to work here.
NEEDED := import sys; v = sys.version_info; v < (3, 11) and \
	sys.exit("needs Python 3.11 or later, this is %d.%d.%d" % tuple(v[:3]))
VERSION := import sys; print(sys.version_info[:2])

.PHONY: setup demo test test-lines browser lint bench differential mutants attack damage power stress fuzz conformance site dist test-cluster
.DELETE_ON_ERROR:

# Tests wait more than they compute.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))

# What is compiled is kept, whatever the environment says: the suite starts hundreds of Pythons.
export PYTHONDONTWRITEBYTECODE :=

# Where all tests marked `wire` are: collecting the others would take longer than running these.
WIRE := tests/plugin/typed tests/podresources tests/protos

# Each has a browser of its own.
BROWSERS ?= $(shell nproc)

# What the whole suite covers, branches and processes of their own included; a part of it may less.
FLOOR = $(if $(ARGS),,--cov-fail-under=95)

# A .venv whose interpreter is gone or too old is none.
ifneq ($(shell (test -x $(BIN)/python && $(BIN)/python -c '$(NEEDED)') 2>&1 && echo fits),fits)
.PHONY: $(READY)
endif

setup: $(READY)
	@:

demo: $(READY)
	@$(BIN)/python -m tools.demo $(ARGS)

# The whole suite comes last: its closing line is the last line.
test: test-lines
	WIRE_LINE=dev $(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report=term $(FLOOR) $(ARGS)

# Not `test-%`: its tests also run in `make test`, without the real peer.
test-cluster: $(READY)
	@$(BIN)/python -m tools.cluster.build
	DEVICEMANAGER_CLUSTER_BINARIES=$(CURDIR)/.cache/cluster/bin \
		$(BIN)/python -m pytest tests/cluster -p no:cacheprovider $(ARGS)

test-lines: $(LINES:%=test-%)

test-%: .cache/%/.ready
	WIRE_LINE=$* PYTHONPATH=$(CURDIR)/.cache/$* $(BIN)/python -m pytest -q -n $(WORKERS) -m wire $(WIRE)

# Not in .venv, so that `make test` is the same with and without the driver.
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

mutants: $(READY)
	@$(BIN)/python -m tools.mutants $(ARGS)

attack: $(READY)
	@$(BIN)/python -m tools.attack $(ARGS)

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

# The first pip only fetches the pinned pip: the one that comes with Python may not know --group.
$(READY): pyproject.toml constraints/dev.txt
	@$(PYTHON) -c '$(NEEDED)'
	@echo "setting up .venv"
	@test "`$(BIN)/python -c '$(VERSION)' 2>&1`" = "`$(PYTHON) -c '$(VERSION)'`" || rm -rf .venv
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --upgrade pip
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --editable . --group dev
	@touch $@

.cache/docs/.ready: $(READY)
	@echo "setting up the site's generator"
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --group docs
	@mkdir -p $(@D)
	@touch $@

.cache/fuzz/.ready: $(READY)
	@echo "setting up the fuzzer"
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --group fuzz
	@mkdir -p $(@D)
	@touch $@

.cache/browser/.ready: $(READY)
	@echo "setting up the browser's driver"
	@rm -rf .cache/browser
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --target .cache/browser --group browser
	@touch $@

$(LAID): .cache/%/.ready: constraints/%.txt $(READY)
	@echo "setting up .cache/$*"
	@rm -rf .cache/$*
	@$(BIN)/python -m pip install --quiet --no-deps --target .cache/$* --requirement $<
	@touch $@
