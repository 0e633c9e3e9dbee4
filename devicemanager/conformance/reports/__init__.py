"""A report in other forms: files for machines, pages for people.

Whatever a plugin said is made harmless here, by the rules of each form.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.report import Report

__all__ = ["FORMS", "check_place", "write"]

FORMS: Mapping[str, str] = {
    "json": "all of it as JSON",
    "junit": "JUnit XML, for CI systems",
    "html": "one self-contained page",
    "markdown": "for a pull request",
    "badge": "an SVG badge with the profile",
}
"""Each form and what it is for; the module of that name has ``render``."""


def write(report: Report, form: str, path: Path) -> None:
    """Write the report in a form. Raises CheckError if there is no such form, or if the file
    cannot be written."""
    render = _render(form)
    try:
        path.write_text(render(report), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CheckError(f"cannot write the report {path}: {error.strerror}") from error


def check_place(form: str, path: Path) -> None:
    """Raises CheckError if ``write`` is going to: checks take minutes, which nobody wants to
    wait for in vain. Nothing is opened."""
    _render(form)
    place = path if os.access(path, os.F_OK) else path.parent
    if path.is_dir() or not os.access(place, os.W_OK):
        raise CheckError(f"cannot write the report {path}: give a file that may be written")


def _render(form: str) -> Callable[[Report], str]:
    if form not in FORMS:
        raise CheckError(f"there is no report {form!r}: choose from {', '.join(FORMS)}")
    try:
        render: Callable[[Report], str] = import_module(f"{__name__}.{form}").render
    except ModuleNotFoundError as error:
        raise CheckError(
            f"report {form} needs {error.name}: pip install 'kubelet-devicemanager[conformance]'"
        ) from None
    return render
