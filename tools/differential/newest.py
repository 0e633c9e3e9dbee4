"""Find the newest published release of Kubernetes."""

from __future__ import annotations

import re

from devicemanager.core.versions.version import NEWEST_KNOWN
from tools.differential.building import BuildError, published
from tools.differential.versions import minor

_RELEASE = re.compile(r"v(1\.\d+\.\d+)")


def newest_release() -> str:
    """Return the newest release that Go's module proxy lists, such as ``1.37.2``.

    Raises BuildError.
    """
    # Skip pre-releases, such as v1.38.0-alpha.1.
    releases = [found[1] for each in published() if (found := _RELEASE.fullmatch(each))]
    if not releases:
        raise BuildError("Go's module proxy lists no release of Kubernetes")
    return max(releases, key=lambda each: tuple(map(int, each.split("."))))


def profile_of(release: str) -> str:
    """Return the kubelet version for a release: its own, or else the newest known."""
    return release if minor(release) <= NEWEST_KNOWN else f"1.{NEWEST_KNOWN}"
