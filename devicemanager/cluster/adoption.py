"""Adoption: run a virtual node for each Node that another program, such as an autoscaler, creates.

In:  Node objects that match a label selector, as they appear on the API server.
Out: calls of ``adopt`` with each new Node.

If a Node is deleted, its ``ClusterNode`` notices this itself and leaves. This module then does
nothing. If a new Node with the same name is created, it is adopted, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from devicemanager.client.api import ApiClient
from devicemanager.client.protocol import JsonObject
from devicemanager.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.client.reflector import Reflector
from devicemanager.core.quantity import Quantity

__all__ = ["Adoption", "native_capacity"]


class Adoption:
    """Watch that calls a function with each new Node that matches a label selector.

    Its reflector calls ``begin_list``, ``replace`` and ``apply``, all on one thread.
    """

    def __init__(
        self, api: ApiClient, selector: str, adopt: Callable[[JsonObject], None], warn: Warn
    ) -> None:
        """Create the watch; ``start`` starts it.

        ``selector`` is a label selector. ``adopt`` is called with each new Node, and may block.
        """
        self._adopt = adopt
        self._adopted: dict[str, str] = {}
        """Mapping from the name of a Node to the UID of the Node that was adopted last with this
        name."""
        self._reflector = Reflector(
            api,
            "/api/v1/nodes",
            self,
            query={"labelSelector": selector},
            warn=RateLimitedWarning(warn),
        )

    def start(self) -> threading.Thread:
        """Start the watch; it ends when the API client is closed."""
        return self._reflector.start()

    def begin_list(self) -> None:
        """Do nothing. The reflector calls this method at the start of each LIST."""

    def replace(self, objects: list[JsonObject]) -> None:
        """Call ``adopt`` with each new Node of a LIST."""
        for each in objects:
            self.apply("ADDED", each)

    def apply(self, kind: str, object_: JsonObject) -> None:
        """Call ``adopt`` with a new Node. Ignore a Node that is deleted or being deleted, or with
        which ``adopt`` was already called."""
        metadata = object_["metadata"]
        if kind == "DELETED" or metadata.get("deletionTimestamp"):
            return
        if self._adopted.get(metadata["name"]) != metadata["uid"]:
            # Stored before the call: after an unexpected error, the relist does not call ``adopt``
            # for this Node again.
            self._adopted[metadata["name"]] = metadata["uid"]
            self._adopt(object_)


def native_capacity(node: JsonObject) -> Mapping[str, Quantity]:
    """Return the capacity that the creator of a Node has set, without extended resources.

    Device plugins provide extended resources.
    """
    capacity = (node.get("status") or {}).get("capacity") or {}
    # Names of extended resources have a domain, such as ``nvidia.com/gpu``; native names do not.
    return {name: Quantity.parse(str(text)) for name, text in capacity.items() if "/" not in name}
