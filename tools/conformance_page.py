"""``python -m tools.conformance_page``: write docs/conformance-checks.md from the checks.toml."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import attrs

from devicemanager.conformance import Check, Limits, all_checks
from devicemanager.conformance.clients import ClientLimits, client_checks
from devicemanager.conformance.drivers import (
    DRIVER_FAMILIES,
    SHARED_LIMITS,
    DriverLimits,
    driver_checks,
)
from devicemanager.conformance.registry import CLIENT_FAMILY, FAMILIES

PAGE = Path(__file__).parents[1] / "docs" / "conformance-checks.md"

_HEAD = """\
# Conformance checks

This page lists all checks of `devicemanager check`. The checks of plugins come first, then those \
of [DRA drivers](#dra-drivers), and then those of PodResources clients. Use this page to look up a \
check that has failed. [Conformance](conformance.md) describes how to run the checks.

Each check belongs to a family. The ID of the check begins with the letter or letters of the \
family: K01 is in family K.

The severity says what a failure means. MUST: the plugin breaks the contract with the kubelet. \
SHOULD: the plugin causes problems in real clusters. INFO: the failure is only a warning. A \
profile is a set of checks. The profile *core* requires all checks of severity MUST, except those \
of the families K and L. The profile *resilient* requires all checks of severity MUST. The profile \
*complete* also requires all checks of severity SHOULD.

Read the third column as a sentence: "the plugin registers with the kubelet". The fourth column \
has the steps of the check, and after "Expected" the conditions for a pass. "A warning" means that \
the outcome in this case is only a warning, not a failure. The fifth column has the symptom on a \
real node, and links to documentation, source code and public issues. Some checks need a \
[hook](conformance.md#devices-that-change) or an option, as the fourth column says. Without this \
hook or option, the check is skipped. A name such as `start_seconds`, and a name after "limit:", \
is the name of a [limit](#limits), and stands for the value of this limit.
"""
_DRIVERS = """\
`devicemanager check` runs these checks on a [DRA driver](conformance-drivers.md). Severities and \
profiles have the same meaning as for plugins, with one exception: the profile *core* requires all \
checks of severity MUST, except those of the families DK and DL.

An *entry* is the part of a driver's response that belongs to one claim. A CDI device *can be \
resolved* if a CDI file defines it.
"""
_HEADER = "| ID | severity | the {} | steps and expectation | on a node, if it fails |"


def page() -> str:
    """Return the text of docs/conformance-checks.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _families(FAMILIES, all_checks(), "plugin")
    yield "## Limits\n"
    yield "The checks of plugins use these limits. Set one with `--limit NAME=NUMBER`:\n"
    yield from _limits(Limits, [field.name for field in attrs.fields(Limits)])
    yield "## DRA drivers\n"
    yield _DRIVERS
    yield from _families(DRIVER_FAMILIES, driver_checks(), "driver")
    yield "The checks of drivers use these limits:\n"
    own = {field.name for field in attrs.fields(DriverLimits)} - {
        field.name for field in attrs.fields(Limits)
    }
    names = [field.name for field in attrs.fields(DriverLimits)]
    yield from _limits(DriverLimits, [name for name in names if name in own | {*SHARED_LIMITS}])
    yield f"## {CLIENT_FAMILY}: PodResources clients\n"
    yield (
        '`devicemanager check --client` runs [these checks](conformance-clients.md). "Further '
        'calls" means that the client calls PodResources again after the response (limit: '
        "calls).\n"
    )
    yield _HEADER.format("client")
    yield "|---|---|---|---|---|"
    yield from map(_row, client_checks())
    yield ""
    yield "The checks of clients use these limits:\n"
    yield "| limit | default | meaning |"
    yield "|---|---|---|"
    meanings = _meanings(ClientLimits)
    for field in attrs.fields(ClientLimits):
        value = getattr(ClientLimits(), field.name)
        yield f"| `{field.name}` | {_number(value)} | {meanings[field.name]} |"
    yield ""


def _families(families: Mapping[str, str], checks: Iterable[Check], program: str) -> Iterator[str]:
    for letters, heading in families.items():
        yield f"{'##' if program == 'plugin' else '###'} {letters}: {heading}\n"
        yield _HEADER.format(program)
        yield "|---|---|---|---|---|"
        yield from (_row(each) for each in checks if each.family == letters)
        yield ""


def _limits(kind: type[Limits], names: Iterable[str]) -> Iterator[str]:
    yield "| limit | default | with `--thorough` | meaning |"
    yield "|---|---|---|---|"
    meanings = _meanings(Limits) | _meanings(kind)
    for name in names:
        values = [_number(getattr(limits, name)) for limits in (kind(), kind.thorough())]
        thorough = values[1] if values[1] != values[0] else ""
        yield f"| `{name}` | {values[0]} | {thorough} | {meanings[name]} |"
    yield ""


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _meanings(kind: type) -> dict[str, str]:
    """Return the docstring of each field, without the last period, by the name of the field."""
    (class_,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(class_, ast.ClassDef)
    found = {}
    for field, text in pairwise(class_.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant), field.target
            meaning = " ".join(str(text.value.value).split())
            found[field.target.id] = meaning.removesuffix(".").replace("``", "`")
    return found


def _row(each: Check) -> str:
    plural = "s" if len(each.hooks) > 1 else ""
    hooks = f" (needs the hook{plural} {' and '.join(each.hooks)})" if each.hooks else ""
    options = f" (needs the option --{', --'.join(each.options)})" if each.options else ""
    links = " ".join(f"[{number}]({link})" for number, link in enumerate(each.links, 1))
    cells = [
        each.id,
        each.severity.value,
        each.title,
        f"{each.does}{hooks}{options}. Expected: {each.expects}",
        f"{each.production} {links}".strip(),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page())
