"""The manager to compare: the device manager, or the DRA manager (``dra``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from tools.differential.deviations import Deviation
from tools.differential.ours import Mode
from tools.differential.quirk_deviations import Rule
from tools.differential.reference import Reference
from tools.differential.running import Comparison


class Coverage(Protocol):
    """Module that defines what a long run must reach."""

    def table(self, counts: Mapping[str, int], scenarios: int, version: str) -> Iterator[str]: ...

    def missing(self, counts: Mapping[str, int], version: str) -> list[str]: ...


@attrs.frozen
class Subject:
    """A manager of the kubelet, with the functions that compare it."""

    build: Callable[..., Path]
    """Function that builds the program with a release's manager. Arguments: the release;
    ``jobs``."""
    reference: Callable[[Path], Reference]
    comparison: Callable[[Reference, str, Mode], Comparison]
    scenarios: Callable[[int, int, int], Iterable[dict[str, Any]]]
    """Function that makes scenarios. Arguments: seed, count, minor version."""
    coverage: Coverage
    deviations: tuple[Deviation | Rule, ...]
