"""What the parts of one node share."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from devicemanager.cluster.client.errors import Forbidden
from devicemanager.cluster.client.protocol import Api, Lane
from devicemanager.cluster.client.rate_limited_warning import Warn
from devicemanager.cluster.client.recorder import EventType, Recorder, Subject
from devicemanager.cluster.facts import Facts
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.options import NodeOptions
from devicemanager.io.clock import Clock

__all__ = ["NodeContext", "Shared"]


class Shared:
    """What the nodes of one cluster find out for each other."""

    def __init__(self) -> None:
        self.keeps_health: bool | None = None
        """Whether the API server keeps ``allocatedResourcesStatus``; None until one was sent."""


@attrs.frozen(eq=False)
class NodeContext:
    """One node's name, kubelet and settings, and what it works with."""

    name: str
    kubelet: NodeKubelet
    options: NodeOptions
    facts: Facts
    api: Api
    lane: Lane
    clock: Clock
    recorder: Recorder
    shared: Shared
    warn: Warn
    forbidden: Callable[[Forbidden], None]
    """Is told when the API server denies us a write."""

    @property
    def user(self) -> str | None:
        """Whom requests name as their author; None for whoever this process is."""
        return self.name if self.options.as_nodes else None

    def record(self, kind: EventType, reason: str, message: str) -> None:
        """Write an event about the node itself."""
        # The kubelet's node events have the node's name for its UID.
        self.recorder.record(Subject("Node", self.name, self.name), kind, reason, message)

    def say(self, text: str) -> None:
        """One line for people about this node."""
        self.warn(f"node {self.name}: {text}")
