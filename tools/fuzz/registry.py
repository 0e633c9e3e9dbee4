"""All targets, and running their corpus without a fuzzer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.fuzz import claims, controlapi, files, messages, snapshots
from tools.fuzz.guard import Guard
from tools.fuzz.model import Target


def targets() -> list[Target]:
    """Every target."""
    return [
        target
        for module in (files, messages, claims, controlapi, snapshots)
        for target in module.targets()
    ]


def named(name: str) -> Target:
    """The target of that name."""
    (found,) = (target for target in targets() if target.name == name)
    return found


def main(arguments: Sequence[str]) -> None:
    """``TARGET FILE``: run one input, as the fuzzer would but unwatched. A finding ends it
    with a traceback."""
    name, path = arguments
    run = Guard(named(name).load())
    run(b"")  # what is loaded at first use is not the input's doing
    run(Path(path).read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
