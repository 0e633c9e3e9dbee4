"""What the stub does wrong on purpose. Everything is off at the start."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import attrs

from devicemanager.cluster.fake_apiserver.kinds import Target

__all__ = ["Faults", "Request"]


@attrs.frozen
class Request:
    """One request, as faults are chosen by it."""

    verb: str
    """As RBAC names it: get, list, watch, create, update, patch, delete."""
    target: Target


Matches = Callable[[Request], bool]


@attrs.define
class _Failing:
    code: int
    matches: Matches
    left: int | None
    share: float


class Faults:
    """May be set from any thread while requests are served."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._failing: list[_Failing] = []
        self.slow = 0.0
        """Seconds that each answer takes longer."""
        self.silent = False
        """Requests are taken and never answered; streams say nothing."""
        self.second_writer: Matches = lambda request: False
        """Before which updates and patches somebody else writes the object."""

    def fail(
        self,
        code: int,
        matches: Matches = lambda request: True,
        *,
        times: int | None = None,
        share: float = 1.0,
    ) -> None:
        """Answer with ``code``: this often, or always; each time with this likelihood."""
        with self._lock:
            self._failing.append(_Failing(code, matches, times, share))

    def clear(self) -> None:
        """All is well again."""
        with self._lock:
            self._failing.clear()
        self.slow = 0.0
        self.silent = False
        self.second_writer = lambda request: False

    def code(self, request: Request) -> int | None:
        """What to answer instead, if anything."""
        with self._lock:
            for each in self._failing:
                if each.left == 0 or not each.matches(request):
                    continue
                if self._random.random() < each.share:
                    each.left = None if each.left is None else each.left - 1
                    return each.code
            return None
