"""What a target of the fuzzer is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from tools.fuzz.guard import Run

CORPUS: Final = Path(__file__).parent / "corpus"


@attrs.frozen
class Target:
    """One reader of what others wrote."""

    name: str
    about: str
    """What it reads, and who wrote that."""
    load: Callable[[], Run]
    """Imports what is to be fuzzed: so late that the fuzzer can watch it."""
    packages: tuple[str, ...]
    """Whose branches guide the fuzzer."""
    words: tuple[str, ...] = ()
    """What inputs are made of besides bytes."""

    @property
    def corpus(self) -> Path:
        """The directory of its inputs."""
        return CORPUS / self.name

    def inputs(self) -> dict[str, bytes]:
        """The corpus, by name of the file."""
        return {path.name: path.read_bytes() for path in sorted(self.corpus.iterdir())}
