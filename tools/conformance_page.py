"""``python -m tools.conformance_page``: write docs/conformance-checks.md from the checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from devicemanager.conformance import Check, Limits, all_checks
from devicemanager.conformance.registry import FAMILIES

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[1] / "docs" / "conformance-checks.md"

_HEAD = """\
# Conformance checks

All checks of `devicemanager check`, from the suite itself. [Conformance](conformance.md) says how \
to run them. MUST: the contract with the kubelet breaks without it. SHOULD: real clusters suffer \
without it. INFO is reported and never fails. The profile *core* asks for every MUST but those of \
K and L, *resilient* for these as well, *complete* for every SHOULD, too.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    every = all_checks()
    for letter, (_, heading) in FAMILIES.items():
        yield f"## {letter}: {heading}\n"
        yield "| id | | what must hold | what is done, and what must be seen | on a node, if not |"
        yield "|---|---|---|---|---|"
        for each in every:
            if each.family == letter:
                yield _row(each)
        yield ""
    yield "## Limits\n"
    yield "`--limit NAME=NUMBER`, in seconds unless the name says otherwise:\n"
    yield "| name | default | with `--thorough` |"
    yield "|---|---|---|"
    quick, thorough = Limits(), Limits.thorough()
    for field in attrs.fields(Limits):
        values = [f"{getattr(limits, field.name):g}" for limits in (quick, thorough)]
        yield f"| `{field.name}` | {values[0]} | {values[1] if values[1] != values[0] else ''} |"
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
