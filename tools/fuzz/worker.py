"""The process that fuzzes: ``TARGET``, then options of libFuzzer and directories of inputs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import atheris
from atheris.import_hook import instrument_imports

from tools.fuzz.guard import Guard
from tools.fuzz.registry import named

_WATCHED_SECONDS = 4.0
"""What is watched is slower; the command runs a slow input again, unwatched."""


def main(arguments: Sequence[str]) -> None:
    """Fuzz until an option ends it, or a finding."""
    name, *options = arguments
    target = named(name)
    with instrument_imports(include=list(target.packages)):
        run = target.load()
        run(b"")
    atheris.Setup([name, *options], Guard(run, seconds=_WATCHED_SECONDS))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
