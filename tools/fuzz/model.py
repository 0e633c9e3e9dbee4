"""Model of a fuzz target, and limits of CPU time and memory for one input."""

from __future__ import annotations

import atexit
import json
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

CORPUS: Final = Path(__file__).parent / "corpus"
_MAX_TEXT: Final = 4000
_TEXT: Final = json.dumps({f"key-{number}": [number] * 10 for number in range(100)})
_UNIT: Final = 200
"""Number of times that ``unit`` parses the text."""
_LEAST: Final = 0.005
"""Minimum time of the unit in seconds. Shorter measured times are rounded up, because they vary
most."""

Run = Callable[[bytes], None]
"""Function that reads one input. Any exception is a finding."""


@attrs.frozen
class Target:
    """Fuzz target: code that reads untrusted input."""

    name: str
    about: str
    """Kind of input that the target reads, and who writes it."""
    load: Callable[[], Run]
    """Function that imports the code under test and returns the function that reads inputs."""
    guards: str
    """The bug that the target guards against, as it would affect a user."""
    packages: tuple[str, ...]
    """Names of the packages whose branches guide the fuzzer."""
    planted: str
    """Name of a planted bug (``tools.harness.planted``) with which the corpus must have a
    finding."""
    words: tuple[str, ...] = ()
    """Words that the fuzzer inserts into inputs."""

    @property
    def corpus(self) -> Path:
        """Directory of the target's inputs."""
        return CORPUS / self.name

    def inputs(self) -> dict[str, bytes]:
        """Return the inputs of the corpus by file name."""
        return {path.name: path.read_bytes() for path in sorted(self.corpus.iterdir())}


TARGETS: Final[list[Target]] = []
"""Targets of all modules that were imported. ``worker.targets`` imports all modules."""


def target(
    name: str,
    about: str,
    guards: str,
    packages: str,
    *,
    planted: str,
    words: str | tuple[str, ...] = (),
) -> Callable[[Callable[[], Run]], Callable[[], Run]]:
    """Register the decorated function as the ``load`` of a target. The arguments are the fields of
    ``Target``. In ``packages``, spaces separate the names. ``words`` can be such a text, too.
    """

    def register(load: Callable[[], Run]) -> Callable[[], Run]:
        split = tuple(words.split() if isinstance(words, str) else words)
        TARGETS.append(Target(name, about, load, guards, tuple(packages.split()), planted, split))
        return load

    return register


def one_line(text: str) -> None:
    """Raise AssertionError if a text for people has several lines or is unreadably long."""
    assert "\n" not in text, f"more than one line: {text!r:.500}"
    # Error texts quote the input. They must quote only the beginning of a large input.
    assert len(text) < _MAX_TEXT, f"{len(text)} characters: {text!r:.500}"


@contextmanager
def rejecting(*errors: type[Exception]) -> Iterator[None]:
    """Accept these errors in the block if their message is one line. Other errors are findings."""
    try:
        yield
    except errors as error:
        one_line(str(error))


def scratch() -> Path:
    """Return a new directory that is removed when the process exits."""
    directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


class TooMuch(Exception):
    """Error for an input that took more time or memory than allowed."""


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1_000_000


def unit() -> float:
    """Return the CPU time of a fixed piece of work, in seconds: about 0.01 on an idle machine."""
    begin = time.process_time()
    for _ in range(_UNIT):
        json.loads(_TEXT)
    return max(time.process_time() - begin, _LEAST)


@attrs.frozen
class Guard:
    """Function that runs one input. It raises TooMuch if the input takes too much time or
    memory."""

    run: Run
    times: float = 100.0
    """Limit of CPU time for one input, as a multiple of ``unit``. So the limit does not depend on
    other processes or on the speed of the machine."""
    memory: float = 100.0
    """Limit for the growth of the process's peak memory by one input, in MB."""
    _unit: float = attrs.field(factory=unit)

    def __call__(self, data: bytes) -> None:
        # The peak never falls. Therefore an input is only noticed if it uses more memory than all
        # earlier inputs.
        before, begin = peak(), time.process_time()
        self.run(data)
        seconds, memory = time.process_time() - begin, peak() - before
        if seconds > self.times * self._unit:
            raise TooMuch(
                f"an input of {len(data)} bytes took {seconds:.2f} s, {seconds / self._unit:.0f} "
                f"times the unit of this machine; the limit is {self.times:g} times"
            )
        if memory > self.memory:
            raise TooMuch(
                f"an input of {len(data)} bytes took {memory:.0f} MB, limit {self.memory:g} MB"
            )
