"""What changed between two documents, so that a page need not be sent all of it again.

A document is a set of tables; a table has rows by key. A whole document is told as the change
from the empty one, so whoever can follow changes can also begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["EMPTY", "At", "Change", "Document", "Table", "changes", "merged"]

At = tuple[str, str]
"""A table's name and its group, such as ``("devices", "vendor.com/gpu")``."""
Table = Mapping[str, Any]
"""Rows in JSON values, by key. A table that is the same object has not changed."""
Document = Mapping[At, Table]

EMPTY: Document = {}
_NOTHING = object()


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What is different in one table; ``[name, group, rows, gone, dropped]`` in JSON."""

    name: str
    group: str
    rows: list[tuple[str, Any]]
    """New ones and those that are different, in the order of the new table."""
    gone: list[str]
    dropped: bool = False
    """Whether the table itself is gone; then there are neither rows nor gone keys."""


def changes(old: Document, new: Document) -> list[Change]:
    """What makes ``new`` out of ``old``: tables that are gone first. Costs next to nothing for
    tables that are the same objects."""
    found = [Change(*at, [], [], True) for at in old if at not in new]
    for at, table in new.items():
        before = old.get(at)
        if before is table:
            continue
        rows = _rows(before or {}, table)
        gone = [key for key in before or () if key not in table]
        if before is None or rows or gone:
            found.append(Change(*at, rows, gone))
    return found


def _rows(old: Table, new: Table) -> list[tuple[str, Any]]:
    rows = []
    for key, row in new.items():
        before = old.get(key, _NOTHING)
        if before is not row and before != row:
            rows.append((key, row))
    return rows


def merged(old: Document, told: list[Change]) -> Document:
    """``old`` with the changes: what a page does with them."""
    tables: dict[At, Table] = dict(old)
    for change in told:
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
