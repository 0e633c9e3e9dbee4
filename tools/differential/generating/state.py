"""State of a scenario after the steps generated so far."""

from __future__ import annotations

import random
from typing import Any, Final

import attrs

Plain = dict[str, Any]

RESOURCES: Final = ("vendor.com/gpu", "vendor.com/nic", "other.org/fpga")


@attrs.define
class State:
    """Pods and plugins of a scenario after the steps so far."""

    rng: random.Random
    version: int
    numa: tuple[int, ...] = (0,)
    node: Plain = attrs.field(factory=dict)
    """Small amounts of resources that the node has in addition to devices."""
    has_pod_level: bool = False
    """True if the topology manager considers pod-level resources."""
    has_other: bool = False
    """True if a provider gives hints for CPUs."""
    plugins: dict[str, Plain] = attrs.field(factory=dict)
    """Plugin that registered last, by resource."""
    replaced: dict[str, int] = attrs.field(factory=dict)
    """Number of replaced plugins that still run, by resource."""
    away: dict[str, Plain] = attrs.field(factory=dict)
    """Plugin that served a resource and has ended, by resource."""
    watched: set[str] = attrs.field(factory=set)
    """Resources whose plugin registered through the watched directory."""
    pods: dict[str, Plain] = attrs.field(factory=dict)
    """Every pod so far, by UID."""
    active: list[str] = attrs.field(factory=list)
    """Pods that have not ended. Some of them were rejected."""
    started: list[str] = attrs.field(factory=list)
    ended: list[str] = attrs.field(factory=list)
    """Pods that have finished, but that the kubelet still knows."""
    deleted: list[str] = attrs.field(factory=list)
    retiring: list[str] = attrs.field(factory=list)
    count: int = 0

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def new_uid(self) -> str:
        """Return the UID of a new pod."""
        self.count += 1
        return f"pod-{self.count - 1}"

    def admitted(self, pod: Plain) -> None:
        """Record that a pod is admitted."""
        self.pods[pod["uid"]] = pod
        for uids in (self.deleted, self.ended, self.started, self.active):
            if pod["uid"] in uids:
                uids.remove(pod["uid"])
        self.active.append(pod["uid"])

    def registered(self, resource: str, plugin: Plain) -> None:
        """Record that a plugin serves a resource from now on."""
        if resource in self.plugins:
            self.replaced[resource] = self.replaced.get(resource, 0) + 1
        self.away.pop(resource, None)
        self.watched.discard(resource)
        self.plugins[resource] = plugin

    def left(self, resource: str) -> None:
        """Record that the latest plugin of a resource has ended."""
        self.away[resource] = self.plugins.pop(resource)
        self.watched.discard(resource)

    def gone(self, uid: str) -> None:
        """Record that a pod no longer exists."""
        for uids in (self.active, self.started, self.ended, self.retiring):
            if uid in uids:
                uids.remove(uid)
        self.deleted.append(uid)

    def restarted(self) -> None:
        """Record that all plugins have ended with the kubelet."""
        self.away |= self.plugins
        self.plugins.clear()
        self.replaced.clear()
        self.watched.clear()
