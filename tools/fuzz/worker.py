"""The process that runs a target: ``fuzz TARGET OPTIONS...`` or ``replay TARGET FILE``.

Options are those of libFuzzer, then directories of inputs. Nothing here imports the code under
test: only imports inside ``Target.load`` are instrumented for the fuzzer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.fuzz import files, messages  # noqa: F401  # they register the targets
from tools.fuzz.model import TARGETS, Guard, Target

_INSTRUMENTED_SECONDS = 4.0
"""Instrumented code is slower; ``__main__`` replays a slow input without instrumentation."""


def targets() -> list[Target]:
    """Return all targets."""
    return TARGETS


def main(arguments: Sequence[str]) -> None:
    """Fuzz until an option or a finding ends it, or run one input. A finding is a traceback."""
    action, name, *rest = arguments
    (target,) = (each for each in TARGETS if each.name == name)
    if action == "replay":
        run = Guard(target.load())
        # Lazy imports must not count as time and memory of the input.
        run(b"")
        run(Path(rest[0]).read_bytes())
        return
    import atheris
    from atheris.import_hook import instrument_imports

    with instrument_imports(include=list(target.packages)):
        fuzzed = target.load()
        fuzzed(b"")
    atheris.Setup([name, *rest], Guard(fuzzed, seconds=_INSTRUMENTED_SECONDS))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
