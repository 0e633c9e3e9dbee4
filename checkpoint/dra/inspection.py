"""Read as much as possible of a damaged state file, and describe the damage.

A kubelet either loads the whole file or does not start. But to repair a node, users need all
readable contents. The file is a JSON object. Its field ``Data`` is a string with further JSON: the
claims. If any of this JSON is damaged, ``inspect`` searches the string for claims. For an
unreadable claim, it reports the names that are still readable, such as the name of the claim. It
never guesses missing data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from zlib import crc32

import attrs

from checkpoint.decode import Problem, Value, decode, decode_at, decode_text, is_text, shown
from checkpoint.dra.model import ClaimState, State
from checkpoint.dra.reading import as_in_kubelet, read_claim, read_claims, read_file
from checkpoint.dra.text import checksum
from checkpoint.errors import ChecksumMismatch

_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_CLAIM: Final = re.compile(r'\{\s*"ClaimUID"\s*:', re.IGNORECASE)
_FIELDS: Final = {
    name.casefold() for name in ("ClaimUID", "ClaimName", "Namespace", "PodUIDs", "DriverState")
}
_NAMED: Final = re.compile(r'"(ClaimUID|ClaimName|Namespace)"\s*:\s*"((?:[^"\\]|\\.)*)"')
_NOUNS: Final = {"Namespace": "namespace", "ClaimName": "name", "ClaimUID": "UID"}
_SHARES: Final = '"ShareID"'
_EFFORT: Final = 2
"""Maximum number of characters that are decoded without finding a claim, as a multiple of the
text's length. It keeps the search linear for a text with many unfinished claims."""


@attrs.frozen
class Inspection:
    """Those contents of a state file that could be read, and the problems of the file."""

    state: State
    is_complete: bool
    """True if all claims could be read. The checksum can still be wrong."""
    problems: tuple[str, ...]
    """Reasons for which a kubelet would reject the file, one line each; empty if a kubelet accepts
    it."""
    found: int | None
    """Checksum in the file; None if it is missing, invalid or possibly damaged. If it is missing,
    the kubelet assumes the checksum of an empty list of claims."""
    expected: int
    """Checksum of the text in ``Data``; if ``is_complete`` is false, checksum of the claims that
    could be read."""
    lost: tuple[str, ...] = ()
    """One line for each claim that could not be read. Claims that a truncated file does not contain
    at all have no line."""
    is_text: bool = True
    """True if the file is UTF-8. Otherwise invalid bytes were read as U+FFFD."""
    share_ids: bool = True
    """True if the devices in the file have the field ``ShareID``, which kubelets write since v1.35.
    Also true for a file without devices."""


def inspect(data: bytes) -> Inspection:
    """Return the readable contents of the state file ``data``, and its problems. Raises nothing."""
    problems: list[str] = []
    inner, found = _inner(data, problems)
    share_ids = _SHARES in inner or '"PoolName"' not in inner
    claims, lost = ((), ()) if problems else _read(inner, problems)
    is_complete = not problems
    expected = crc32(inner.encode()) if is_complete else 0
    if is_complete and as_in_kubelet(found) != expected:
        problems.append(ChecksumMismatch(expected, found).problem)
    if problems:
        # The damage may be outside the claims, or may have merged two claims.
        salvaged, missed = _salvaged(inner)
        if len(salvaged) > len(claims or ()):
            claims, lost, is_complete = salvaged, missed, False
        elif not (claims or is_complete):
            lost = missed
    if not is_complete:
        found, expected = None, checksum(State(claims), share_ids=share_ids)
    return Inspection(
        State(claims),
        is_complete,
        tuple(problems),
        found,
        expected,
        lost,
        is_text(data),
        share_ids,
    )


def _inner(data: bytes, problems: list[str]) -> tuple[str, int | None]:
    """Return the inner text, and the checksum in the file (None if it is missing or unknown).

    If the outer JSON is damaged, add a problem, and return the likely inner text.
    """
    try:
        value = decode(data)
    except Problem as problem:
        problems.append(str(problem))
        return _inner_of_damaged(data), None
    try:
        return read_file(value)
    except Problem as problem:
        problems.append(str(problem))
    # Not the entries of a file from before v1.32, which have other fields.
    text = value.get("Data") if isinstance(value, dict) else None
    return text if isinstance(text, str) else "", None


def _inner_of_damaged(data: bytes) -> str:
    """Return the likely inner text: the text of the whole file, with JSON escapes decoded."""
    # The beginning and the end of the string can be damaged, too. A bad escape becomes U+FFFD.
    return _ESCAPE.sub(_character, data.decode(errors="replace"))


def _character(escape: re.Match[str]) -> str:
    if len(escape[0]) == 1:
        return "\ufffd"
    value = decode_text(f'"{escape[0]}"')
    return value if isinstance(value, str) else ""


def _read(inner: str, problems: list[str]) -> tuple[tuple[ClaimState, ...] | None, tuple[str, ...]]:
    """Read the inner text. Return the readable claims, and a line for each lost claim.

    Add a problem for each damaged part.
    """
    try:
        values = read_claims(inner)
    except Problem as problem:
        problems.append(str(problem))
        return _salvaged(inner)
    if values is None:
        return None, ()
    lost: list[str] = []
    claims = tuple(_each(values, lost))
    problems += lost
    return claims, tuple(lost)


def _each(values: list[Value], lost: list[str]) -> Iterator[ClaimState]:
    for number, value in enumerate(values):
        try:
            yield read_claim(value, number)
        except Problem as problem:
            lost.append(str(problem))


def _salvaged(inner: str) -> tuple[tuple[ClaimState, ...], tuple[str, ...]]:
    """Search a damaged inner text for claims."""
    claims: list[ClaimState] = []
    lost: list[str] = []
    gap = position = 0
    effort = _EFFORT * len(inner)
    while effort > 0 and (start := _CLAIM.search(inner, position)):
        try:
            value, end = decode_at(inner, start.start())
            claim = _whole_claim(value, len(claims))
        except Problem as problem:
            effort -= (problem.position or start.end()) - start.start()
            position = start.end()
            continue
        lost += _lost(inner[gap : start.start()])
        claims.append(claim)
        gap = position = end
    return tuple(claims), (*lost, *_lost(inner[gap:]))


def _whole_claim(value: Value, number: int) -> ClaimState:
    """Read a claim. Raises Problem for unexpected fields: damage has then merged two claims."""
    if not isinstance(value, dict) or not {key.casefold() for key in value} <= _FIELDS:
        raise Problem("the object is not a claim")
    return read_claim(value, number)


def _lost(piece: str) -> Iterator[str]:
    """Yield a line for each incomplete claim in a piece of text, with the names found there."""
    head, *rest = _CLAIM.split(piece)
    for part in ([head] if _NAMED.search(head) else []) + [f'"ClaimUID":{each}' for each in rest]:
        named = {match[1]: match[2] for match in reversed(list(_NAMED.finditer(part)))}
        names = ", ".join(
            f"{noun} {shown(named[field])}" for field, noun in _NOUNS.items() if field in named
        )
        yield f"a claim{f' with {names}' if names else ''}"
