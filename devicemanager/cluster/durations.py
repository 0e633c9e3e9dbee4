"""Durations in options and annotations, such as ``1m30s`` and ``1s±0.5s``."""

from __future__ import annotations

import re
import zlib
from typing import Final

import attrs

from devicemanager.client.rate_limited_warning import truncate

__all__ = ["NO_TIME", "ONE_SECOND", "Range", "seconds"]

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|s|m|h)")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_MAX_LENGTH: Final = 60
"""Maximum length of the text of a duration, in characters."""
_MAX_SECONDS: Final = 10 * 365 * 24 * 3600.0


def seconds(text: str) -> float:
    """Parse a duration such as ``30s``, ``1m30s``, ``500ms`` or ``2``, and return it in seconds.

    Raises ValueError for an invalid duration.
    """
    if _NUMBER.fullmatch(text):
        found = float(text)
    else:
        # The length is limited because annotations can have 256 KiB, and the search takes
        # quadratic time.
        parts = _PART.findall(text) if len(text) <= _MAX_LENGTH else []
        if not parts or "".join(map("".join, parts)) != text:
            raise ValueError(
                f"invalid duration {truncate(text)!r}: use a form such as 30s, 1m30s or 500ms"
            )
        found = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if found > _MAX_SECONDS:
        raise ValueError(f"invalid duration {truncate(text)!r}: use at most 10 years")
    return found


@attrs.frozen
class Range:
    """A duration that differs between pods: ``seconds``, plus or minus up to ``spread`` seconds."""

    seconds: float = 0.0
    spread: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Range:
        """Parse a duration with an optional spread, such as ``1s``, ``1s±0.5s`` or ``1s+-0.5s``.

        Raises ValueError for any other text.
        """
        # ``+-`` is for keyboards without ±.
        middle, sign, spread = text.replace("+-", "±").partition("±")
        return cls(seconds(middle.strip()), seconds(spread.strip()) if sign else 0.0)

    def of(self, uid: str) -> float:
        """Return the duration for the pod with this UID, in seconds.

        The same UID always has the same duration, which is at least 0.
        """
        if not self.spread:
            return self.seconds
        # A hash of the UID instead of a random number: a process that takes over the pod gets the
        # same duration.
        part = zlib.crc32(uid.encode()) / 0xFFFFFFFF
        return max(0.0, self.seconds + (2 * part - 1) * self.spread)


NO_TIME: Final = Range()
ONE_SECOND: Final = Range(1.0)
