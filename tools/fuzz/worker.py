"""Run a target in this process. Arguments: ``fuzz TARGET OPTIONS...`` or ``replay TARGET FILE``.

OPTIONS are options of libFuzzer, followed by directories of inputs. This module must not import the
code under test: only imports inside ``Target.load`` are instrumented for the fuzzer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.fuzz import files, messages  # noqa: F401  # they register the targets
from tools.fuzz.model import TARGETS, Guard, Target

_INSTRUMENTED_TIMES = 400.0
"""Limit of CPU time for one input of instrumented code, which is slower (``Guard.times``).

``__main__`` runs a slow input again without instrumentation.
"""


def targets() -> list[Target]:
    """Return all targets. The modules above register them when they are imported."""
    return TARGETS


def main(arguments: Sequence[str]) -> None:
    """Fuzz a target until libFuzzer stops, or run one input. A finding is printed as a
    traceback."""
    action, name, *rest = arguments
    (target,) = (each for each in TARGETS if each.name == name)
    if action == "replay":
        run = Guard(target.load())
        # Run an empty input first: lazy imports must not count as time and memory of an input.
        run(b"")
        run(Path(rest[0]).read_bytes())
        return
    import atheris
    from atheris.import_hook import instrument_imports

    with instrument_imports(include=list(target.packages)):
        fuzzed = target.load()
        fuzzed(b"")
    atheris.Setup([name, *rest], Guard(fuzzed, times=_INSTRUMENTED_TIMES))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
