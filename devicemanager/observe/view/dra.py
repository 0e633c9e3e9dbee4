"""Drivers, ResourceClaims and ResourceSlices of a view. Equal objects of the previous view are
reused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, TypeVar

from devicemanager.core.dra.report import DraStatus
from devicemanager.core.errors import RequestError, StartError
from devicemanager.observe.view.reuse import reuse_equal, reuse_unchanged

__all__ = ["Dra"]

T = TypeVar("T")
_title: Callable[[Any], str] = attrgetter("title")
_name: Callable[[Any], str] = attrgetter("name")
# During a rolling update, two instances of a driver have the same name, so the endpoint is
# also a part of the key.
_instance: Callable[[Any], tuple[str, str]] = attrgetter("driver", "endpoint")


class Dra:
    """Builder of the DRA part of a view. Not thread-safe."""

    def __init__(self, status: Callable[[], DraStatus]) -> None:
        """Create a builder. ``status`` returns the current drivers, claims and slices. While the
        kubelet is stopped, it can raise RequestError or StartError."""
        self._status = status
        self._shown = DraStatus()

    def refresh(self) -> DraStatus:
        """Return the current drivers, claims and slices. If nothing has changed, return the
        previous object."""
        try:
            now = self._status()
        except (RequestError, StartError):  # the kubelet is stopped
            now = DraStatus()
        before = self._shown
        new = DraStatus(
            drivers=_reused(before.drivers, now.drivers, _instance),
            claims=_reused(before.claims, now.claims, _title),
            slices=_reused(before.slices, now.slices, _name),
        )
        self._shown = reuse_equal(before, new)
        return self._shown


def _reused(before: tuple[T, ...], after: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    known = {key(each): each for each in before}
    return reuse_unchanged(before, [reuse_equal(known.get(key(each)), each) for each in after])
