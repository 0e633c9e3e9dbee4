"""The report as one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, StrictUndefined

from devicemanager.conformance.registry import FAMILIES
from devicemanager.conformance.report import Report
from devicemanager.core.printable import printable

__all__ = ["render"]

_TEMPLATE = Path(__file__).with_name("page.html.j2")


def render(report: Report) -> str:
    """The page. Everything a plugin said is escaped; the page has no script."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_harmless
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    families = [
        (heading, [each for each in report.verdicts if each.check.family == letter])
        for letter, (_, heading) in FAMILIES.items()
    ]
    return template.render(
        report=report, families=[(heading, found) for heading, found in families if found]
    )


def _harmless(value: object) -> object:
    """Control characters as escapes; markup is escaped by the template."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
