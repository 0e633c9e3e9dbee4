"""Derive facts about pods and devices from one snapshot, for the rules and the report.

Two parts of a snapshot show which pod has which device. PodResources shows the allocations of the
running kubelet, by pod name and without init containers. The checkpoint shows the allocations that
a restarted kubelet will load, by pod UID. Most rules compare the two. Therefore ``allocated_to``
(from PodResources) and ``saved_for`` (from the checkpoint) both map a device to its pods. ``names``
maps UIDs to pod names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

import attrs

from checkpoint import Checkpoint, Inspection, PodDevicesEntry, dra, inspect
from devicemanager.core.api.deviceplugin import KUBELET_SOCKET
from devicemanager.snapshot.kubeletconfig import Alignment, alignment
from devicemanager.snapshot.model import Listening, Snapshot, SocketSeen
from devicemanager.snapshot.names import (
    Names,
    from_claims,
    from_directories,
    from_pod_resources,
    ids_of,
    matches,
)
from podresources.values import ids_by_resource

__all__ = ["DeviceKey", "Node"]

DeviceKey: TypeAlias = tuple[str, str]
"""Resource name and device ID."""


@attrs.frozen(slots=False)
class Node:
    """Facts about a node, derived from one snapshot. Each fact is computed on first use."""

    snapshot: Snapshot

    @cached_property
    def saved(self) -> Inspection | None:
        """Undamaged contents of the checkpoint; None if the snapshot has no checkpoint."""
        data = self.snapshot.checkpoint
        return None if data is None else inspect(data)

    @property
    def saved_entries(self) -> tuple[PodDevicesEntry, ...]:
        """Undamaged entries of the checkpoint, each for one container and resource."""
        return () if self.saved is None else self.saved.checkpoint.entries or ()

    @cached_property
    def dra_saved(self) -> dra.Inspection | None:
        """Undamaged contents of the DRA manager's state file; None if the snapshot lacks it."""
        data = self.snapshot.dra_state
        return None if data is None else dra.inspect(data)

    @property
    def claims(self) -> tuple[dra.ClaimState, ...]:
        """Undamaged claims in the DRA manager's state file."""
        return () if self.dra_saved is None else self.dra_saved.state.claims or ()

    @cached_property
    def names(self) -> Names:
        """Names of pods, by UID. Pods whose name is unknown are left out.

        These are the pods in the checkpoint and in the DRA manager's state file, and pods with a
        directory for container logs.
        """
        saved = None if self.saved is None else self.saved.checkpoint
        return {**self.names_of_claims(self.claims), **self.names_in(saved)}

    def names_in(self, saved: Checkpoint | None) -> Names:
        """Return the known names of pods, by UID: pods in ``saved``, and pods with a log directory.

        ``saved`` is a checkpoint of this node. It may differ from the checkpoint in the snapshot.
        """
        names = dict(from_directories(self.snapshot.directories))
        if saved is not None and self.snapshot.pods is not None:
            names |= from_pod_resources(saved, self.snapshot.pods)
        return names

    def names_of_claims(self, claims: Iterable[dra.ClaimState]) -> Names:
        """Return the known names of pods, by UID: pods that hold ``claims``, and pods with a log
        directory.

        ``claims`` must be claims of this node.
        """
        names = from_claims(claims, self.snapshot.pods or ())
        return {**from_directories(self.snapshot.directories), **names}

    def title(self, uid: str) -> str:
        """Return the name and the UID of a pod as text; only the UID if the name is unknown."""
        name = self.names.get(uid)
        return uid if name is None else f"{name} ({uid})"

    @cached_property
    def allocated_to(self) -> Mapping[DeviceKey, tuple[str, ...]]:
        """Names of the pods (``namespace/name``) by allocated device, according to PodResources."""
        pods: dict[DeviceKey, dict[str, None]] = {}
        for pod in self.snapshot.pods or ():
            for container in pod.containers:
                for resource, ids in ids_by_resource(container.devices).items():
                    for id_ in ids:
                        # The keys of the inner dict are the names, without duplicates and in a
                        # fixed order.
                        pods.setdefault((resource, id_), {})[f"{pod.namespace}/{pod.name}"] = None
        return {key: tuple(names) for key, names in pods.items()}

    @cached_property
    def saved_for(self) -> Mapping[DeviceKey, tuple[str, ...]]:
        """UIDs of the pods by allocated device, according to the checkpoint."""
        pods: dict[DeviceKey, dict[str, None]] = {}
        for entry in self.saved_entries:
            for id_ in ids_of(entry):
                pods.setdefault((entry.resource_name, id_), {})[entry.pod_uid] = None
        return {key: tuple(uids) for key, uids in pods.items()}

    @cached_property
    def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        """Allocatable device IDs by resource, according to PodResources; None if PodResources could
        not be read."""
        allocatable = self.snapshot.allocatable
        if allocatable is None:
            return None
        return {name: frozenset(ids) for name, ids in ids_by_resource(allocatable.devices).items()}

    @cached_property
    def registered(self) -> Mapping[str, frozenset[str]]:
        """Healthy device IDs by resource, according to the checkpoint."""
        devices = (self.saved and self.saved.checkpoint.registered_devices) or {}
        return {name: frozenset(ids or ()) for name, ids in devices.items()}

    @cached_property
    def gone(self) -> Mapping[str, bool]:
        """Pods that are in the checkpoint but seem to be gone from the node: UID → True if certain.

        It is certain that a pod is gone if the kubelet's directory of pods was read and does not
        contain the UID. If only PodResources was read, the value is False for pods without a device
        in PodResources. Such a pod may still be on the node, because PodResources omits init
        containers.
        """
        uids = {uid for each in self.saved_for.values() for uid in each}
        directories = self.snapshot.directories
        known = None if directories is None else directories.uids
        shown = self._shown()
        # A pod that PodResources shows is not gone: it was deleted while the snapshot was taken.
        if known is not None:
            return {uid: True for uid in uids if uid not in known and uid not in shown}
        if self.snapshot.pods is None:
            return {}
        # A pod that still has one of its devices is on the node, even if its other entries differ.
        in_use = {uid for key in self.allocated_to for uid in self.saved_for.get(key, ())}
        return {uid: False for uid in uids - in_use if uid not in shown}

    def _shown(self) -> frozenset[str]:
        """Return the UIDs in the checkpoint that match a pod of PodResources."""
        if self.saved is None or self.snapshot.pods is None:
            return frozenset()
        return frozenset(matches(self.saved.checkpoint, self.snapshot.pods))

    @cached_property
    def alignment(self) -> Alignment:
        """Effective configuration of the topology, CPU and memory manager."""
        return alignment(self.snapshot.config)

    @cached_property
    def plugin_sockets(self) -> tuple[SocketSeen, ...]:
        """Sockets in the kubelet's directories, without the kubelet's own sockets."""
        sockets = self.snapshot.sockets or ()
        return tuple(each for each in sockets if each.name != KUBELET_SOCKET)

    def kubelet_socket(self, directory: str) -> SocketSeen | None:
        """Return the kubelet's socket in a directory; None if the snapshot does not have it.

        ``directory`` is the last part of the directory's path, such as ``device-plugins``.
        """
        end = f"/{directory}/{KUBELET_SOCKET}"
        sockets = self.snapshot.sockets or ()
        return next((each for each in sockets if each.path.endswith(end)), None)

    def sockets_text(self) -> str:
        """Return a text that lists the plugin sockets with and without a listening process."""
        sockets = self.plugin_sockets
        live = [each.name for each in sockets if each.state is Listening.LISTENING]
        stale = [each.name for each in sockets if each.state is Listening.DEAD]
        texts = [
            f"a process is listening on {', '.join(live)}" if live else "",
            f"no process is listening on {', '.join(stale)}" if stale else "",
        ]
        return "; ".join(filter(None, texts)) or "no plugin has a socket"
