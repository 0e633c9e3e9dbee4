"""Write a report in formats for programs, people and CI systems.

Everything that a plugin printed or sent is untrusted. Each format escapes such texts, so that they
cannot become markup, links or terminal sequences.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.report import Report
from devicemanager.conformance.reports import text

__all__ = ["FORMS", "check_place", "write"]

FORMS: Mapping[str, str] = {
    "json": "the whole report as JSON",
    "junit": "JUnit XML, for CI systems",
    "html": "one self-contained page",
    "markdown": "a summary for a pull request",
    "badge": "an SVG badge with the profile",
}
"""Purpose of each report format, by the format's name."""


def write(report: Report, form: str, path: Path) -> None:
    """Write a report to ``path`` in the format ``form``. Raises CheckError if the format is unknown
    or the file cannot be written."""
    render = _renderer(form)
    try:
        # A plugin can print lone surrogates, which UTF-8 cannot encode.
        path.write_text(render(report), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CheckError(f"cannot write report {path}: {error.strerror}") from error


def check_place(form: str, path: Path) -> None:
    """Raise CheckError if ``write`` would fail for this format and path. The file is not opened.

    Call it before the checks, because these take minutes.
    """
    _renderer(form)
    # An existing file is overwritten in place, so its directory need not be writable.
    place = path if os.access(path, os.F_OK) else path.parent
    if path.is_dir() or not os.access(place, os.W_OK):
        raise CheckError(
            f"cannot write report {path}: use a writable file in an existing directory"
        )


def _renderer(form: str) -> Callable[[Report], str]:
    try:
        match form:
            case "json":
                return text.render_json
            case "markdown":
                return text.render_markdown
            case "badge":
                return text.render_badge
            # These formats need libraries of the extra `conformance`, which may not be installed.
            case "junit":
                from devicemanager.conformance.reports import junit

                return junit.render
            case "html":
                from devicemanager.conformance.reports import html

                return html.render
    except ModuleNotFoundError as error:
        raise CheckError(
            f"report {form} needs {error.name}: pip install 'kubelet-devicemanager[conformance]'"
        ) from None
    raise CheckError(f"unknown report format {form!r}: use one of {', '.join(FORMS)}")
