"""Fault injection of the fake API server. All faults are off at the start."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import attrs

__all__ = ["Faults", "Request"]


@attrs.frozen
class Request:
    """A request, for the selection of faults."""

    verb: str
    """As RBAC names it: get, list, watch, create, update, patch, delete."""
    resource: str
    """Plural, such as ``pods``."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@attrs.define
class _Failure:
    code: int
    matches: Callable[[Request], bool]
    left: int | None
    probability: float


class Faults:
    """Faults that can be changed while requests are served. Thread-safe."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._failures: list[_Failure] = []
        self.slow = 0.0
        """Delay of each response, in seconds."""
        self.silent = False
        """True: accept requests but do not respond; streams send nothing."""
        self.second_writer: Callable[[Request], bool] = lambda request: False
        """Before updates and patches that match, another client changes the object."""

    def fail(
        self,
        code: int,
        matches: Callable[[Request], bool] = lambda request: True,
        *,
        times: int | None = None,
        probability: float = 1.0,
    ) -> None:
        """Respond to matching requests with ``code``: ``times`` times or always, each time with
        this probability."""
        with self._lock:
            self._failures.append(_Failure(code, matches, times, probability))

    def clear(self) -> None:
        """Clear all faults."""
        with self._lock:
            self._failures.clear()
        self.slow = 0.0
        self.silent = False
        self.second_writer = lambda request: False

    def code(self, request: Request) -> int | None:
        """Return the status code to respond with; None for a normal response."""
        with self._lock:
            for each in self._failures:
                # A failure that is used up stays in the list; later ones can still match.
                if each.left == 0 or not each.matches(request):
                    continue
                if self._random.random() < each.probability:
                    each.left = None if each.left is None else each.left - 1
                    return each.code
            return None
