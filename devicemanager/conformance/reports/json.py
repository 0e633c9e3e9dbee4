"""The report as JSON."""

from __future__ import annotations

from json import dumps

from devicemanager.conformance.report import Report

__all__ = ["render"]


def render(report: Report) -> str:
    """The whole report; its shape stands in docs/json.md."""
    return dumps(report.data(), indent=2) + "\n"
