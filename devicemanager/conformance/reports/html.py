"""Render a report as one HTML page that loads no other files."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, StrictUndefined

from devicemanager.conformance.report import Report
from devicemanager.conformance.reports.folding import fold
from devicemanager.conformance.reports.text import timeline_lines
from devicemanager.core.printable import printable

__all__ = ["render"]

_TEMPLATE = Path(__file__).with_name("page.html.j2")


def render(report: Report) -> str:
    """Return the HTML page of a report. It contains no script, and all texts from the plugin are
    escaped."""
    # StrictUndefined: a typo in the template must be an error, not an empty cell.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_harmless
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        report=report, families=list(report.by_family()), fold=fold, fold_timeline=timeline_lines
    )


def _harmless(value: object) -> object:
    """Escape control characters in a text for the template, which itself escapes markup. Return
    other values unchanged."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
