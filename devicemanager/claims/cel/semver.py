"""Semantic versions as Kubernetes' CEL library parses them (github.com/blang/semver v4)."""

from __future__ import annotations

from functools import lru_cache, total_ordering

import attrs

_DIGITS = frozenset("0123456789")
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-0123456789")
_LARGEST = 2**64 - 1
_PARTS = ("major", "minor")

_Identifier = tuple[int, int, str]


@total_ordering
@attrs.frozen(eq=False)
class Version:
    """Semantic version. Order and equality ignore build metadata."""

    numbers: tuple[int, int, int]
    prerelease: tuple[_Identifier, ...]
    text: str
    """Text form, with build metadata."""

    @property
    def _precedence(self) -> tuple[tuple[int, int, int], bool, tuple[_Identifier, ...]]:
        return self.numbers, not self.prerelease, self.prerelease

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._precedence == other._precedence

    def __lt__(self, other: Version) -> bool:
        return self._precedence < other._precedence

    def __hash__(self) -> int:
        return hash(self._precedence)


@lru_cache(maxsize=4096)
def parse_version(text: str) -> Version:
    """Parse a semantic version. Raises ValueError with the message of the Go package."""
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    major, minor = (_number(part, name) for part, name in zip(parts[:2], _PARTS, strict=True))
    rest, has_build, build = parts[2].partition("+")
    patch, has_prerelease, prerelease = rest.partition("-")
    number = _number(patch, "patch")
    identifiers = prerelease.split(".") if has_prerelease else []
    found = tuple([_identifier(each) for each in identifiers])
    if has_build:
        _check_build(build)
    return Version((major, minor, number), found, text)


def parse_tolerant(text: str) -> Version:
    """Parse a version that may start with ``v``, omit parts, or have leading zeros. Raises
    ValueError with the message of the Go package."""
    # ``normalizeAndParse`` in apiserver/pkg/cel/library/semverlib.go, v0.36.
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise ValueError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return parse_version(".".join(parts))


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    part = part.lstrip("0")
    return part if part[:1] in _DIGITS and part else "0" + part


def _number(text: str, name: str) -> int:
    if not _DIGITS.issuperset(text):
        raise ValueError(f'Invalid character(s) found in {name} number "{text}"')
    if len(text) > 1 and text.startswith("0"):
        raise ValueError(f'{name.capitalize()} number must not contain leading zeroes "{text}"')
    return _uint(text)


def _uint(text: str) -> int:
    if not text:
        raise ValueError('strconv.ParseUint: parsing "": invalid syntax')
    # Long texts are not converted, because that takes quadratic time.
    if len(text) > 20 or int(text) > _LARGEST:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _identifier(text: str) -> _Identifier:
    """Return the sort key of a prerelease identifier. Numeric identifiers sort first."""
    if not text:
        raise ValueError("Prerelease is empty")
    if _DIGITS.issuperset(text):
        if len(text) > 1 and text.startswith("0"):
            raise ValueError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
        return 0, _uint(text), ""
    if not _WORD.issuperset(text):
        raise ValueError(f'Invalid character(s) found in prerelease "{text}"')
    return 1, 0, text


def _check_build(text: str) -> None:
    for part in text.split("."):
        if not part:
            raise ValueError("Build meta data is empty")
        if not _WORD.issuperset(part):
            raise ValueError(f'Invalid character(s) found in build meta data "{part}"')
