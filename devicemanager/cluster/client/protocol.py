"""What the parts of this room ask of each other."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["Api", "Heartbeats", "JsonObject", "Lane", "Patch", "Priority"]

JsonObject: TypeAlias = dict[str, Any]

Patch = Literal["strategic", "merge"]
"""How the server merges the body of a PATCH."""


class Priority(enum.IntEnum):
    """Which requests go first when more wait than the server may have at once."""

    DELETION = 0
    POD_STATUS = 1
    NODE_STATUS = 2
    EVENT = 3


class Api(Protocol):
    """The API server. Calls block; they may come from any thread."""

    def request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patch: Patch | None = None,
        user: str | None = None,
    ) -> JsonObject:
        """Make one request and return the object that comes back.

        ``path`` is absolute, such as ``/api/v1/nodes/rack-0/status``. ``patch`` goes with
        PATCH. ``user`` names the node to act as; None is who we are.

        Waits out 429, 5xx and broken connections, however long they last. Raises an
        ApiError for any other answer than success, ClientClosing once ``close`` was called.
        """


class Lane(Protocol):
    """Threads that make requests, the most urgent first."""

    def put(self, priority: Priority, key: str, work: Callable[[], None]) -> None:
        """Run ``work`` on one of the threads. What has the same ``key``, such as a pod's
        UID, runs one after another in the order in which it came, whatever the priority."""


class Heartbeats(Protocol):
    """The leases of nodes."""

    def add(self, node: str, uid: str) -> None:
        """Create the node's Lease now and renew it from then on."""

    def remove(self, node: str) -> None:
        """Renew it no more."""

    def silence(self, node: str, silent: bool) -> None:
        """Renew it no more until the opposite is said: a node that nobody hears of."""
