"""The device manager's checkpoint, as the checkpoint commands show it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

import checkpoint
from devicemanager.cli.checkpoint_contents import DEVICES, Edited, Fact, Facts, Inspected
from devicemanager.cli.output import clean, ids_text, settings_lines

if TYPE_CHECKING:
    from checkpoint import Checkpoint, PodDevicesEntry
    from devicemanager.snapshot import Node
    from devicemanager.snapshot.names import Names
    from podresources import Pod

# WITHOUT_TOPOLOGY of the core, repeated here because the core is slow to import.
_WITHOUT_TOPOLOGY = -1


@attrs.frozen
class DeviceContents(Inspected["checkpoint.Inspection"]):
    """Readable contents of a checkpoint of the device manager. Implements
    ``checkpoint_contents.Contents``."""

    data: bytes
    found: checkpoint.Inspection

    format = DEVICES

    @classmethod
    def read(cls, data: bytes) -> DeviceContents:
        """Return the readable contents of ``data``, the bytes of a file that may be damaged."""
        return cls(data, checkpoint.inspect(data))

    @property
    def _saved(self) -> Checkpoint:
        return self.found.checkpoint

    @property
    def _entries(self) -> tuple[PodDevicesEntry, ...]:
        return self._saved.entries or ()

    def is_empty(self) -> bool:
        return not self._saved.entries and not self._saved.registered_devices

    def lines(self, names: Names) -> Iterator[str]:
        return _lines(self._saved, names, _NONE if self.is_complete else _UNREADABLE)

    def as_dict(self, names: Names) -> dict[str, Any]:
        registered = self._saved.registered_devices or {}
        return {
            "pod_device_entries": [
                {"pod": names.get(entry.pod_uid), **_entry_data(entry)} for entry in self._entries
            ],
            "registered_devices": {name: list(ids or ()) for name, ids in registered.items()},
        }

    def counts(self) -> dict[str, int]:
        registered = len(self._saved.registered_devices or ())
        return {"pod_device_entries": len(self._entries), "registered_resources": registered}

    def facts(self) -> Facts:
        facts: dict[tuple[str, ...], Fact] = {}
        for entry in self._entries:
            subject = ("pod", entry.pod_uid, entry.container_name, entry.resource_name)
            text = "; ".join([_devices_text(entry), *_response_lines(entry)])
            facts[subject] = Fact(text, _entry_data(entry))
        for resource, ids in (self._saved.registered_devices or {}).items():
            # Sorted, because a kubelet writes its sets in random order. Equal sets must not be a
            # difference.
            healthy = tuple(sorted(ids or ()))
            facts["registered", resource] = Fact(_ids_cell(healthy), list(healthy))
        return facts

    def findings(self) -> Sequence[tuple[str, dict[str, Any]]]:
        return [(each.message, attrs.asdict(each)) for each in self.found.inconsistencies()]

    def pods(self) -> Collection[str]:
        return {entry.pod_uid for entry in self._entries}

    def names_in(self, node: Node) -> Names:
        return node.names_in(self._saved)

    def names_of(self, pods: Sequence[Pod]) -> Names:
        from devicemanager.snapshot.names import from_pod_resources

        return from_pod_resources(self._saved, pods)

    def repaired(self) -> Edited:
        repair = checkpoint.repair(self.data)
        contents = DeviceContents.read(repair.data)
        return Edited(repair.data, contents, repair.problems, repair.dropped, repair.notes)

    def without_pods(self, uids: Collection[str]) -> Edited:
        data = checkpoint.dumps(checkpoint.without_pods(self._saved, uids))
        dropped = tuple(
            f"pod {each.pod_uid}, container {each.container_name}, resource {each.resource_name}"
            for each in self._entries
            if each.pod_uid in uids
        )
        return Edited(data, DeviceContents.read(data), dropped=dropped)


_NONE = "no devices are allocated", "no resources are registered"
_UNREADABLE = "no allocated devices can be read", "no registered resources can be read"


def _lines(loaded: Checkpoint, names: Names, absent: tuple[str, str]) -> Iterator[str]:
    """Yield the content of a checkpoint as lines, with the known names of pods.

    ``absent`` has the line for no entries, and the line for no registered devices.
    """
    if not loaded.entries:
        yield absent[0]
    # Entries of one container are adjacent, so its heading is printed once.
    latest = None
    for entry in loaded.entries or ():
        if latest != (entry.pod_uid, entry.container_name):
            latest = (entry.pod_uid, entry.container_name)
            name = names.get(entry.pod_uid)
            pod = entry.pod_uid if name is None else f"{name} ({entry.pod_uid})"
            yield f"pod {clean(pod)}, container {clean(entry.container_name)}"
        yield f"  {clean(entry.resource_name)}: {_devices_text(entry)}"
        for line in _response_lines(entry):
            yield f"    {line}"
    if not loaded.registered_devices:
        yield absent[1]
    for resource, ids in sorted((loaded.registered_devices or {}).items()):
        yield f"registered {clean(resource)}: {len(ids or ())} healthy: {_ids_cell(ids)}"


def _devices_text(entry: PodDevicesEntry) -> str:
    """Return the devices of a checkpoint entry with their NUMA nodes, as text."""
    parts = []
    for node, ids in sorted((entry.device_ids or {}).items()):
        place = "" if node == _WITHOUT_TOPOLOGY else f" on NUMA node {node}"
        parts.append(f"{_ids_cell(ids)}{place}")
    return "; ".join(parts) or "no devices"


def _ids_cell(ids: tuple[str, ...] | None) -> str:
    """Return device IDs as the text of one table cell."""
    return ids_text(clean(each) for each in ids or ())


def _response_lines(entry: PodDevicesEntry) -> Iterator[str]:
    """Yield the container settings in the plugin's response to Allocate, one per line."""
    settings = _settings(entry)
    if isinstance(settings, str):
        yield f"allocation response unreadable: {clean(settings)}"
        return
    yield from settings_lines(settings)


def _settings(entry: PodDevicesEntry) -> Any:
    """Return the decoded response to Allocate, or a text that says why it cannot be read."""
    from devicemanager.kubelet.wire.errors import WireError
    from devicemanager.kubelet.wire.settings import settings_from_bytes

    try:
        return settings_from_bytes(entry.alloc_resp or b"")
    # An unreadable response is shown in its place: it must not hide the other entries.
    except WireError as error:
        return str(error)


def _entry_data(entry: PodDevicesEntry) -> dict[str, Any]:
    """Return a checkpoint entry as data for JSON, with the decoded response to Allocate."""
    from devicemanager.kubelet.pods.data import settings_data

    settings = _settings(entry)
    if isinstance(settings, str):
        answer: dict[str, Any] = {"settings": None, "settings_error": settings}
    else:
        answer = {"settings": settings_data(settings), "settings_error": None}
    return {
        "pod_uid": entry.pod_uid,
        "container_name": entry.container_name,
        "resource_name": entry.resource_name,
        "devices": [
            {"numa_node": None if node == _WITHOUT_TOPOLOGY else node, "ids": list(ids or ())}
            for node, ids in sorted((entry.device_ids or {}).items())
        ],
    } | answer
