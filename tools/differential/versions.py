"""The releases of Kubernetes whose device manager is built and compared with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["RELEASES", "minor", "quirks_of", "release", "staging_version"]

RELEASES: Final = (
    "1.29.6",
    "1.30.14",
    "1.31.14",
    "1.32.13",
    "1.33.13",
    "1.34.4",
    "1.35.4",
    "1.36.3",
)
"""One a minor, ascending."""

_NEIGHBOURS: Final[Mapping[str, str]] = MappingProxyType(
    {"1.31.14": "0.31.10", "1.32.13": "0.32.10"}
)
"""Releases of which the modules below were never published, and what is taken for them."""
_MISSING: Final = frozenset({"k8s.io/cri-client", "k8s.io/kube-scheduler"})


def release(asked: str) -> str:
    """The release of a version such as ``1.34`` or ``1.34.4``. Raises ValueError."""
    for each in RELEASES:
        if asked in (each, each.rpartition(".")[0]):
            return each
    raise ValueError(f"{asked!r} is not compared with: choose from {', '.join(RELEASES)}")


def minor(of: str) -> int:
    """``34`` of ``1.34.4``."""
    return int(of.split(".")[1])


def staging_version(of: str, module: str) -> str:
    """The version of one of Kubernetes' own modules, such as ``v0.34.4``."""
    if module in _MISSING and of in _NEIGHBOURS:
        return f"v{_NEIGHBOURS[of]}"
    return f"v0.{of.partition('.')[2]}"


def quirks_of(version: str) -> frozenset[str]:
    """The defects of ours that are switched on to be compared with this version."""
    number = minor(version)
    found = {"Q4", "Q5", "Q10", "Q13", "Q14", "Q16", "Q21", "Q1", "Q3"}
    return frozenset(found | ({"Q8", "Q9"} if number >= 31 else set()))
