"""Pytest plugin for the run of the suite that measures coverage and durations.

It writes the durations of passed tests to the file that the environment variable MUTANTS_DURATIONS
names. It also attributes the lines that child processes run to the test that started them.
"""

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
_not_passed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _not_passed.add(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Make child processes record their coverage under the test's name.

    Stop the run if an earlier test has replaced the trace function without restoring it: all later
    tests would have no coverage.
    """
    if sys.version_info < (3, 12) and sys.gettrace() is None:
        pytest.exit(f"coverage was switched off before {item.nodeid}", 3)
    if (config := os.environ.get(_CONFIG)) is not None:
        os.environ[_CONFIG] = _with_context(config, f"{item.nodeid}|process")


def _with_context(config: str, context: str) -> str:
    """Return the settings that ``coverage.patch`` passes to child processes, with the context
    added."""
    fields = json.loads(base64.b64decode(config)) | {"context": context}
    return base64.b64encode(json.dumps(fields).encode()).decode()


def pytest_sessionfinish() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        passed = {test: seconds for test, seconds in _seconds.items() if test not in _not_passed}
        Path(os.environ["MUTANTS_DURATIONS"]).write_text(json.dumps(passed))
