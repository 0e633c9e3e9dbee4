"""Values of device attributes: their types, their equality, and semantic versions."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache, total_ordering
from typing import NamedTuple

import attrs

_NUMBER = r"(0|[1-9][0-9]*)"
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?\Z"
)
_MAX_SEMVER = 256

_Identifier = tuple[int, int, str]
_Precedence = tuple[int, int, int, int, tuple[_Identifier, ...]]


class AttributeType(StrEnum):
    """Type of a device attribute: text, integer, quantity or semantic version."""

    STRING = "string"
    INT = "int"
    QUANTITY = "quantity"
    SEMVER = "semver"


class AttributeValue(NamedTuple):
    """Value of a device attribute. ``==`` follows ``EqualValue`` of devmgmtproto.k8s.io/v1alpha1.

    Quantities are equal if their amounts are equal. Versions are equal if their texts are equal, so
    ``1.0.0+a`` differs from ``1.0.0+b``.
    """

    type: AttributeType
    value: str | int
    """Text for STRING and SEMVER, number for INT, amount in nano-units for QUANTITY."""


@total_ordering
@attrs.frozen(eq=False)
class SemVer:
    """A semantic version (semver.org, 2.0.0).

    ``==`` and ``<`` compare precedence, and ignore build metadata (``+...``). ``text`` contains the
    build metadata.
    """

    text: str
    precedence: _Precedence

    @classmethod
    def parse(cls, text: str) -> SemVer:
        """Parse a semantic version. Raises ValueError for any other text."""
        return cls(text, _precedence(text))

    @property
    def major(self) -> int:
        """First number of the version."""
        return self.precedence[0]

    @property
    def minor(self) -> int:
        """Second number of the version."""
        return self.precedence[1]

    @property
    def patch(self) -> int:
        """Third number of the version."""
        return self.precedence[2]

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemVer) and self.precedence == other.precedence

    def __lt__(self, other: SemVer) -> bool:
        return self.precedence < other.precedence

    def __hash__(self) -> int:
        return hash(self.precedence)


@lru_cache(maxsize=4096)
def _precedence(text: str) -> _Precedence:
    match = _SEMVER.match(text) if len(text) <= _MAX_SEMVER else None
    if match is None:
        raise ValueError(
            "not a semantic version: expected MAJOR.MINOR.PATCH, such as 1.2.3 or 1.2.3-rc.1,"
            f" at most {_MAX_SEMVER} characters"
        )
    major, minor, patch, prerelease = match.groups()
    # A version without pre-release identifiers sorts after all versions with them.
    identifiers = tuple(map(_identifier, prerelease.split("."))) if prerelease else ()
    return int(major), int(minor), int(patch), int(not prerelease), identifiers


def _identifier(text: str) -> _Identifier:
    """Return the sort key of a pre-release identifier (semver.org, clause 11.4).

    Numbers sort by value, words by code point. Numbers come before words.
    """
    return (0, int(text), "") if text.isdigit() else (1, 0, text)
