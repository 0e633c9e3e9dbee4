# Every target sets up what it needs. PYTHON names the interpreter (3.11 or later) .venv is made with.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Older releases of the dependencies, each laid over .venv for the tests marked `wire`.
LINES := oldest protobuf-6
LAID := $(LINES:%=.cache/%/.ready)

.PHONY: setup demo test test-lines lint bench
.DELETE_ON_ERROR:

setup: $(READY)
	@:

demo: $(READY)
	@$(BIN)/devicemanager demo $(ARGS)

# The whole suite comes last: its closing line is the last line.
test: test-lines
	WIRE_LINE=dev $(BIN)/python -m pytest -n logical --cov --cov-report=term $(ARGS)

test-lines: $(LINES:%=test-%)

test-%: .cache/%/.ready
	WIRE_LINE=$* PYTHONPATH=$(CURDIR)/.cache/$* $(BIN)/python -m pytest -q -n logical -m wire

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generate_protos --check

bench: $(READY)
	@$(BIN)/python -m tools.bench $(ARGS)

# The first pip only fetches the pinned pip: the one that comes with Python may not know --group.
$(READY): pyproject.toml constraints/dev.txt
	@echo "setting up .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --upgrade pip
	@$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --editable . --group dev
	@touch $@

$(LAID): .cache/%/.ready: constraints/%.txt $(READY)
	@echo "setting up .cache/$*"
	@rm -rf .cache/$*
	@$(BIN)/python -m pip install --quiet --no-deps --target .cache/$* --requirement $<
	@touch $@
