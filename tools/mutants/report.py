"""What a mutation run found, for people to read."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.equivalents import Equivalent, explanation
from tools.mutants.mutations import Mutant
from tools.mutants.running import Result

__all__ = ["share_killed", "survivor_text", "table"]


def survivor_text(repository: Path, mutant: Mutant) -> str:
    """The mutant as a diff, headed by its place."""
    before = (repository / mutant.file).read_text()
    after = mutant.applied_to(before)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    body = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return "\n".join([f"{mutant.file}:{mutant.line} ({mutant.where})", *body])


def share_killed(results: Sequence[Result], equivalents: tuple[Equivalent, ...]) -> float:
    """Which share of the mutants that a test can notice was killed."""
    counted = [each for each in results if explanation(each.mutant, equivalents) is None]
    return sum(each.is_killed for each in counted) / len(counted) if counted else 1.0


def table(results: Sequence[Result], equivalents: tuple[Equivalent, ...]) -> str:
    """A row for each module: mutants, killed, explained, survived."""
    rows = [f"{'module':<48} {'mutants':>7} {'killed':>7} {'explained':>9} {'survived':>8}"]
    counts: dict[str, Counter[str]] = {}
    for each in results:
        file = counts.setdefault(each.mutant.file, Counter())
        file["mutants"] += 1
        if each.is_killed:
            file["killed"] += 1
        elif explanation(each.mutant, equivalents) is not None:
            file["explained"] += 1
        else:
            file["survived"] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    for name, of in [*sorted(counts.items()), ("all", total)]:
        rows.append(
            f"{name:<48} {of['mutants']:>7} {of['killed']:>7} "
            f"{of['explained']:>9} {of['survived']:>8}"
        )
    return "\n".join(rows)
