"""Releases of Kubernetes to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

RELEASES: Final = (
    "1.25.16",
    "1.26.15",
    "1.27.16",
    "1.28.15",
    "1.29.6",
    "1.30.14",
    "1.31.14",
    "1.32.13",
    "1.33.13",
    "1.34.4",
    "1.35.4",
    "1.36.3",
    "1.37.2",
)
"""One release per minor version, in ascending order."""

_NEIGHBOURS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("1.27.16", "k8s.io/csi-translation-lib"): "v0.27.15",
        ("1.27.16", "k8s.io/dynamic-resource-allocation"): "v0.27.15",
        ("1.31.14", "k8s.io/cri-client"): "v0.32.10",
        ("1.31.14", "k8s.io/csi-translation-lib"): "v0.31.12",
        ("1.31.14", "k8s.io/kube-scheduler"): "v0.31.10",
        ("1.32.13", "k8s.io/cri-client"): "v0.32.10",
        ("1.32.13", "k8s.io/csi-translation-lib"): "v0.32.10",
        ("1.32.13", "k8s.io/endpointslice"): "v0.32.11",
        ("1.32.13", "k8s.io/kube-scheduler"): "v0.32.10",
    }
)
"""Modules that Go's module proxy does not serve for a release, with the version to use instead.

The device manager imports them only indirectly and does not call them. The controller manager calls
endpointslice."""
PINNED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"1.31.14": ("sigs.k8s.io/structured-merge-diff/v4 v4.4.1",)}
)
"""Modules to pin to the release's version: modules from ``_NEIGHBOURS`` require newer ones."""


def release(version: str) -> str:
    """Return the release of a version such as ``1.34`` or ``1.34.4``. Raises ValueError."""
    for each in RELEASES:
        if version in (each, each.rpartition(".")[0]):
            return each
    raise ValueError(f"{version!r} is not supported: use one of {', '.join(RELEASES)}")


def minor(of: str) -> int:
    """Return the minor version: 34 for ``1.34.4``."""
    return int(of.split(".")[1])


def staging_version(of: str, module: str) -> str:
    """Return the version of a Kubernetes staging module, such as ``v0.34.4``."""
    return _NEIGHBOURS.get((of, module), f"v0.{of.partition('.')[2]}")
