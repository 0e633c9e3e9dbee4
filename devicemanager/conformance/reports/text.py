"""Render a report in formats that need no library: plain text, Markdown, JSON and the SVG badge."""

from __future__ import annotations

import re
from html import escape
from json import dumps

from devicemanager.conformance.outcomes import Outcome, Profile
from devicemanager.conformance.report import Report, Verdict
from devicemanager.core.printable import printable

__all__ = ["explain", "render_badge", "render_json", "render_markdown"]


def explain(verdict: Verdict) -> str:
    """Return a verdict as lines of text, with everything needed to understand it."""
    check = verdict.check
    lines = [
        f"{check.id} {check.title}: {verdict.outcome.value}",
        f"  steps:     {check.does}",
        f"  expected:  {check.expects}",
        f"  seen:      {verdict.seen}",
        f"  on a node: {check.production}",
        *(f"  source:    {link}" for link in check.links),
    ]
    if verdict.reproduce:
        lines.append(f"  repeat:    {verdict.reproduce}")
    if verdict.timeline:
        lines.append("  timeline:")
        lines += [
            f"    {line.time:8.3f} s {line.source:8} {line.text}" for line in verdict.timeline
        ]
    if verdict.output:
        lines.append("  output of the plugin:")
        lines += [f"    | {line}" for line in verdict.output]
    return "\n".join(lines)


def render_json(report: Report) -> str:
    """Return a report as JSON text, as described in docs/json.md."""
    return dumps(report.data(), indent=2) + "\n"


# -- Markdown --------------------------------------------------------------------------

# Characters that can start a Markdown construct, including mentions and issue numbers.
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@$-])")
_IN_TABLE = (Outcome.ERROR, Outcome.FAIL, Outcome.WARN, Outcome.WAIVED)


def render_markdown(report: Report) -> str:
    """Return a report as Markdown: a summary, a table of all problems, and a section per
    failure."""
    name = "none" if report.profile is None else report.profile.value
    lines = [
        f"## Device plugin conformance: {name}",
        "",
        f"{_escaped(' '.join(report.resources))}: {report.summary}, "
        f"kubelet {report.kubelet_version}, seed {report.seed}",
        "",
    ]
    problems = report.of(*_IN_TABLE)
    if problems:
        lines += ["| check | outcome | seen |", "|---|---|---|"]
        lines += [_row(verdict) for verdict in problems]
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
        f"- on a node: {_escaped(check.production)}",
        *(f"- <{link}>" for link in check.links),
        f"- repeat: {_escaped(verdict.reproduce)}",
    ]


def _escaped(text: str) -> str:
    """Return a text on one line, escaped for Markdown and HTML."""
    return _SPECIAL.sub(r"\\\1", escape(printable(" ".join(text.split())), quote=False))


# -- the badge -------------------------------------------------------------------------

_COLOURS = {
    None: "#b3261e",
    Profile.CORE: "#8a6d00",
    Profile.RESILIENT: "#2f6f3e",
    Profile.COMPLETE: "#14683a",
}
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{text}">
<title>{text}</title>
<rect width="90" height="20" fill="#444"/>
<rect x="90" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,Geneva,sans-serif" font-size="11">
<text x="6" y="14">device plugin</text>
<text x="97" y="14">{name}</text>
</g>
</svg>
"""


def render_badge(report: Report) -> str:
    """Return an SVG image with the passed profile: ``core``, ``resilient``, ``complete``, or
    ``failing`` for none."""
    name = "failing" if report.profile is None else report.profile.value
    right = 14 + 7 * len(name)  # a character is 7 pixels wide
    return _SVG.format(
        width=90 + right,
        right=right,
        colour=_COLOURS[report.profile],
        name=name,
        text=f"device plugin: {name}",
    )
