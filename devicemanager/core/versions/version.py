"""Kubelet versions: ``1.28`` is the newest patch of its minor, ``1.28.2`` one patch."""

from __future__ import annotations

import re
from functools import total_ordering

import attrs

__all__ = [
    "ANCHORS",
    "NEWEST",
    "NEWEST_KNOWN",
    "OLDEST",
    "VERIFIED",
    "KubeletVersion",
    "VersionError",
]

_FORM = re.compile(r"v?1\.(\d{1,3})(?:\.(\d{1,4}))?")
_NEWEST_PATCH = 10_000


class VersionError(ValueError):
    """A version, a feature gate or a quirk that there is not; one line that names the choices."""


@total_ordering
@attrs.frozen(order=False)
class KubeletVersion:
    """``1.minor.patch``; without a patch the newest of the minor."""

    minor: int
    patch: int | None = None

    @classmethod
    def parse(cls, text: object) -> KubeletVersion:
        """A version from its text. Raises VersionError if it is none that is known."""
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise VersionError(
                f"kubelet version {text!r} is no version: write it as '1.{VERIFIED}' or '1.28.2'"
            )
        minor, patch = int(found[1]), found[2]
        if not OLDEST <= minor <= NEWEST_KNOWN:
            raise VersionError(
                f"kubelet version {text!r} is not known: 1.{OLDEST} to 1.{NEWEST_KNOWN} are"
            )
        return cls(minor, None if patch is None else int(patch))

    @property
    def _key(self) -> tuple[int, int]:
        return self.minor, _NEWEST_PATCH if self.patch is None else self.patch

    def __lt__(self, other: KubeletVersion) -> bool:
        return self._key < other._key

    def __str__(self) -> str:
        return f"1.{self.minor}" + ("" if self.patch is None else f".{self.patch}")


OLDEST = 20
VERIFIED = 36
"""The newest minor whose device manager was run beside ours."""
NEWEST = 37
"""The newest stable minor; described, not proved."""
NEWEST_KNOWN = 38
ANCHORS = ("1.24", "1.28", "1.32", "1.36", "1.37")
"""Versions between which lies nearly everything that a plugin can notice."""
