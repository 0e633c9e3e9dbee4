"""The table, and results kept for the next run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tools.attack.model import FIGURES, Attack, Outcome, broken

_HEADS = ("register s", "admit s", "start s", "memory MB", "kept MB", "threads", "descriptors")
_WIDTH = 30
Results = Mapping[str, Outcome]


def head() -> str:
    """The line above the rows."""
    return "  ".join(["attack".ljust(_WIDTH), *_HEADS, "verdict"])


def row(attack: Attack, outcome: Outcome) -> str:
    """One line of the table; beneath it what is wrong."""
    cells = [
        _number(getattr(outcome, name)).rjust(len(title))
        for name, title in zip(FIGURES, _HEADS, strict=True)
    ]
    wrong = list(broken(attack.limits, outcome))
    verdict = "BROKEN" if wrong else "held"
    line = "  ".join([attack.name.ljust(_WIDTH), *cells, verdict])
    return "\n".join([line, *(f"    {each}" for each in wrong)])


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def save(path: Path, results: Results) -> None:
    """Keep results; those of attacks that did not run now stay as they were."""
    kept = {name: attrs.asdict(outcome) for name, outcome in results.items()}
    path.write_text(json.dumps(_raw(path) | kept, indent=1) + "\n")


def load(path: Path) -> dict[str, Outcome]:
    """What ``save`` kept."""
    return {
        name: Outcome(**{**fields, "problems": tuple(fields["problems"])})
        for name, fields in _raw(path).items()
    }


def _raw(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def comparison(attacks: Sequence[Attack], before: Results, after: Results) -> str:
    """A table in Markdown: each attack, before and after."""
    lines = [
        "| attack | " + " | ".join(_HEADS) + " | promises |",
        "| --- " * (len(_HEADS) + 2) + "|",
    ]
    for attack in attacks:
        if attack.name not in before and attack.name not in after:
            continue
        old, new = before.get(attack.name), after.get(attack.name)
        cells = [_change(old, new, name) for name in FIGURES]
        promises = " → ".join(
            "" if one is None else "; ".join(one.problems) or "kept" for one in (old, new)
        )
        lines.append(f"| {attack.name}: {attack.about} | " + " | ".join(cells) + f" | {promises} |")
    return "\n".join(lines)


def _change(old: Outcome | None, new: Outcome | None, name: str) -> str:
    texts = ["-" if one is None else _number(getattr(one, name)) for one in (old, new)]
    return " → ".join(texts) if any(texts) else ""
