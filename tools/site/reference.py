"""Generate reference pages from the code, at each build of the site."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
from sphinx.pycode import ModuleAnalyzer

from devicemanager.cli import whole_parser
from devicemanager.control import operations
from devicemanager.control.nodes import operations as nodes
from devicemanager.control.openapi import document
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.settings import Settings
from tools.api_page import PUBLIC, text_of_value

_WIDTH = "96"
"""Width of --help texts, in columns."""


def write(target: Path) -> list[str]:
    """Write all pages into ``target``/reference. Return their paths relative to ``target``."""
    indexed: set[object] = set()
    pages = {
        "settings": _settings(),
        "events": _events(),
        "commands": _commands(),
        "http": _http(document(operations.TABLE)),
        "http-nodes": _http(document(nodes.TABLE)),
        **{f"python-{name}": _python(name, what, indexed) for name, what in PUBLIC.items()},
    }
    (target / "reference").mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in pages.items():
        paths.append(f"reference/{name}.md")
        (target / paths[-1]).write_text(text)
    return paths


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


def _documented(owner: type) -> dict[str, str]:
    """Return the docstrings of the attributes of a class, by attribute name."""
    found = ModuleAnalyzer.for_module(owner.__module__).find_attr_docs()
    return {
        name: _cell(" ".join(text)) for (of, name), text in found.items() if of == owner.__name__
    }


def _settings() -> str:
    texts = _documented(Settings)
    rows = "\n".join(
        f"| `{field.name}` | {_default(field.default)} | {texts[field.name]} |"
        for field in attrs.fields(Settings)
        if field.init
    )
    about = _cell(inspect.getdoc(Settings) or "")
    return f"# Settings\n\n{about}\n\n| setting | default | meaning |\n|---|---|---|\n{rows}\n"


def _default(value: Any) -> str:
    if not isinstance(value, attrs.Factory):  # type: ignore[arg-type]  # it is a class
        return f"`{value!r}`" if not isinstance(value, os.PathLike) else f"`{value}`"
    return "by version" if value.takes_self else f"`{value.factory()!r}`"


def _events() -> str:
    texts = _documented(EventKind)
    rows = "\n".join(f"| `{kind.value}` | {texts[kind.name]} |" for kind in EventKind)
    return (
        "# Events\n\n`devicemanager run`, the control API and `MockKubelet.events` report these "
        f"events.\n\n| kind | meaning |\n|---|---|\n{rows}\n"
    )


def _commands() -> str:
    with mock.patch.dict(os.environ, COLUMNS=_WIDTH):
        return "# Options of the commands\n\n" + "\n".join(_help(whole_parser(), 1))


def _help(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    # Add all arguments: some commands add theirs only when they are used.
    complete = getattr(parser, "complete", None)
    if complete is not None:
        complete(parser)
    if level > 1:
        yield f"{'#' * min(level, 4)} {parser.prog}\n"
    yield f"```text\n{parser.format_help()}```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()):
                yield from _help(each, level + 1)


def _http(api: Mapping[str, Any]) -> str:
    parts = [f"# {api['info']['title']}\n\n{api['info']['description']}\n"]
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            parts.append(f"## {method.upper()} {path}\n\n{operation['summary']}\n")
            parts.extend(_parameters(operation.get("parameters", ())))
    return "\n".join(parts)


def _parameters(parameters: Any) -> Iterator[str]:
    if parameters:
        yield "| parameter | in | meaning |\n|---|---|---|"
        for each in parameters:
            yield f"| `{each['name']}` | {each['in']} | {_cell(each.get('description', ''))} |"
        yield ""


def _python(name: str, what: str, indexed: set[object]) -> str:
    package = importlib.import_module(name)
    parts = [f"# {name}\n\n{what[0].upper()}{what[1:]}.\n"]
    for member in package.__all__:
        parts.append(f"## {member}\n")
        value = getattr(package, member)
        if inspect.isclass(value) or inspect.isroutine(value):
            # Some types are public in several packages, but Sphinx wants one entry in its index.
            parts.append(_autodoc(f"{name}.{member}", value, index=value not in indexed))
            indexed.add(value)
        else:
            # Use the docstring below the assignment: Sphinx would show the docstring of the value's
            # type.
            parts.append(_cell(text_of_value(package, member)) + "\n")
    return "\n".join(parts)


def _autodoc(path: str, value: object, *, index: bool) -> str:
    index_option = "" if index else "   :no-index:\n"
    if not inspect.isclass(value):
        return f"```{{eval-rst}}\n.. autofunction:: {path}\n{index_option}```\n"
    is_error = issubclass(value, BaseException)
    # Show inherited members only of bases in this package, not those of str or Exception.
    has_own_bases = not is_error and any(
        base.__module__.startswith("devicemanager") for base in value.__mro__[1:-1]
    )
    inherited = "   :inherited-members:\n" if has_own_bases else ""
    kind = "autoexception" if is_error else "autoclass"
    return f"```{{eval-rst}}\n.. {kind}:: {path}\n   :members:\n{inherited}{index_option}```\n"
