"""Facts about pods and devices, derived from one snapshot for the rules and the report.

A node has two sources for the question which pod has which device. PodResources shows what the
running kubelet knows, by pod name and without init containers. The checkpoint shows what it will
know after a restart, by pod UID. Most rules compare the two, so both are here as mappings from a
device: ``allocated_to`` and ``saved_for``. ``names`` connects UIDs with names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

import attrs

from checkpoint import Checkpoint, Inspection, PodDevicesEntry, inspect
from devicemanager.core.api.deviceplugin import KUBELET_SOCKET
from devicemanager.snapshot.kubeletconfig import Alignment, alignment
from devicemanager.snapshot.model import Listening, Snapshot, SocketSeen
from devicemanager.snapshot.names import (
    Names,
    from_directories,
    from_pod_resources,
    ids_of,
    matches,
)
from podresources.values import ids_by_resource

__all__ = ["DeviceKey", "Node"]

DeviceKey: TypeAlias = tuple[str, str]
"""Resource and device ID."""


@attrs.frozen(slots=False)
class Node:
    """Facts derived from one snapshot, each computed on first use."""

    snapshot: Snapshot

    @cached_property
    def saved(self) -> Inspection | None:
        """What is readable of the checkpoint; None if there is no checkpoint."""
        data = self.snapshot.checkpoint
        return None if data is None else inspect(data)

    @property
    def saved_entries(self) -> tuple[PodDevicesEntry, ...]:
        """Readable entries of the checkpoint."""
        return () if self.saved is None else self.saved.checkpoint.entries or ()

    @cached_property
    def names(self) -> Names:
        """Names of the checkpoint's pods, by UID, as far as they are known."""
        return self.names_in(None if self.saved is None else self.saved.checkpoint)

    def names_in(self, saved: Checkpoint | None) -> Names:
        """Return the names of the pods in a checkpoint of this node, which may differ from the
        one in the snapshot."""
        names = dict(from_directories(self.snapshot.directories))
        if saved is not None and self.snapshot.pods is not None:
            names |= from_pod_resources(saved, self.snapshot.pods)
        return names

    def title(self, uid: str) -> str:
        """Return a pod for people: its UID, with its name if that is known."""
        name = self.names.get(uid)
        return uid if name is None else f"{name} ({uid})"

    @cached_property
    def allocated_to(self) -> Mapping[DeviceKey, tuple[str, ...]]:
        """Pods of each allocated device by PodResources, as ``namespace/name``, each once."""
        pods: dict[DeviceKey, dict[str, None]] = {}
        for pod in self.snapshot.pods or ():
            for container in pod.containers:
                for resource, ids in ids_by_resource(container.devices).items():
                    for id_ in ids:
                        pods.setdefault((resource, id_), {})[f"{pod.namespace}/{pod.name}"] = None
        return {key: tuple(names) for key, names in pods.items()}

    @cached_property
    def saved_for(self) -> Mapping[DeviceKey, tuple[str, ...]]:
        """Pods of each allocated device by the checkpoint, as UIDs, each once."""
        pods: dict[DeviceKey, dict[str, None]] = {}
        for entry in self.saved_entries:
            for id_ in ids_of(entry):
                pods.setdefault((entry.resource_name, id_), {})[entry.pod_uid] = None
        return {key: tuple(uids) for key, uids in pods.items()}

    @cached_property
    def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        """Allocatable devices by resource; None if they are unknown."""
        allocatable = self.snapshot.allocatable
        if allocatable is None:
            return None
        return {name: frozenset(ids) for name, ids in ids_by_resource(allocatable.devices).items()}

    @cached_property
    def registered(self) -> Mapping[str, frozenset[str]]:
        """Healthy devices in the checkpoint, by resource."""
        devices = (self.saved and self.saved.checkpoint.registered_devices) or {}
        return {name: frozenset(ids or ()) for name, ids in devices.items()}

    @cached_property
    def gone(self) -> Mapping[str, bool]:
        """UIDs in the checkpoint that no pod of the node has; True if that is certain.

        The kubelet's directory of pods makes it certain. PodResources does not, because it has
        neither UIDs nor init containers. Without that directory, a pod counts as gone if none
        of its devices is allocated.
        """
        uids = {uid for each in self.saved_for.values() for uid in each}
        directories = self.snapshot.directories
        known = None if directories is None else directories.uids
        shown = self._shown()
        # Not a pod that PodResources shows: it was deleted while the snapshot was taken.
        if known is not None:
            return {uid: True for uid in uids if uid not in known and uid not in shown}
        if self.snapshot.pods is None:
            return {}
        in_use = {uid for key in self.allocated_to for uid in self.saved_for.get(key, ())}
        return {uid: False for uid in uids - in_use if uid not in shown}

    def _shown(self) -> frozenset[str]:
        """Return the UIDs of pods whose devices PodResources lists."""
        if self.saved is None or self.snapshot.pods is None:
            return frozenset()
        return frozenset(matches(self.saved.checkpoint, self.snapshot.pods))

    @cached_property
    def alignment(self) -> Alignment:
        """Effective configuration of the topology, CPU and memory manager."""
        return alignment(self.snapshot.config)

    @cached_property
    def plugin_sockets(self) -> tuple[SocketSeen, ...]:
        """Sockets of plugins."""
        sockets = self.snapshot.sockets or ()
        return tuple(each for each in sockets if each.name != KUBELET_SOCKET)

    def kubelet_socket(self, directory: str) -> SocketSeen | None:
        """Return the kubelet's socket in a directory with this name; None if there is none."""
        end = f"/{directory}/{KUBELET_SOCKET}"
        sockets = self.snapshot.sockets or ()
        return next((each for each in sockets if each.path.endswith(end)), None)

    def sockets_text(self) -> str:
        """Return which plugin sockets have a process behind them, for people."""
        sockets = self.plugin_sockets
        live = [each.name for each in sockets if each.state is Listening.LISTENING]
        stale = [each.name for each in sockets if each.state is Listening.DEAD]
        texts = [
            f"a process is listening on {', '.join(live)}" if live else "",
            f"no process is listening on {', '.join(stale)}" if stale else "",
        ]
        return "; ".join(filter(None, texts)) or "no plugin has a socket"
