"""``python -m tools.versions_page``: write docs/kubelet-versions.md from the tables."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs

from devicemanager.core.versions.behaviour import STEPS, Behaviour
from devicemanager.core.versions.gates import GATES
from devicemanager.core.versions.quirks import QUIRKS
from devicemanager.core.versions.steps import Step, Steps
from devicemanager.core.versions.version import NEWEST, NEWEST_KNOWN, OLDEST, VERIFIED

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[1] / "docs" / "kubelet-versions.md"

_HEAD = "\n\n".join(
    " ".join(paragraph.split())
    for paragraph in (
        "# Kubelet versions",
        f"""`Settings(kubelet_version="1.28")` and `devicemanager run --kubelet-version 1.28`
        behave as that version did; `1.28` is its newest patch, `1.28.2` that one. 1.{OLDEST} to
        1.{NEWEST_KNOWN} are known. The default is 1.{VERIFIED}, the newest one of whose real device
        manager recorded results are replayed; 1.{NEWEST} is the newest stable one and
        1.{NEWEST_KNOWN} a preview, both as their sources and notes describe them.""",
        """`Settings(feature_gates={"KubeletPodResourcesGet": True})` and
        `--feature-gates KubeletPodResourcesGet=true` switch what that version guards by a gate.
        Settings of your own, such as `pod_resources_qps`, count for more than the version.""",
        """Defects of a version do not come with it: each is a [quirk](kubelet-behaviour.md) that
        a test asks for by name; `quirks="reference"` and `--quirk reference` ask for all that the
        version has. Where versions differ and this page does not say so, the mock behaves as 1.32
        does. "Unsure" marks what no source settles.""",
        """Open upstream are two things. Whether a second Register of a socket that is connected
        succeeds and does nothing (k/k#139765): at every version the newest connection takes over
        here, and with Q2 it is rejected. And in which order 1.38 tells `allocatedResourcesStatus`
        (k/k#142340): here it is sorted by resource, then id.""",
        "`python -m tools.versions_page` writes this page.",
    )
)


def page() -> str:
    """The text of the page."""
    return "\n".join([_HEAD, "", *_behaviours(), "", *_gates(), "", *_quirks(), ""])


def _behaviours() -> Iterator[str]:
    yield "## What differs\n"
    yield "| behaviour | from | value | evidence |"
    yield "|---|---|---|---|"
    meanings = _meanings()
    for name, steps in STEPS.items():
        head = meanings[name]
        for step in steps:
            yield f"| {head} | {_since(step)} | {_value(step)} | {_evidence(step)} |"
            head = ""


def _meanings() -> dict[str, str]:
    """The docstrings under the fields, which are what a reader wants to know."""
    body = ast.parse(inspect.getsource(Behaviour)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in pairwise(body.body):
        is_told = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if is_told and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            found[field.target.id] = _prose(str(text.value.value))
    assert list(found) == [each.name for each in attrs.fields(Behaviour)][2:]
    return found


def _prose(docstring: str) -> str:
    return " ".join(docstring.split()).rstrip(".").replace("``", "`")


def _since(step: Step) -> str:
    return ", ".join(map(str, step.since))


def _evidence(step: Step) -> str:
    return ", ".join(filter(None, (step.row, "unsure" * step.unsure)))


def _value(step: Step) -> str:
    if step.gate:
        return " and ".join(_gate(term.strip()) for term in step.gate.split("&"))
    return _text(step.value)


def _gate(term: str) -> str:
    return f"gate `{term[1:]}` is off" if term.startswith("!") else f"gate `{term}` is on"


def _text(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case Enum():
            return str(value.value)
        case dict():
            return ", ".join(f"`{name}` ({level})" for name, level in value.items()) or "none"
        case tuple():
            return ", ".join(f"`{name}`" for name in value) or "none"
    return f"`{value}`" if value != "" else "nothing"


def _gates() -> Iterator[str]:
    yield "## Feature gates\n"
    yield "| gate | default by version |"
    yield "|---|---|"
    for name, steps in GATES.items():
        told = []
        for step in steps:
            state = "gone" if step.stage == "gone" else f"{'on' if step.default else 'off'}"
            stage = (
                ""
                if step.stage == "gone"
                else f" ({step.stage}{', locked' * step.locked}{', unsure' * step.unsure})"
            )
            told.append(f"1.{step.since}: {state}{stage}")
        yield f"| `{name}` | {'; '.join(told)} |"


def _quirks() -> Iterator[str]:
    yield "## Quirks\n"
    yield "| quirk | what happens | versions | evidence |"
    yield "|---|---|---|---|"
    for name, quirk in QUIRKS.items():
        rows = "; ".join(filter(None, map(_evidence, quirk.steps)))
        yield f"| {name} | {quirk.text} | {_range(quirk.steps)} | {rows} |"


def _range(steps: Steps) -> str:
    told = [f"{'from' if step.value else 'not from'} {_since(step)}" for step in steps]
    if steps[0].value:
        return "all" if len(steps) == 1 else ", ".join(["all", *told[1:]])
    return ", ".join(told[1:])


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}", file=sys.stderr)
