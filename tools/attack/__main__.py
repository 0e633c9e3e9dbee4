"""``python -m tools.attack``: run attacks on a kubelet and print a table with a verdict for
each."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tools.attack.model import FIGURES, Attack, Outcome, Quiet, broken
from tools.attack.quiet import measure
from tools.attack.registry import attacks
from tools.harness.command import Run, add_choice, choose, parser
from tools.harness.planted import selected

_HEADS = (
    "register s",
    "admit s",
    "start s",
    "stop s",
    "memory MB",
    "kept MB",
    "threads",
    "descriptors",
)
_WIDTH = 30
Results = Mapping[str, Outcome]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected attacks. Return 0 if the kubelet withstood all of them, 1 if not, or 2 for
    wrong usage."""
    options = parser("attack", "Attack a kubelet, and measure what that costs a good plugin.")
    add_choice(options)
    options.add_argument(
        "--json", type=Path, metavar="FILE", help="add the results to this JSON file"
    )
    options.add_argument(
        "--compare",
        type=Path,
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        help="only print a table of two files that --json has written",
    )
    options.add_argument(
        "--planted",
        action="store_true",
        help="run the attacks with the bugs that they guard against: each must fail",
    )
    given = options.parse_args(arguments)
    if given.compare:
        print(comparison(attacks(), *map(load, given.compare)))
        return 0
    chosen, status = choose("attack", attacks(), given)
    if status is not None:
        return status
    if given.planted:
        return _with_bugs(chosen)
    run, wrong = Run("attack"), list[str]()
    run.say("  ".join(["attack".ljust(_WIDTH), *_HEADS, "verdict"]))
    for attack in chosen:
        quiet, outcome = _outcome(attack)
        run.say(row(attack, outcome, quiet))
        wrong += [attack.name] if any(broken(attack.limits, outcome, quiet)) else []
        if given.json is not None:
            # Save after each attack: a full run takes long and may be interrupted.
            save(given.json, {attack.name: outcome})
    run.problems += [f"broken: {', '.join(wrong)}"] if wrong else []
    return run.finish(f"{len(chosen) - len(wrong)} of {len(chosen)} attacks held", "none broken")


def _with_bugs(chosen: Sequence[Attack]) -> int:
    run = Run("attack")
    planted = [each for each in chosen if each.guard.planted]
    missed, failed = list[str](), list[str]()
    for attack in planted:
        try:
            quiet = measure()
            with selected(attack.guard.planted, quiet.slowness):
                found = list(broken(attack.limits, attack.run(), quiet))
        # Not noticed, either: an attack that could not be carried out proves nothing.
        except Exception as error:
            found = [f"NOT CARRIED OUT: {error!r}"]
            failed.append(attack.name)
        else:
            missed += [] if found else [attack.name]
        run.say(f"{attack.name:{_WIDTH}}  {attack.guard.planted}: {(found or ['NOT NOTICED'])[0]}")
    for what, names in (("not noticed", missed), ("not carried out", failed)):
        run.problems += [f"{what}: {', '.join(names)}"] if names else []
    return run.finish(f"{len(planted)} attacks with planted bugs", "all noticed")


def _outcome(attack: Attack) -> tuple[Quiet, Outcome]:
    """Measure the times without an attack, then run the attack. Return both results."""
    quiet = Quiet()
    # An attack that could not be carried out proves nothing, so this is a problem, too.
    try:
        # Measured each time: the load of a shared machine changes within minutes.
        quiet = measure()
        return quiet, attack.run()
    except Exception as error:
        return quiet, Outcome(problems=(f"the attack could not be carried out: {error!r}",))


def row(attack: Attack, outcome: Outcome, quiet: Quiet | None = None) -> str:
    """Return the table row of an attack, followed by one line per problem."""
    cells = [
        _number(getattr(outcome, name)).rjust(len(title))
        for name, title in zip(FIGURES, _HEADS, strict=True)
    ]
    wrong = list(broken(attack.limits, outcome, quiet))
    line = "  ".join([attack.name.ljust(_WIDTH), *cells, "BROKEN" if wrong else "held"])
    return "\n".join([line, *(f"    {each}" for each in wrong)])


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def save(path: Path, results: Results) -> None:
    """Add results to a JSON file. Results of other attacks in the file are kept."""
    new = {name: attrs.asdict(outcome) for name, outcome in results.items()}
    path.write_text(json.dumps(_raw(path) | new, indent=1) + "\n")


def load(path: Path) -> dict[str, Outcome]:
    """Return the results in a file that ``save`` has written, by name of the attack."""
    return {
        name: Outcome(**{**fields, "problems": tuple(fields["problems"])})
        for name, fields in _raw(path).items()
    }


def _raw(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def comparison(attacks: Sequence[Attack], before: Results, after: Results) -> str:
    """Return a Markdown table that compares the results of each attack in two files."""
    lines = [
        "| attack | " + " | ".join(_HEADS) + " | promises |",
        "| --- " * (len(_HEADS) + 2) + "|",
    ]
    for attack in attacks:
        both = before.get(attack.name), after.get(attack.name)
        if both == (None, None):
            continue
        cells = [_change(*both, name) for name in FIGURES]
        promises = " → ".join(
            "" if one is None else "; ".join(one.problems) or "kept" for one in both
        )
        lines.append(f"| {attack.name}: {attack.about} | " + " | ".join(cells) + f" | {promises} |")
    return "\n".join(lines)


def _change(old: Outcome | None, new: Outcome | None, name: str) -> str:
    texts = ["-" if one is None else _number(getattr(one, name)) for one in (old, new)]
    return " → ".join(texts) if any(texts) else ""


if __name__ == "__main__":
    sys.exit(main())
