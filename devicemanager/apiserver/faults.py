"""Fault injection in the fake API server. Initially no fault is set."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import attrs

__all__ = ["Faults", "Request"]


@attrs.frozen
class Request:
    """Properties of a request that determine whether a fault applies to it."""

    verb: str
    """Verb as in RBAC: get, list, watch, create, update, patch or delete."""
    resource: str
    """Plural name of the resource, such as ``pods``."""
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
    """Faults to inject; tests can change them at any time. Thread-safe."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._failures: list[_Failure] = []
        self.slow = 0.0
        """Delay of each response, in seconds."""
        self.silent = False
        """True to accept requests without responding. Open watches send nothing."""
        self.second_writer: Callable[[Request], bool] = lambda request: False
        """Function that simulates a second client.

        If it returns True for an update or patch, the server first writes the object, as another
        client would.
        """

    def fail(
        self,
        code: int,
        matches: Callable[[Request], bool] = lambda request: True,
        *,
        times: int | None = None,
        probability: float = 1.0,
    ) -> None:
        """Add a fault: requests for which ``matches`` returns True fail with the status code
        ``code``.

        ``times``: maximum number of requests that fail; None means no limit.
        ``probability``: probability with which a matching request fails.
        """
        with self._lock:
            self._failures.append(_Failure(code, matches, times, probability))

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._failures.clear()
        self.slow = 0.0
        self.silent = False
        self.second_writer = lambda request: False

    def code(self, request: Request) -> int | None:
        """Return the status code with which a request must fail; None if no fault fires."""
        with self._lock:
            for each in self._failures:
                # A failure that has fired ``times`` times stays in the list but is skipped.
                if each.left == 0 or not each.matches(request):
                    continue
                if self._random.random() < each.probability:
                    each.left = None if each.left is None else each.left - 1
                    return each.code
            return None
