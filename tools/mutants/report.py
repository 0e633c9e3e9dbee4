"""Format the results of a mutation run, and read the list of mutants that no test can notice."""

from __future__ import annotations

import difflib
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from tools.mutants.mutations import Mutant
from tools.mutants.running import Result

EXPLAINED = Path(__file__).with_name("equivalents.toml")


@attrs.frozen
class Equivalent:
    """Mutant without effect. ``where`` is ``file:function``, and ``why`` is the reason."""

    where: str
    old: str
    new: str
    why: str


def read_equivalents(path: Path = EXPLAINED) -> tuple[Equivalent, ...]:
    """Return all mutants that are listed in ``equivalents.toml``."""
    entries = tomllib.loads(path.read_text()).get("equivalent", [])
    return tuple(Equivalent(**entry) for entry in entries)


def explanation(mutant: Mutant, equivalents: tuple[Equivalent, ...]) -> str | None:
    """Return the reason for which no test can notice the mutant; None if no reason is listed."""
    place = (f"{mutant.file}:{mutant.where}", mutant.old, mutant.new)
    matching = (each.why for each in equivalents if (each.where, each.old, each.new) == place)
    return next(matching, None)


def diff(repository: Path, mutant: Mutant) -> str:
    """Return the mutant's position and a unified diff that ``patch -p1`` accepts."""
    before = (repository / mutant.file).read_text()
    lines = difflib.unified_diff(
        before.splitlines(),
        mutant.applied_to(before).splitlines(),
        f"a/{mutant.file}",
        f"b/{mutant.file}",
        n=2,
        lineterm="",
    )
    return "\n".join([f"{mutant.file}:{mutant.line} ({mutant.where})", *lines])


def share_killed(results: Sequence[Result], equivalents: tuple[Equivalent, ...]) -> float:
    """Return the share of mutants that were killed. Mutants with a listed explanation do not
    count."""
    counted = [each for each in results if explanation(each.mutant, equivalents) is None]
    return sum(each.is_killed for each in counted) / len(counted) if counted else 1.0


def table(
    results: Sequence[Result], equivalents: tuple[Equivalent, ...], group: Callable[[str], str]
) -> str:
    """Return a table with one row per group of files: the numbers of mutants, killed, explained and
    survived."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in results:
        outcome = "survived"
        if each.is_killed:
            outcome = "killed"
        elif explanation(each.mutant, equivalents) is not None:
            outcome = "explained"
        for name in (group(each.mutant.file), "all"):
            counts[name].update(["mutants", outcome])
    columns = ("mutants", "killed", "explained", "survived")
    rows = [f"{'':<48}" + "".join(f" {column:>9}" for column in columns)]
    # The row "all" comes last.
    for name, of in sorted(counts.items(), key=lambda each: (each[0] == "all", each[0])):
        rows.append(f"{name:<48}" + "".join(f" {of[column]:>9}" for column in columns))
    return "\n".join(rows)
