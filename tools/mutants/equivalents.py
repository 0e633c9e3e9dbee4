"""The mutants that are explained instead of killed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import attrs

from tools.mutants.mutations import Mutant

__all__ = ["Equivalent", "explanation", "read_equivalents"]

FILE = Path(__file__).with_name("equivalents.toml")


@attrs.frozen
class Equivalent:
    """A change without effect: ``where`` is ``file:function``, ``why`` the reason."""

    where: str
    old: str
    new: str
    why: str


def read_equivalents(path: Path = FILE) -> tuple[Equivalent, ...]:
    """All explained mutants."""
    entries = tomllib.loads(path.read_text()).get("equivalent", [])
    return tuple(Equivalent(**entry) for entry in entries)


def explanation(mutant: Mutant, equivalents: tuple[Equivalent, ...]) -> str | None:
    """Why no test can notice the mutant, if that is written down."""
    where = f"{mutant.file}:{mutant.where}"
    for each in equivalents:
        if (each.where, each.old, each.new) == (where, mutant.old, mutant.new):
            return each.why
    return None
