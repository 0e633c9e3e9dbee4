"""Rules for lists and maps in API objects: length, items, unique items (``validateSlice``,
``validateSet`` and ``validateMap``).

Each check yields one ``FieldError`` per broken rule; ``at`` is the path of the checked field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.objects.dra.errors import Errors, FieldError, duplicate, too_many

__all__ = ["bounded", "each_entry", "items", "unique"]

_Check = Callable[[str, Any], Errors]


def items(at: str, values: Sequence[Any] | None, check: _Check) -> Errors:
    """Check each item of a list."""
    for number, each in enumerate(values or ()):
        yield from check(f"{at}[{number}]", each)


def bounded(
    at: str, values: Sequence[Any] | None, most: int, check: _Check, *, is_declared: bool = True
) -> Errors:
    """Check that a list has at most ``most`` items, then check the items.

    ``is_declared``: True if the limit is a validation tag of the API (``FieldError.declared``).
    """
    # As in ``validateSlice``, the items are then not checked: a protection against huge lists.
    if values and len(values) > most:
        yield _with(too_many(at, len(values), most), is_declared)
        return
    yield from items(at, values, check)


def unique(
    at: str,
    values: Sequence[Any] | None,
    most: int | None,
    check: _Check,
    key: Callable[[Any], Any],
    *,
    is_declared: bool = True,
) -> Errors:
    """Check the length of a list and each item, and that no two items have the same key.

    ``most``: maximum length; None for any length. ``key`` returns the key of an item.
    ``is_declared``: True if the maximum length and the unique keys are validation tags of the API
    (``FieldError.declared``). If so, the error for a duplicate shows the whole item, otherwise only
    its key.
    """
    values = values or ()
    # As in ``validateSet``, a list that is too long is rejected before its items are checked.
    if most is not None and len(values) > most:
        yield _with(too_many(at, len(values), most), is_declared)
        return
    yield from items(at, values, check)
    seen: set[Any] = set()
    for number, each in enumerate(values):
        found = key(each)
        if found in seen:
            shown = each if is_declared else found
            yield _with(duplicate(f"{at}[{number}]", shown), is_declared)
        seen.add(found)


def _with(error: FieldError, is_declared: bool) -> FieldError:
    return attrs.evolve(error, declared=is_declared)


def each_entry(
    at: str,
    values: Mapping[str, Any] | None,
    longest: int,
    check_key: _Check,
    check: _Check,
) -> Errors:
    """Check each key and its value in a map, in the order of the keys.

    ``longest``: maximum number of characters of a key in a field path. Longer keys are shortened.
    """
    # Go iterates over a map in random order. Sorted errors are the same for each request.
    for key in sorted(values or ()):
        yield from check_key(at, key)
        yield from check(f"{at}[{_shortened(key, longest)}]", (values or {})[key])


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    # As ``truncateIfTooLong``. Otherwise each error would repeat a huge key.
    rest = longest - 3
    return f"{text[: (rest + 1) // 2]}...{text[len(text) - rest // 2 :]}"
