"""Settings by key where the last one wins, and what lost is listed."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from devicemanager.core.runoptions import Conflict

__all__ = ["Latest"]

_T = TypeVar("_T")


class Latest(Generic[_T]):
    """The last value of every key, with its source and a text to compare and to show."""

    def __init__(self, kind: str, conflicts: list[Conflict]) -> None:
        self._kind = kind
        self._conflicts = conflicts
        self._entries: dict[str, tuple[str, str, _T]] = {}
        # Which key a text belongs to, so that a million of them take linear time.
        self._keys: dict[str, str] = {}

    def put(self, source: str, key: str, text: str, value: _T) -> None:
        if key in self._entries:
            self._give_up(key, Conflict(self._kind, key, source, text, *self._entries[key][:2]))
        self._entries[key] = (source, text, value)

    def drop_other_keys(self, source: str, key: str, text: str) -> None:
        """Two keys may not share this text: ``source`` has it for ``key`` now."""
        other = self._keys.get(text, key)
        # The other may have got another text meanwhile.
        if other != key and other in self._entries and self._entries[other][1] == text:
            loser = self._entries[other][0]
            self._give_up(other, Conflict(self._kind, text, source, key, loser, other))
        self._keys[text] = key

    def drop_shadowed(self, winners: Latest[Any]) -> None:
        """Give up every key that ``winners`` has too."""
        for key in sorted(self._entries.keys() & winners._entries.keys()):
            winner, text, _ = winners._entries[key]
            self._give_up(key, Conflict(self._kind, key, winner, text, *self._entries[key][:2]))

    def _give_up(self, key: str, conflict: Conflict) -> None:
        del self._entries[key]
        if conflict.kept_value != conflict.dropped_value:
            self._conflicts.append(conflict)

    def values(self) -> list[_T]:
        return [value for _, _, value in self._entries.values()]
