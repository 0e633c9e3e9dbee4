"""Kubelet versions such as ``1.28.2``; ``1.28`` stands for the newest patch release of 1.28."""

from __future__ import annotations

import re
from functools import total_ordering
from typing import NamedTuple

import attrs

_FORM = re.compile(r"v?1\.(\d{1,3})(?:\.(\d{1,4}))?")
# "1.28" means the newest patch release of 1.28, so it must sort after all patch releases.
_NEWEST_PATCH = 10_000


class VersionError(ValueError):
    """Error for an unknown kubelet version, feature gate or quirk; the message lists the valid
    values."""


@total_ordering
@attrs.frozen(order=False)
class KubeletVersion:
    """A kubelet version, ``1.minor.patch``. Without a patch, it stands for the newest patch release
    of the minor version."""

    minor: int
    patch: int | None = None

    @classmethod
    def parse(cls, text: object) -> KubeletVersion:
        """Parse a kubelet version such as ``1.28`` or ``v1.28.2``.

        Raises VersionError for an invalid or unknown version.
        """
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise VersionError(
                f"invalid kubelet version {text!r}: use a version such as 1.{DEFAULT} or 1.28.2"
            )
        minor, patch = int(found[1]), found[2]
        if not OLDEST <= minor <= NEWEST_KNOWN:
            raise VersionError(
                f"unknown kubelet version {text!r}: use 1.{OLDEST} to 1.{NEWEST_KNOWN}"
            )
        return cls(minor, None if patch is None else int(patch))

    @property
    def _key(self) -> tuple[int, int]:
        return self.minor, _NEWEST_PATCH if self.patch is None else self.patch

    def __lt__(self, other: KubeletVersion) -> bool:
        return self._key < other._key

    @property
    def release(self) -> str:
        """The version as a release, such as ``v1.28.2``.

        ``1.28`` gives ``v1.28.0``, although a version without a patch stands for the newest patch
        release.
        """
        return f"v1.{self.minor}.{self.patch or 0}"

    def __str__(self) -> str:
        return f"1.{self.minor}" + ("" if self.patch is None else f".{self.patch}")


class Verified(NamedTuple):
    """A comparison of the mock with the device manager of a kubelet release, in random scenarios.
    The comparison found no difference."""

    release: str
    scenarios: int
    seed: int


OLDEST = 20
DEFAULT = 37
"""The newest stable minor version that was compared with the real device manager."""
NEWEST_KNOWN = 38
"""The newest minor version that can be selected. It is a preview: the version is not released
yet."""
ANCHORS = ("1.24", "1.28", "1.32", "1.36", "1.37")
"""Versions to test a plugin with: together they cover nearly all differences that a plugin can
observe."""
