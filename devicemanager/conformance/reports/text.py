"""Render a report in formats that need no library: plain text, Markdown, JSON and the SVG badge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from json import dumps

from devicemanager.conformance.outcomes import RESTART, Line, Outcome, Profile
from devicemanager.conformance.report import Cause, Report, Verdict
from devicemanager.conformance.reports.folding import fold
from devicemanager.core.printable import counted, printable

__all__ = [
    "explain",
    "name_cause",
    "render_badge",
    "render_json",
    "render_markdown",
    "timeline_lines",
]

_SHOWN_RESTARTS = 2


def explain(verdict: Verdict) -> str:
    """Return a verdict as lines of text, with everything needed to understand it."""
    check = verdict.check
    lines = [
        f"{check.id} {verdict.outcome.value}: {verdict.seen}",
        f"  check:     {check.severity.value} {check.title}",
        f"  steps:     {check.does}",
        f"  expected:  {check.expects}",
        f"  on a node: {verdict.production}",
        *(f"  source:    {link}" for link in check.links),
    ]
    if verdict.reproduce:
        lines.append(f"  repeat:    {verdict.reproduce}")
    if verdict.timeline:
        lines.append("  timeline:")
        lines += [f"    {line}" for line in timeline_lines(verdict.timeline)]
    if verdict.output:
        lines.append("  output:")
        lines += [f"    | {line}" for line in fold(verdict.output)]
    return "\n".join(lines)


def timeline_lines(timeline: Sequence[Line]) -> Iterator[str]:
    """Iterate over a timeline as lines of text, with repeated lines folded. If the kubelet was
    restarted many times, only the last restarts are shown."""
    restarts = [place for place, line in enumerate(timeline) if line.text == RESTART]
    if len(restarts) > _SHOWN_RESTARTS:
        first, last = restarts[0], restarts[-_SHOWN_RESTARTS]
        # This part has no restart, so the recursion ends here.
        yield from timeline_lines(timeline[:first])
        count = len(restarts) - _SHOWN_RESTARTS
        yield f"{'':19} ({last - first} lines of {counted(count, 'earlier restart')})"
        timeline = timeline[last:]
    for line in fold(timeline, lambda line: f"{line.source} {line.text}"):
        if isinstance(line, str):
            yield f"{'':19} {line}"
        else:
            yield f"{line.time:8.3f} s {line.source:8} {line.text}"


def name_cause(number: int, cause: Cause) -> str:
    """Return a cause of failures as three lines of text. The first line begins with ``number``."""
    verdict = cause.verdict
    check = verdict.check
    where = f"     on a node: {verdict.production}"
    if cause.effects:
        where += f"; also fails: {_ids(cause.effects)}"
    if cause.skipped:
        where += f"; skipped for the same reason: {_ids(cause.skipped)}"
    return "\n".join(
        [
            f"{number:3}. {check.id} {cause.severity.value} {check.title}",
            f"     {verdict.seen}",
            where,
        ]
    )


def _ids(verdicts: Iterable[Verdict]) -> str:
    return " ".join(each.check.id for each in verdicts)


def render_json(report: Report) -> str:
    """Return a report as JSON text, as described in docs/json.md."""
    return dumps(report.data(), indent=2) + "\n"


# -- Markdown --------------------------------------------------------------------------

# Characters that can start a Markdown construct, including mentions and issue numbers.
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@$-])")
_IN_TABLE = (Outcome.ERROR, Outcome.FAIL, Outcome.WARN, Outcome.WAIVED)


def render_markdown(report: Report) -> str:
    """Return a report as Markdown: a summary, the causes of failures, a table of all problems, and
    a section per failure."""
    lines = [
        f"## {report.suite.heading}: {_escaped(report.profile_text)}",
        "",
        f"{_escaped(' '.join(report.resources))}: {report.summary}, "
        f"kubelet {report.kubelet_version}, seed {report.seed}",
        "",
    ]
    if report.causes:
        lines += ["Causes of the failures, the most severe first:", ""]
        lines += [f"1. {_cause(cause)}" for cause in report.causes]
        lines += [""]
    problems = report.of(*_IN_TABLE)
    if problems:
        lines += ["| check | outcome | seen |", "|---|---|---|"]
        lines += [_row(verdict) for verdict in problems]
    for verdict in report.of(Outcome.ERROR, Outcome.FAIL):
        lines += ["", *_section(verdict)]
    return "\n".join(lines) + "\n"


def _cause(cause: Cause) -> str:
    check = cause.verdict.check
    text = (
        f"**{check.id}** {cause.severity.value} {_escaped(check.title)}: "
        f"{_escaped(cause.verdict.seen)}"
    )
    if cause.effects:
        text += f" (also fails: {_ids(cause.effects)})"
    if cause.skipped:
        text += f" (skipped for the same reason: {_ids(cause.skipped)})"
    return text


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
        f"- on a node: {_escaped(verdict.production)}",
        *(f"- <{link}>" for link in check.links),
        f"- repeat: {_escaped(verdict.reproduce)}",
    ]


def _escaped(text: str) -> str:
    """Return a text on one line, escaped for Markdown and HTML."""
    # A line break would end the row of the table or the item of the list.
    return _SPECIAL.sub(r"\\\1", escape(printable(" ".join(text.split())), quote=False))


# -- the badge -------------------------------------------------------------------------

_COLOURS = {
    "failing": "#b3261e",
    "incomplete": "#5f6368",
    Profile.CORE.value: "#8a6d00",
    Profile.RESILIENT.value: "#2f6f3e",
    Profile.COMPLETE.value: "#14683a",
}
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{text}">
<title>{title}</title>
<rect width="90" height="20" fill="#444"/>
<rect x="90" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,Geneva,sans-serif" font-size="11">
<text x="6" y="14">{program}</text>
<text x="97" y="14">{name}</text>
</g>
</svg>
"""


def render_badge(report: Report) -> str:
    """Return an SVG image with the passed profile: ``core``, ``resilient`` or ``complete``.

    If the plugin passes no profile, the image says ``failing`` if a check of ``core`` failed, and
    ``incomplete`` otherwise. The title of the image contains ``Report.profile_text``, which has the
    reason. A browser shows the title as a tooltip.
    """
    name = _badge_name(report)
    right = 14 + 7 * len(name)  # a character is 7 pixels wide
    return _SVG.format(
        width=90 + right,
        right=right,
        colour=_COLOURS[name],
        name=name,
        program=report.suite.program,
        text=f"{report.suite.program}: {name}",
        title=escape(f"{report.suite.heading}: {report.profile_text}"),
    )


def _badge_name(report: Report) -> str:
    if report.profile is not None:
        return report.profile.value
    # Checks that were skipped or not selected can also be the reason why a run passes no profile.
    # This is not the plugin's fault.
    return "failing" if report.failed(Profile.CORE) else "incomplete"
