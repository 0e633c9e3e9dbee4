"""``python -m tools.conformance_page``: write docs/conformance-checks.md from the checks.toml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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

These are all checks of `devicemanager check`. [Conformance](conformance.md) describes how to run \
them. A plugin that fails a check of severity MUST breaks the contract with the kubelet. A plugin \
that fails a SHOULD causes problems in real clusters. INFO is only reported. The profile *core* \
requires all checks of severity MUST except those of the families K and L. *resilient* requires \
every MUST, and *complete* also every SHOULD.
"""
_DRIVERS = """\
`devicemanager check` runs these checks on a [DRA driver](conformance-drivers.md). Severities and \
profiles have the same meaning as for plugins. *core* requires all checks of severity MUST except \
those of DK and DL.
"""


def page() -> str:
    """Return the text of docs/conformance-checks.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _families(FAMILIES, all_checks(), "plugin")
    yield "## Limits\n"
    yield "Set a limit with `--limit NAME=NUMBER`; times are in seconds:\n"
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
    yield "`devicemanager check --client` runs [these checks](conformance-clients.md).\n"
    yield "| ID | | the client | steps and expectation | on a node, if it fails |"
    yield "|---|---|---|---|---|"
    yield from map(_row, client_checks())
    yield ""
    yield "| limit of clients | default |"
    yield "|---|---|"
    for field in attrs.fields(ClientLimits):
        yield f"| `{field.name}` | {getattr(ClientLimits(), field.name):g} |"
    yield ""


def _families(families: Mapping[str, str], checks: Iterable[Check], program: str) -> Iterator[str]:
    for letters, heading in families.items():
        yield f"{'##' if program == 'plugin' else '###'} {letters}: {heading}\n"
        yield f"| ID | | the {program} | steps and expectation | on a node, if it fails |"
        yield "|---|---|---|---|---|"
        yield from (_row(each) for each in checks if each.family == letters)
        yield ""


def _limits(kind: type[Limits], names: Iterable[str]) -> Iterator[str]:
    yield "| name | default | with `--thorough` |"
    yield "|---|---|---|"
    for name in names:
        values = [f"{getattr(limits, name):g}" for limits in (kind(), kind.thorough())]
        yield f"| `{name}` | {values[0]} | {values[1] if values[1] != values[0] else ''} |"
    yield ""


def _row(each: Check) -> str:
    hooks = f" (hooks {', '.join(each.hooks)})" if each.hooks else ""
    options = f" (option --{', --'.join(each.options)})" if each.options else ""
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
