"""The releases of Kubernetes whose device manager is built and compared with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["RELEASES", "minor", "release", "staging_version"]

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
        ("1.31.14", "k8s.io/csi-translation-lib"): "v0.32.10",
        ("1.31.14", "k8s.io/kube-scheduler"): "v0.32.10",
        ("1.32.13", "k8s.io/cri-client"): "v0.32.10",
        ("1.32.13", "k8s.io/csi-translation-lib"): "v0.32.10",
        ("1.32.13", "k8s.io/kube-scheduler"): "v0.32.10",
    }
)
"""Modules that cannot be had of a release, and the version that is taken instead. The device
manager imports what imports them; it does not use them."""


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
