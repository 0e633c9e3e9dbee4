"""``python -m tools.faults_page``: write the tables of docs/faults.md from the fault kinds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from devicemanager.faults.fault import AT, COMMON
from devicemanager.faults.injection_point import InjectionPoint
from devicemanager.faults.kinds import KINDS, Kind, Option

PAGE = Path(__file__).parents[1] / "docs" / "faults.md"
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

_GROUPS = {
    "registration": (InjectionPoint.REGISTER, InjectionPoint.NOTIFICATION),
    "calls": (InjectionPoint.CALL, InjectionPoint.LIST),
    "checkpoint": (InjectionPoint.CHECKPOINT, InjectionPoint.START),
    "podresources": (InjectionPoint.POD_RESOURCES,),
    "pods": (InjectionPoint.PODS_API,),
    "actions": (None,),
}


def page(text: str) -> str:
    """Return the text of the page with updated tables."""
    tables = {name: "\n".join(_kinds(name)) for name in _GROUPS}
    tables["common"] = "\n".join(_options((*COMMON, AT)))
    return _TABLE.sub(lambda found: f"{found[1]}{tables[found[2]]}\n{found[3]}", text)


def _kinds(group: str) -> Iterator[str]:
    yield "| kind | what happens | options |"
    yield "|---|---|---|"
    for kind in KINDS.values():
        if kind.point in _GROUPS[group]:
            yield f"| `{kind.name}` | {kind.meaning} | {_own(kind)} |"


def _own(kind: Kind) -> str:
    return "; ".join(
        f"`{option.name}`: {option.meaning}{_default(option)}" for option in kind.options
    )


def _options(options: Iterable[Option]) -> Iterator[str]:
    yield "| option | meaning |"
    yield "|---|---|"
    for option in options:
        yield f"| `{option.name}` | {option.meaning}{_default(option)} |"


def _default(option: Option) -> str:
    if option.required:
        return " (must be given)"
    default = option.default
    if default is None:
        return ""
    shown = str(default).lower() if isinstance(default, bool) else default
    return f" (default: `{shown:g}`)" if isinstance(default, float) else f" (default: `{shown}`)"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
