"""Differences between two documents, so that a page receives only the changes.

A document is a set of tables, and a table has rows by key. A whole document is sent as the changes
from the empty document, so a page needs only the code that applies changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["EMPTY", "At", "Change", "Document", "Table", "changes", "merged"]

At = tuple[str, str]
"""Name and group of a table, such as ``("devices", "vendor.com/gpu")``."""
Table = Mapping[str, Any]
"""Table of a document: a mapping from keys to rows, which are JSON values. A new document reuses
the objects of unchanged tables."""
Document = Mapping[At, Table]

EMPTY: Document = {}
_NOTHING = object()


class Change(msgspec.Struct, frozen=True, array_like=True):
    """Changes of one table. The JSON form is the array ``[name, group, rows, gone, dropped]``."""

    name: str
    group: str
    rows: list[tuple[str, Any]]
    """New and changed rows, in the order of the new table."""
    gone: list[str]
    """Keys of rows that were removed from the table."""
    dropped: bool = False
    """True if the table itself was removed. ``rows`` and ``gone`` are then empty."""


def changes(old: Document, new: Document) -> list[Change]:
    """Return the changes that convert ``old`` to ``new``, removed tables first."""
    # Only a table that is missing is dropped; a table without rows stays in the document.
    result = [Change(*at, [], [], True) for at in old if at not in new]
    for at, table in new.items():
        before = old.get(at)
        # Comparing identity first makes an unchanged table of 10,000 devices cheap.
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
        # A row that was rebuilt but is equal is not sent.
        if before is not row and before != row:
            rows.append((key, row))
    return rows


def merged(old: Document, received: list[Change]) -> Document:
    """Return the document ``old`` with the changes applied, as a page applies them."""
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
