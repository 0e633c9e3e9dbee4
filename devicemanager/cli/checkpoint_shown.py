"""What a checkpoint holds, as lines and as data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from devicemanager.cli.output import clean, ids_text, settings_lines

if TYPE_CHECKING:
    from checkpoint import Checkpoint, Inspection, PodDevicesEntry
    from devicemanager.snapshot.names import Names

_WITHOUT_TOPOLOGY = -1


def lines(loaded: Checkpoint, names: Names) -> Iterator[str]:
    if not loaded.entries:
        yield "no pod holds a device"
    holder = None
    for entry in loaded.entries or ():
        if holder != (entry.pod_uid, entry.container_name):
            holder = (entry.pod_uid, entry.container_name)
            name = names.get(entry.pod_uid)
            pod = entry.pod_uid if name is None else f"{name} ({entry.pod_uid})"
            yield f"pod {clean(pod)}, container {clean(entry.container_name)}"
        yield f"  {clean(entry.resource_name)}: {devices_text(entry)}"
        for line in answer_lines(entry):
            yield f"    {line}"
    if not loaded.registered_devices:
        yield "no resource is registered"
    for resource, ids in sorted((loaded.registered_devices or {}).items()):
        yield f"registered {clean(resource)}: {len(ids or ())} healthy: {ids_cell(ids)}"


def devices_text(entry: PodDevicesEntry) -> str:
    parts = []
    for node, ids in sorted((entry.device_ids or {}).items()):
        place = "" if node == _WITHOUT_TOPOLOGY else f" on NUMA node {node}"
        parts.append(f"{ids_cell(ids)}{place}")
    return "; ".join(parts) or "no devices"


def ids_cell(ids: tuple[str, ...] | None) -> str:
    return ids_text(clean(each) for each in ids or ())


def answer_lines(entry: PodDevicesEntry) -> Iterator[str]:
    settings = _settings(entry)
    if isinstance(settings, str):
        yield f"allocation response unreadable: {clean(settings)}"
        return
    yield from settings_lines(settings)


def _settings(entry: PodDevicesEntry) -> Any:
    """The decoded allocation response, or why it cannot be read."""
    from devicemanager.kubelet.wire.errors import WireError
    from devicemanager.kubelet.wire.settings import settings_from_bytes

    try:
        return settings_from_bytes(entry.alloc_resp or b"")
    except WireError as error:
        return str(error)


def as_dict(found: Inspection, names: Names) -> dict[str, Any]:
    loaded = found.checkpoint
    registered = loaded.registered_devices or {}
    return {
        "pod_device_entries": [
            {"pod": names.get(entry.pod_uid), **entry_data(entry)} for entry in loaded.entries or ()
        ],
        "registered_devices": {name: list(ids or ()) for name, ids in registered.items()},
        "checksum": found.found,
        "expected_checksum": found.expected,
    }


def entry_data(entry: PodDevicesEntry) -> dict[str, Any]:
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


def counts(loaded: Checkpoint) -> str:
    entries, resources = len(loaded.entries or ()), len(loaded.registered_devices or ())
    return f"{entries} pod device entries, {resources} registered resources"


def warn(file: str, problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"devicemanager: warning: {clean(file)}: {clean(problem)}", file=sys.stderr)
