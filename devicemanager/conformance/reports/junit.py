"""Render a report as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from devicemanager.conformance.outcomes import Outcome
from devicemanager.conformance.report import Verdict

__all__ = ["render"]

_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, even if they are escaped."""


class _Report(Protocol):
    """Report of plugins or of clients."""

    def by_family(self) -> Iterator[tuple[str, list[Verdict]]]: ...


def render(report: _Report) -> str:
    """Return a report as JUnit XML with one test suite per family. A check with a warning is a
    passed test with output."""
    xml = JUnitXml("devicemanager check")
    # Reports of clients have no profile.
    profile = getattr(report, "profile_text", "")
    for heading, verdicts in report.by_family():
        suite = TestSuite(heading)
        if profile:
            suite.add_property("profile", _text(profile))
        suite.add_testcases([_case(verdict) for verdict in verdicts])
        xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]  # the library is only partly typed
    text: bytes = xml.tostring()  # type: ignore[no-untyped-call]
    return text.decode()


def _case(verdict: Verdict) -> TestCase:
    check = verdict.check
    case = TestCase(f"{check.id} {check.title}", f"conformance.{check.family}", verdict.seconds)
    match verdict.outcome:
        case Outcome.FAIL:
            case.result = [Failure(_text(verdict.seen), check.severity.value)]
        case Outcome.ERROR:
            case.result = [Error(_text(verdict.seen), "suite")]
        case Outcome.SKIP | Outcome.WAIVED:
            case.result = [Skipped(_text(verdict.seen))]
        case _ if verdict.seen:
            case.system_out = _text(verdict.seen)
    if verdict.outcome in (Outcome.FAIL, Outcome.ERROR):
        lines = [f"{line.time:9.3f} {line.source}: {line.text}" for line in verdict.timeline]
        case.system_out = _text("\n".join([f"expected: {check.expects}", *lines]))
        case.system_err = _text("\n".join(verdict.output))
    return case


def _text(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
