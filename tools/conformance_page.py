"""``python -m tools.conformance_page``: write docs/conformance-checks.md from checks.toml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from devicemanager.conformance import Check, Limits, all_checks
from devicemanager.conformance.clients import ClientLimits, client_checks
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


def page() -> str:
    """Return the text of docs/conformance-checks.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    checks = all_checks()
    for letter, heading in FAMILIES.items():
        yield f"## {letter}: {heading}\n"
        yield "| ID | | the plugin | steps and expectation | on a node, if it fails |"
        yield "|---|---|---|---|---|"
        for each in checks:
            if each.family == letter:
                yield _row(each)
        yield ""
    yield "## Limits\n"
    yield "Set a limit with `--limit NAME=NUMBER`; times are in seconds:\n"
    yield "| name | default | with `--thorough` |"
    yield "|---|---|---|"
    quick, thorough = Limits(), Limits.thorough()
    for field in attrs.fields(Limits):
        values = [f"{getattr(limits, field.name):g}" for limits in (quick, thorough)]
        yield f"| `{field.name}` | {values[0]} | {values[1] if values[1] != values[0] else ''} |"
    yield ""
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


def _row(each: Check) -> str:
    hooks = f" (hooks {', '.join(each.hooks)})" if each.hooks else ""
    links = " ".join(f"[{number}]({link})" for number, link in enumerate(each.links, 1))
    cells = [
        each.id,
        each.severity.value,
        each.title,
        f"{each.does}{hooks}. Expected: {each.expects}",
        f"{each.production} {links}".strip(),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page())
