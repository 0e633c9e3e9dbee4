"""A pytest plugin: how long each test that passed took, into the file that MUTANTS_DURATIONS
names."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

_seconds: defaultdict[str, float] = defaultdict(float)
_others: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _others.add(report.nodeid)


def pytest_sessionfinish() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        passed = {test: seconds for test, seconds in _seconds.items() if test not in _others}
        Path(os.environ["MUTANTS_DURATIONS"]).write_text(json.dumps(passed))
