"""Code that all replays share: outcomes, reading of files, comparison, the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import attrs

_SHOWN = 200


class ReplayError(Exception):
    """The file cannot be replayed; the message is one line for the user."""


@attrs.frozen
class Outcome:
    """Result of one vector; it agrees if there are no differences."""

    id: str
    differences: list[str]


def read_vectors(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file with one per line; skip blank lines.

    Raises ReplayError with the line number for any other content.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReplayError(f"{path}: is not UTF-8 at byte {error.start}") from error
    count = 0
    # Not splitlines(): it also splits at U+2028, which a JSON string may contain unescaped.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            count += 1
            yield _vector(path, number, line)
    if not count:
        raise ReplayError(f"{path}: no vectors: expected one JSON object per line")


def _vector(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        vector = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"{path}: line {number} is not JSON: {error}") from error
    if not isinstance(vector, dict):
        raise ReplayError(f"{path}: line {number} is not a JSON object")
    return vector


def difference(what: str, expected: object, actual: object) -> list[str]:
    """Compare two values. Return no text if they are equal, else one text that shows where they
    differ."""
    if expected == actual:
        return []
    if isinstance(expected, str | bytes) and isinstance(actual, str | bytes):
        return [f"{what}: {_text_difference(expected, actual)}"]
    return [f"{what}:\n  expected {_cut(repr(expected))}\n  actual   {_cut(repr(actual))}"]


def _text_difference(expected: str | bytes, actual: str | bytes) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b),
        min(len(expected), len(actual)),
    )
    # Some text before the difference shows where it is.
    start = max(0, at - 30)
    window = slice(start, start + _SHOWN)
    return (
        f"differs at {at} (lengths {len(expected)} and {len(actual)})\n"
        f"  expected …{expected[window]!r}…\n"
        f"  actual   …{actual[window]!r}…"
    )


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}… ({len(text)} characters)"


def report(outcomes: Iterable[Outcome], out: TextIO) -> int:
    """Print differences and ``N of M agree``. Return 0 if there are vectors and all agree."""
    total = agreed = 0
    for outcome in outcomes:
        total += 1
        if not outcome.differences:
            agreed += 1
            continue
        print(f"{outcome.id}: disagrees", file=out)
        for text in outcome.differences:
            print("  " + text.replace("\n", "\n  "), file=out)
    print(f"{agreed} of {total} agree", file=out)
    return 0 if total and agreed == total else 1
