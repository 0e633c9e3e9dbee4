"""Planted bugs in the handling of texts from plugins and users."""

from __future__ import annotations

from tools.harness.planted import planted, replace


@planted("texts are not escaped")
def _escape() -> None:
    from devicemanager.core import printable

    replace(printable.printable, lambda text, longest=0: text)


@planted("names are not quoted")
def _names() -> None:
    from devicemanager.core import messages, printable

    # Rejections quote names as Go does, and events escape all texts.
    replace(messages.go_quoted, lambda text: f'"{text}"')
    replace(printable.printable, lambda text, longest=0: text)


@planted("output is not escaped")
def _clean() -> None:
    from devicemanager.cli import output
    from devicemanager.core import printable

    replace(printable.printable, lambda text, longest=0: text)
    replace(output.clean, lambda text: text)


@planted("texts are not cut")
def _cut() -> None:
    from devicemanager.core import printable

    replace(printable.printable, lambda text, longest=0: text * 8)


@planted("values are quoted as they are")
def _quoting() -> None:
    from devicemanager.objects.manifests import errors

    for function in (errors.shown, errors.plain):
        replace(function, lambda value: str(value))
