"""The one error of this room."""

from __future__ import annotations

from devicemanager.core.errors import RequestError
from devicemanager.core.printable import printable

__all__ = ["SnapshotError"]


class SnapshotError(RequestError):
    """An archive that is no snapshot, or a node of which nothing can be read. One line."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(" ".join(text.split())))
