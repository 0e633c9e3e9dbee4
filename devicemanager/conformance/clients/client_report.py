"""Result of a run of the checks on a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from json import dumps
from pathlib import Path
from typing import Any

import attrs

from devicemanager.conformance.clients.client_under_test import ClientUnderTest
from devicemanager.conformance.outcomes import CheckError, Outcome, Severity
from devicemanager.conformance.report import Verdict, outcome_counts
from devicemanager.core.printable import printable

__all__ = ["CLIENT_FORMS", "SCHEMA", "ClientReport", "check_form", "write_client_report"]

SCHEMA = "devicemanager.check-client/v1"

CLIENT_FORMS = ("json", "junit", "markdown")
"""Formats in which ``write_client_report`` can write a report."""

_BAD = (Outcome.FAIL, Outcome.ERROR)


@attrs.frozen
class ClientReport:
    """Result of a run on a client: all verdicts, in the order of the checks."""

    client: ClientUnderTest
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def counts(self) -> dict[Outcome, int]:
        """Number of verdicts by outcome; outcomes without verdicts are omitted."""
        return outcome_counts(self.verdicts)

    @property
    def summary(self) -> str:
        """Text with counts and duration, such as ``pass 20, fail 2 in 73 s``."""
        counts = ", ".join(f"{outcome.value} {count}" for outcome, count in self.counts.items())
        return f"{counts} in {self.seconds:.0f} s"

    def by_family(self) -> Iterator[tuple[str, list[Verdict]]]:
        """Yield one pair: the title of the family of client checks, and all verdicts.

        A report on a plugin has the same method, and several families.
        """
        yield "PodResources clients", list(self.verdicts)

    def failed(self, *, should: bool = True) -> list[Verdict]:
        """Return the verdicts of the checks that have failed, or that the suite failed to run.

        ``should``: True to include checks of severity SHOULD, False for MUST only.
        """
        severities = {Severity.MUST, Severity.SHOULD} if should else {Severity.MUST}
        return [
            each
            for each in self.verdicts
            if each.outcome in _BAD and each.check.severity in severities
        ]

    def exit_status(self, *, should: bool = True) -> int:
        """Return the exit status: 2 if the suite failed to run a check, 1 if a check failed,
        otherwise 0.

        ``should``: True to include checks of severity SHOULD, False for MUST only.
        """
        failed = self.failed(should=should)
        if any(each.outcome is Outcome.ERROR for each in failed):
            return 2
        return 1 if failed else 0

    def data(self) -> dict[str, Any]:
        """Return the report as JSON data, as described in docs/json.md."""
        return {
            "schema": SCHEMA,
            "client": list(self.client.command),
            "metrics": self.client.metrics,
            "seconds": round(self.seconds, 3),
            "counts": {outcome.value: count for outcome, count in self.counts.items()},
            "checks": [verdict.data() for verdict in self.verdicts],
        }


def write_client_report(report: ClientReport, form: str, path: Path) -> None:
    """Write a report to ``path`` in one of ``CLIENT_FORMS``. Raises CheckError if the format is
    unknown or the file cannot be written."""
    text = _renderer(form)(report)
    try:
        # A client can print lone surrogates, which UTF-8 cannot encode.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CheckError(f"cannot write report {path}: {error.strerror}") from error


def check_form(form: str) -> None:
    """Raise CheckError if ``form`` is not one of ``CLIENT_FORMS``."""
    if form not in CLIENT_FORMS:
        raise CheckError(
            f"report format {form!r} is not available for clients: use one of "
            f"{', '.join(CLIENT_FORMS)}"
        )


def _renderer(form: str) -> Callable[[ClientReport], str]:
    check_form(form)
    return {"json": _json, "junit": _junit, "markdown": _markdown}[form]


def _json(report: ClientReport) -> str:
    return dumps(report.data(), indent=2) + "\n"


def _junit(report: ClientReport) -> str:
    try:
        from devicemanager.conformance.reports import junit
    except ModuleNotFoundError as error:
        raise CheckError(
            f"report junit needs {error.name}: pip install 'kubelet-devicemanager[conformance]'"
        ) from None
    return junit.render(report)


def _markdown(report: ClientReport) -> str:
    lines = [
        "## PodResources client conformance",
        "",
        report.summary,
        "",
        "| check | outcome | seen |",
        "|---|---|---|",
    ]
    for each in report.verdicts:
        title = f"{each.check.id} {each.check.title}"
        lines.append(f"| {title} | {each.outcome.value} | {_cell(each.seen)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return a client's text as Markdown code, so that it cannot become other markup."""
    plain = printable(" ".join(text.split())).replace("`", "'").replace("|", "/")
    return f"`{plain}`" if plain else ""
