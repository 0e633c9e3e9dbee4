"""The report as Markdown, short enough for a pull request."""

from __future__ import annotations

import re
from html import escape

from devicemanager.conformance.model import Verdict
from devicemanager.conformance.outcomes import Outcome
from devicemanager.conformance.report import Report
from devicemanager.core.printable import printable

__all__ = ["render"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@$-])")
_TOLD = (Outcome.ERROR, Outcome.FAIL, Outcome.WARN, Outcome.WAIVED)


def render(report: Report) -> str:
    """A summary, a table of what was found, and each failure with its reason."""
    name = "none" if report.profile is None else report.profile.value
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in report.counts.items())
    lines = [
        f"## Device plugin conformance: {name}",
        "",
        f"{_escaped(' '.join(report.resources))}: {counts} in {report.seconds:.0f} s, "
        f"kubelet {report.kubelet_version}, seed {report.seed}",
        "",
    ]
    told = report.of(*_TOLD)
    if told:
        lines += ["| check | outcome | seen |", "|---|---|---|"]
        lines += [_row(verdict) for verdict in told]
    for verdict in report.of(Outcome.ERROR, Outcome.FAIL):
        lines += ["", *_section(verdict)]
    return "\n".join(lines) + "\n"


def _row(verdict: Verdict) -> str:
    check = verdict.check
    seen = _escaped(verdict.seen)
    return f"| {check.id} {_escaped(check.title)} | {verdict.outcome.value} | {seen} |"


def _section(verdict: Verdict) -> list[str]:
    check = verdict.check
    return [
        f"### {check.id} {_escaped(check.title)}",
        "",
        f"- seen: {_escaped(verdict.seen)}",
        f"- expected: {_escaped(check.expects)}",
        f"- in production: {_escaped(check.production)}",
        *(f"- <{link}>" for link in check.links),
        f"- again: {_escaped(verdict.reproduce)}",
    ]


def _escaped(text: str) -> str:
    """On one line, with nothing that Markdown or HTML would obey."""
    return _SPECIAL.sub(r"\\\1", escape(printable(" ".join(text.split())), quote=False))
