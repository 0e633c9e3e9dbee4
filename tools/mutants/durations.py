"""A pytest plugin for the measuring run. How long each test that passed took goes into the
file that MUTANTS_DURATIONS names; what a process runs that a test starts is the test's."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

_CONFIG = "COVERAGE_PROCESS_CONFIG"
_seconds: defaultdict[str, float] = defaultdict(float)
_others: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _others.add(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Processes record under the test's name, too. A test that replaced the trace function
    and did not put it back would leave all later ones without a record."""
    if sys.version_info < (3, 12) and sys.gettrace() is None:
        pytest.exit(f"before {item.nodeid} something has switched the measuring off", 3)
    if (config := os.environ.get(_CONFIG)) is not None:
        os.environ[_CONFIG] = _with_context(config, f"{item.nodeid}|process")


def _with_context(config: str, context: str) -> str:
    """coverage's own settings for a process, as ``coverage.patch`` hands them down."""
    fields = json.loads(base64.b64decode(config)) | {"context": context}
    return base64.b64encode(json.dumps(fields).encode()).decode()


def pytest_sessionfinish() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        passed = {test: seconds for test, seconds in _seconds.items() if test not in _others}
        Path(os.environ["MUTANTS_DURATIONS"]).write_text(json.dumps(passed))
