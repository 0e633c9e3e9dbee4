"""Targets of the fuzzer, what they may do, and limits for one input: CPU time and memory."""

from __future__ import annotations

import atexit
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

Run = Callable[[bytes], None]
"""Reads an input. Any exception is a finding."""


@attrs.frozen
class Target:
    """A reader of input from others."""

    name: str
    about: str
    """What it reads, and who has written that."""
    load: Callable[[], Run]
    """Imports the code under test and returns the reader."""
    packages: tuple[str, ...]
    """Packages whose branches guide the fuzzer."""
    words: tuple[str, ...] = ()
    """Words that the fuzzer inserts into inputs."""

    @property
    def corpus(self) -> Path:
        """The directory of its inputs."""
        return CORPUS / self.name

    def inputs(self) -> dict[str, bytes]:
        """Return the corpus by file name."""
        return {path.name: path.read_bytes() for path in sorted(self.corpus.iterdir())}


TARGETS: Final[list[Target]] = []
"""All targets of the imported modules; ``worker.targets`` imports all modules."""


def target(
    name: str, about: str, packages: str, words: str | tuple[str, ...] = ()
) -> Callable[[Callable[[], Run]], Callable[[], Run]]:
    """Register the decorated function as ``load`` of a target. Packages, and words without
    spaces, are separated by spaces."""

    def register(load: Callable[[], Run]) -> Callable[[], Run]:
        split = tuple(words.split() if isinstance(words, str) else words)
        TARGETS.append(Target(name, about, load, tuple(packages.split()), split))
        return load

    return register


def one_line(text: str) -> None:
    """Check that a text for people is one line of a readable length."""
    assert "\n" not in text, f"more than one line: {text!r:.500}"
    # Texts quote the input. They must quote only the start of a large one.
    assert len(text) < _MAX_TEXT, f"{len(text)} characters: {text!r:.500}"


@contextmanager
def rejecting(*errors: type[Exception]) -> Iterator[None]:
    """Accept these errors in the block, if their message is one line."""
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
    """An input took more time or memory than allowed."""


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1_000_000


@attrs.frozen
class Guard:
    """Runs inputs. Raises TooMuch if one takes more than allowed."""

    run: Run
    seconds: float = 1.0
    """CPU time for one input. Not elapsed time, which depends on other processes."""
    memory: float = 100.0
    """Allowed rise of the peak by one input, in MB."""

    def __call__(self, data: bytes) -> None:
        # The peak never falls, so an input is only noticed if it exceeds all before it.
        before, begin = peak(), time.process_time()
        self.run(data)
        seconds, memory = time.process_time() - begin, peak() - before
        if seconds > self.seconds:
            raise TooMuch(f"took {seconds:.2f} s for {len(data)} bytes")
        if memory > self.memory:
            raise TooMuch(f"took {memory:.0f} MB for {len(data)} bytes")
