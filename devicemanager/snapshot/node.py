"""What a snapshot says of pods and devices, put together once for everybody who asks."""

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
"""Resource and device id."""


@attrs.frozen(slots=False)
class Node:
    """Views of one snapshot, each made when it is first asked for."""

    snapshot: Snapshot

    @cached_property
    def saved(self) -> Inspection | None:
        """What can be read of the checkpoint."""
        data = self.snapshot.checkpoint
        return None if data is None else inspect(data)

    @property
    def saved_entries(self) -> tuple[PodDevicesEntry, ...]:
        """The checkpoint's entries that can be read."""
        return () if self.saved is None else self.saved.checkpoint.entries or ()

    @cached_property
    def names(self) -> Names:
        """The names of the checkpoint's pods, as far as something tells them."""
        return self.names_in(None if self.saved is None else self.saved.checkpoint)

    def names_in(self, saved: Checkpoint | None) -> Names:
        """The names of the pods of a checkpoint of this node, which may be another than the
        one in the snapshot."""
        found = dict(from_directories(self.snapshot.directories))
        if saved is not None and self.snapshot.pods is not None:
            found |= from_pod_resources(saved, self.snapshot.pods)
        return found

    def title(self, uid: str) -> str:
        """A pod for people: its name where that is known, and its UID."""
        name = self.names.get(uid)
        return uid if name is None else f"{name} ({uid})"

    @cached_property
    def holders(self) -> Mapping[DeviceKey, tuple[str, ...]]:
        """Who holds a device, by PodResources: ``namespace/name``, each once."""
        found: dict[DeviceKey, dict[str, None]] = {}
        for pod in self.snapshot.pods or ():
            for container in pod.containers:
                for resource, ids in ids_by_resource(container.devices).items():
                    for id_ in ids:
                        holders = found.setdefault((resource, id_), {})
                        holders[f"{pod.namespace}/{pod.name}"] = None
        return {key: tuple(names) for key, names in found.items()}

    @cached_property
    def entries(self) -> Mapping[DeviceKey, tuple[str, ...]]:
        """Who holds a device, by the checkpoint: UIDs, each once."""
        found: dict[DeviceKey, dict[str, None]] = {}
        for entry in self.saved_entries:
            for id_ in ids_of(entry):
                found.setdefault((entry.resource_name, id_), {})[entry.pod_uid] = None
        return {key: tuple(uids) for key, uids in found.items()}

    @cached_property
    def offered(self) -> Mapping[str, frozenset[str]] | None:
        """The devices that are allocatable, by resource; None if that could not be asked."""
        allocatable = self.snapshot.allocatable
        if allocatable is None:
            return None
        return {name: frozenset(ids) for name, ids in ids_by_resource(allocatable.devices).items()}

    @cached_property
    def registered(self) -> Mapping[str, frozenset[str]]:
        """The healthy devices that the checkpoint has of each resource."""
        devices = (self.saved and self.saved.checkpoint.registered_devices) or {}
        return {name: frozenset(ids or ()) for name, ids in devices.items()}

    @cached_property
    def gone(self) -> Mapping[str, bool]:
        """The UIDs of the checkpoint that no pod of the node has, each with whether that is
        sure. The kubelet's directory of pods is sure. PodResources is not: it has neither UIDs
        nor init containers, so a pod is taken for gone if nobody holds any of its devices.
        """
        uids = {uid for each in self.entries.values() for uid in each}
        directories = self.snapshot.directories
        known = None if directories is None else directories.uids
        shown = self._shown()
        if known is not None:
            return {uid: True for uid in uids if uid not in known and uid not in shown}
        if self.snapshot.pods is None:
            return {}
        held = {uid for key in self.holders for uid in self.entries.get(key, ())}
        return {uid: False for uid in uids - held if uid not in shown}

    def _shown(self) -> frozenset[str]:
        """The UIDs whose holdings PodResources shows with some pod."""
        if self.saved is None or self.snapshot.pods is None:
            return frozenset()
        return frozenset(matches(self.saved.checkpoint, self.snapshot.pods))

    @cached_property
    def alignment(self) -> Alignment:
        """How the kubelet aligns pods to NUMA nodes."""
        return alignment(self.snapshot.config)

    @cached_property
    def plugin_sockets(self) -> tuple[SocketSeen, ...]:
        """Sockets of plugins."""
        sockets = self.snapshot.sockets or ()
        return tuple(each for each in sockets if each.name != KUBELET_SOCKET)

    def kubelet_socket(self, directory: str) -> SocketSeen | None:
        """The kubelet's own socket in a directory of that name; None if it is not there."""
        end = f"/{directory}/{KUBELET_SOCKET}"
        sockets = self.snapshot.sockets or ()
        return next((each for each in sockets if each.path.endswith(end)), None)

    def sockets_in_words(self) -> str:
        """How many plugins' sockets there are, and of how many somebody listens."""
        sockets = self.plugin_sockets
        alive = [each.name for each in sockets if each.state is Listening.LISTENING]
        dead = [each.name for each in sockets if each.state is Listening.DEAD]
        texts = [
            f"somebody listens on {', '.join(alive)}" if alive else "",
            f"nobody listens on {', '.join(dead)}" if dead else "",
        ]
        return "; ".join(filter(None, texts)) or "there is no socket of a plugin"
