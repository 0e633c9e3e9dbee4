"""``python -m tools.versions_page``: write docs/kubelet-versions.md from the tables of versions."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs

from devicemanager.core.versions.behaviour import STEPS, Behaviour
from devicemanager.core.versions.gates import GATES
from devicemanager.core.versions.quirks import QUIRKS
from devicemanager.core.versions.steps import Step, Steps
from devicemanager.core.versions.verified import VERIFIED
from devicemanager.core.versions.version import DEFAULT, NEWEST_KNOWN, OLDEST, Verified

PAGE = Path(__file__).parents[1] / "docs" / "kubelet-versions.md"

_HEAD = "\n\n".join(
    " ".join(paragraph.split())
    for paragraph in (
        "# Kubelet versions",
        """This page is for readers who must know how a kubelet version behaves, for a test or
        before an upgrade. It lists all differences between kubelet versions that this project's
        mock kubelet (the *mock*) reproduces. It also shows how each version was verified.""",
        f"""`Settings(kubelet_version="1.28")` and `devicemanager run --kubelet-version 1.28`
        select a kubelet version for the mock, in Python and on the command line. `1.28` means
        the newest patch release of 1.28; `1.28.2` means exactly this release. Versions
        1.{OLDEST} to 1.{NEWEST_KNOWN} are supported. The default is 1.{DEFAULT}; the support of
        1.{NEWEST_KNOWN} is a preview.""",
        """`Settings(feature_gates={"KubeletPodResourcesGet": True})` and
        `--feature-gates KubeletPodResourcesGet=true` set a feature gate of the version. Other
        settings, such as `pod_resources_qps`, override single values of the version.""",
        """A version does not include its known bugs. Each bug is a
        [quirk](kubelet-behaviour.md#quirks) that you enable by name. `quirks="reference"` and
        `--quirk reference` enable all quirks of the version. If a behavior is not on this page,
        the mock behaves like kubelet 1.32, whichever version you select.""",
        """The Kubernetes project has not decided two questions. The first is whether a second
        Register call for a connected socket succeeds without effect (k/k#139765). In all versions
        of the mock, the second call succeeds and the new connection replaces the older
        connection. With the quirk Q2, the second call is rejected. The second question is the
        order of the list
        `allocatedResourcesStatus` in 1.38 (k/k#142340). The mock sorts this list by resource and
        device ID.""",
        "`python -m tools.versions_page` generates this page.",
    )
)


def page(verified: Mapping[int, Verified] = VERIFIED) -> str:
    """Return the text of docs/kubelet-versions.md."""
    parts = (_verified(verified), _behaviours(), _gates(), _quirks())
    return "\n".join([_HEAD, "", *(line for part in parts for line in (*part, ""))])


def _verified(verified: Mapping[int, Verified]) -> Iterator[str]:
    yield "## How each version was verified\n"
    yield (
        "For most versions, `make differential` has run random scenarios on the device manager of "
        "a release and on the mock. The results agree except for the "
        "[named deviations](kubelet-behaviour.md#compared-with-the-kubelet). For all "
        "other versions, the mock is based only on the source code of the kubelet. For these "
        "versions, `devicemanager run` prints a warning. 1.25 is the oldest version whose device "
        "manager was built for this comparison. The same seed leads to the same scenarios.\n"
    )
    yield "| version | compared with | scenarios | seed |"
    yield "|---|---|---|---|"
    for minor in range(OLDEST, NEWEST_KNOWN + 1):
        if found := verified.get(minor):
            yield f"| 1.{minor} | {found.release} | {found.scenarios:,} | {found.seed} |"
        else:
            yield f"| 1.{minor} | not compared, based only on its source code | | |"


def _behaviours() -> Iterator[str]:
    yield "## What differs\n"
    yield (
        "Each row has a value that applies from a version on, until the next row of the same "
        "behavior. If the first cell of a row is empty, the row is about the behavior above it. "
        "A row can name several versions, such as `1.25.10, 1.26.5, 1.27.2, 1.28`. Its "
        "value then applies in each of these minor versions from the named patch release on, and "
        "in all later versions.\n\n"
        "Most behaviors are statements. Yes means that the statement is true, and no means that "
        'it is false. If the statement is false, the part after "otherwise" or "if this is false" '
        'is true. A value such as "gate `PodsAPI` is on" means yes if the '
        "[feature gate](#feature-gates) is in this state, and no in the other state. "
        "[Kubelet behavior](kubelet-behaviour.md#the-same) describes the check whether a pod "
        "fits on the node.\n\n"
        "The evidence is a pull request or issue of kubernetes/kubernetes (`k/k#109016`), the "
        'source that was read, or the release in which the value was seen. "Unsure" means that the '
        "first version with the value is not confirmed.\n"
    )
    yield "| behavior | from | value | evidence |"
    yield "|---|---|---|---|"
    meanings = _meanings()
    for name, steps in STEPS.items():
        head = meanings[name]
        for step in steps:
            yield f"| {head} | {_since(step)} | {_value(step)} | {_evidence(step)} |"
            head = ""


def _meanings() -> dict[str, str]:
    """Return the docstrings of the fields of ``Behaviour``, by field name."""
    body = ast.parse(inspect.getsource(Behaviour)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in pairwise(body.body):
        is_docstring = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if is_docstring and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            found[field.target.id] = _prose(str(text.value.value))
    assert list(found) == [each.name for each in attrs.fields(Behaviour)][2:]
    return found


def _prose(docstring: str) -> str:
    # The page shows the values as yes and no, so "True if a pod is rejected" becomes "A pod is
    # rejected".
    text = " ".join(docstring.split()).removeprefix("True if ").rstrip(".").replace("``", "`")
    return text[0].upper() + text[1:]


def _since(step: Step) -> str:
    return ", ".join(map(str, step.since))


def _evidence(step: Step) -> str:
    return ", ".join(filter(None, (step.evidence, "unsure" * step.unsure)))


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
    yield (
        "Each state applies from its version on, until the next state. Before the first state, the "
        "gate does not exist, and its feature is off. A locked gate cannot be changed. The state "
        "*gone* means that the gate was removed, and its feature is always on.\n"
    )
    yield "| gate | default by version |"
    yield "|---|---|"
    for name, steps in GATES.items():
        states = []
        for step in steps:
            state = "gone" if step.stage == "gone" else f"{'on' if step.default else 'off'}"
            stage = "" if step.stage == "gone" else f" ({step.stage}{', locked' * step.locked})"
            states.append(f"1.{step.since}: {state}{stage}")
        yield f"| `{name}` | {'; '.join(states)} |"


def _quirks() -> Iterator[str]:
    yield "## Quirks\n"
    yield "The column *versions* shows which kubelet versions have the bug.\n"
    yield "| quirk | effect | versions | evidence |"
    yield "|---|---|---|---|"
    for name, quirk in QUIRKS.items():
        rows = "; ".join(filter(None, map(_evidence, quirk.steps)))
        yield f"| {name} | {quirk.text} | {_range(quirk.steps)} | {rows} |"


def _range(steps: Steps) -> str:
    ranges = [f"{'from' if step.value else 'fixed in'} {_since(step)}" for step in steps]
    if steps[0].value:
        return "all" if len(steps) == 1 else ", ".join(["all", *ranges[1:]])
    return ", ".join(ranges[1:])


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}", file=sys.stderr)
