"""All checks, by id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from devicemanager.conformance.links import addresses
from devicemanager.conformance.model import Check
from devicemanager.conformance.outcomes import CheckError, Scene, Severity

if TYPE_CHECKING:
    from devicemanager.conformance.check_run import CheckRun

__all__ = ["FAMILIES", "all_checks", "check", "select"]

FAMILIES = {
    "R": ("registration", "Registration"),
    "K": ("restarts", "Restarts and upgrades"),
    "W": ("listandwatch", "ListAndWatch"),
    "T": ("topology", "Topology"),
    "O": ("options", "Options"),
    "A": ("allocate", "Allocate"),
    "P": ("preference", "GetPreferredAllocation"),
    "S": ("prestart", "PreStartContainer"),
    "L": ("lifecycle", "Life cycle and hygiene"),
}
"""Each letter's module in ``families``, and its heading."""

_ID = re.compile(r"[A-Z]\d\d")
_known: dict[str, Check] = {}


def check(
    id_: str,
    severity: Severity,
    title: str,
    *,
    does: str,
    expects: str,
    production: str,
    links: str = "",
    scene: Scene = Scene.REGISTERED,
    hooks: Sequence[str] = (),
    unregistered: bool = False,
) -> Callable[[Callable[[CheckRun], str | None]], Check]:
    """Make a check of a function. ``links`` are sources in short, separated by commas: see
    ``devicemanager.conformance.links``. A check of your own has another letter than the
    families here, and is carried out when it is given to ``run``."""

    def make(run: Callable[[CheckRun], str | None]) -> Check:
        if not _ID.fullmatch(id_) or id_ in _known:
            raise ValueError(f"{id_!r} is no id for a new check")
        made = Check(
            id_,
            severity,
            title,
            does,
            expects,
            production,
            addresses(links),
            scene,
            tuple(hooks),
            unregistered,
            run,
        )
        if made.family in FAMILIES:
            _known[id_] = made
        return made

    return make


def all_checks() -> tuple[Check, ...]:
    """Every check, family by family, in the order of their ids."""
    for module, _ in FAMILIES.values():
        import_module(f"devicemanager.conformance.checks.{module}")
    order = list(FAMILIES)
    return tuple(sorted(_known.values(), key=lambda each: (order.index(each.family), each.id)))


def select(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """The checks with these ids or families, all if none is named, without those of ``skip``.
    Raises CheckError for what there is not."""
    every, chosen, left_out = all_checks(), tuple(only), tuple(skip)
    known = {each.id for each in every} | FAMILIES.keys()
    for name in (*chosen, *left_out):
        if name not in known:
            raise CheckError(
                f"there is no check {name!r}: name an id such as K01, or a family: "
                f"{', '.join(FAMILIES)}"
            )

    def among(each: Check, names: tuple[str, ...]) -> bool:
        return each.id in names or each.family in names

    return tuple(
        each for each in every if (not chosen or among(each, chosen)) and not among(each, left_out)
    )
