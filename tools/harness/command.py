"""Command line of a tool: options, the selection of cases, the verdict and the exit status."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

import attrs

from devicemanager.core.errors import DeviceManagerError
from tools.harness.model import Broken
from tools.harness.process import RequestFailed

USAGE: Final = 2
"""Exit status for wrong usage."""


def parser(
    tool: str, description: str, **options: tuple[int | float | Path, str]
) -> argparse.ArgumentParser:
    """Return the parser of a tool's options. ``options`` maps names to default values and help
    texts."""
    found = argparse.ArgumentParser(prog=f"python -m tools.{tool}", description=description)
    for name, (default, text) in options.items():
        found.add_argument(
            f"--{name}",
            type=type(default) if isinstance(default, int | float) else Path,
            default=default,
            metavar="FILE" if isinstance(default, Path) else "N",
            help=f"{text} (%(default)s)",
        )
    return found


class Case(Protocol):
    """Part of a tool that can be selected by its name."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...


AnyCase = TypeVar("AnyCase", bound=Case)


def add_choice(to: argparse.ArgumentParser) -> None:
    """Add the options that :func:`choose` reads."""
    to.add_argument("--list", action="store_true", help="print the names and exit")
    to.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="run only these; a name or a pattern such as 'list-*', repeatable",
    )
    to.add_argument(
        "--skip", action="append", default=[], metavar="NAME", help="do not run these; repeatable"
    )


def choose(
    tool: str, cases: Sequence[AnyCase], options: argparse.Namespace
) -> tuple[list[AnyCase], int | None]:
    """Return the cases that the options select, and an exit status if there is nothing to run."""

    def is_in(case: AnyCase, patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)

    chosen = [
        case
        for case in cases
        if (not options.only or is_in(case, options.only)) and not is_in(case, options.skip)
    ]
    if options.list:
        print(*(f"{case.name:30} {case.about}" for case in chosen), sep="\n")
        return chosen, 0
    # If no case was selected, fail: a misspelled name must not look like a successful run.
    if not chosen:
        print(f"{tool}: no case has this name: see --list", file=sys.stderr)
        return chosen, USAGE
    return chosen, None


@attrs.define
class Run:
    """Run of a tool, with its broken promises and its verdict."""

    tool: str
    seed: int | None = None
    problems: list[str] = attrs.field(factory=list)
    _begin: float = attrs.field(factory=time.monotonic)

    def say(self, line: str) -> None:
        """Print a line and flush it: a run can take an hour, and its output is often piped."""
        print(line, flush=True)

    # InternalError counts as a broken promise, too: self_check raises it.
    @contextmanager
    def recording_problems(self) -> Iterator[None]:
        """Record a broken promise in the block instead of raising it. Other errors are bugs of the
        tool."""
        try:
            yield
        except (Broken, DeviceManagerError, RequestFailed) as error:
            self.problems.append(str(error))

    def finish(self, summary: str, good: str) -> int:
        """Print the verdict and return the exit status. ``good`` is the text for a run without
        problems."""
        seed = "" if self.seed is None else f"seed {self.seed}, "
        self.say(
            f"{self.tool}: {'FAILED' if self.problems else 'ok'}: {seed}"
            f"{time.monotonic() - self._begin:.0f} s, {summary}: {'; '.join(self.problems) or good}"
        )
        return 1 if self.problems else 0


def counts(of: Mapping[str, int]) -> str:
    """Return counters as text, sorted by name."""
    return ", ".join(f"{count} {name}" for name, count in sorted(Counter(of).items()))
