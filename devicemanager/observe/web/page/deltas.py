"""Differences between two documents, so that a page does not need all of it again.

A document is a set of tables; a table has rows by key. A whole document is sent as the change
from the empty one, so a page needs only the code that applies changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["EMPTY", "At", "Change", "Document", "Table", "changes", "merged"]

At = tuple[str, str]
"""Name and group of a table, such as ``("devices", "vendor.com/gpu")``."""
Table = Mapping[str, Any]
"""Rows of JSON values by key. A table that is the same object has not changed."""
Document = Mapping[At, Table]

EMPTY: Document = {}
_NOTHING = object()


class Change(msgspec.Struct, frozen=True, array_like=True):
    """Changes of one table; ``[name, group, rows, gone, dropped]`` in JSON."""

    name: str
    group: str
    rows: list[tuple[str, Any]]
    """New and changed rows, in the order of the new table."""
    gone: list[str]
    """Keys of removed rows."""
    dropped: bool = False
    """True if the table itself was removed; then ``rows`` and ``gone`` are empty."""


def changes(old: Document, new: Document) -> list[Change]:
    """Return the changes that turn ``old`` into ``new``, removed tables first."""
    result = [Change(*at, [], [], True) for at in old if at not in new]
    for at, table in new.items():
        before = old.get(at)
        # Identity makes an unchanged table of 10,000 devices free.
        if before is table:
            continue
        rows = _rows(before or {}, table)
        gone = [key for key in before or () if key not in table]
        if before is None or rows or gone:
            result.append(Change(*at, rows, gone))
    return result


def _rows(old: Table, new: Table) -> list[tuple[str, Any]]:
    rows = []
    for key, row in new.items():
        before = old.get(key, _NOTHING)
        # A row that was built again without a difference is not sent.
        if before is not row and before != row:
            rows.append((key, row))
    return rows


def merged(old: Document, received: list[Change]) -> Document:
    """Apply changes to ``old``, as a page does."""
    tables: dict[At, Table] = dict(old)
    for change in received:
        at = (change.name, change.group)
        if change.dropped:
            del tables[at]
            continue
        table = dict(tables.get(at, {}))
        for key in change.gone:
            del table[key]
        table.update(change.rows)
        tables[at] = table
    return tables
