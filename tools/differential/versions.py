"""The releases of Kubernetes whose device manager is built and compared with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["PINNED", "RELEASES", "SUMS", "minor", "release", "staging_version"]

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

_NEIGHBOURS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("1.31.14", "k8s.io/cri-client"): "v0.32.10",
        ("1.31.14", "k8s.io/csi-translation-lib"): "v0.31.12",
        ("1.31.14", "k8s.io/kube-scheduler"): "v0.31.10",
        ("1.32.13", "k8s.io/cri-client"): "v0.32.10",
        ("1.32.13", "k8s.io/csi-translation-lib"): "v0.32.10",
        ("1.32.13", "k8s.io/kube-scheduler"): "v0.32.10",
    }
)
"""Modules that cannot be had of a release, and the version that is taken instead. The device
manager imports what imports them; it does not use them."""
PINNED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"1.31.14": ("sigs.k8s.io/structured-merge-diff/v4 v4.4.1",)}
)
"""What a release asks for itself, where its neighbours' modules ask for more than it bears."""

_DYNAMIC = "k8s.io/dynamic-resource-allocation v0.31.14"
SUMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "1.31.14": (
            f"{_DYNAMIC} h1:/ZOE6e3IH7yzkeLyzA16r2/oV4bSUCEQfFOq+hpKH/M=",
            f"{_DYNAMIC}/go.mod h1:sTsLtbrSAZw9tzv+aJz9SapfD/Rb+zRs5LOTKSDuuAM=",
        ),
    }
)
"""Lines of a release's go.sum for modules that Go's checksum database may not answer for: as
Go's module proxy had them."""


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
    return _NEIGHBOURS.get((of, module), f"v0.{of.partition('.')[2]}")
