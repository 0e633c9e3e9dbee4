"""Read the checkpoint files that the user names, and show their content as lines or data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from devicemanager.cli.files import STANDARD_INPUT, read_checkpoint
from devicemanager.cli.options import CommandError
from devicemanager.cli.output import clean, ids_text, settings_lines
from devicemanager.cli.snapshot import unpacked

if TYPE_CHECKING:
    from checkpoint import Checkpoint, Inspection, PodDevicesEntry
    from devicemanager.snapshot import Snapshot
    from devicemanager.snapshot.names import Names

# WITHOUT_TOPOLOGY of the core, repeated here because the core is slow to import.
_WITHOUT_TOPOLOGY = -1


class CheckpointFile(NamedTuple):
    """The bytes of a checkpoint file, not yet checked, and where they come from."""

    name: str
    data: bytes
    path: Path | None
    """The path of the file; None for standard input or a snapshot, which cannot be replaced."""
    snapshot: Snapshot | None = None
    """The snapshot that contains the checkpoint, if any."""

    @classmethod
    def read(cls, text: str) -> CheckpointFile:
        """Read a checkpoint file, or the checkpoint in a snapshot; ``-`` is standard input.

        Raises CommandError and SnapshotError.
        """
        from devicemanager.snapshot.packing import is_packed

        data = read_checkpoint(text)
        # Recognized by content: users rename archives, and standard input has no name.
        if not is_packed(data):
            return cls(text, data, None if text == STANDARD_INPUT else Path(text))
        snapshot = unpacked(data, text)
        if snapshot.checkpoint is None:
            part = snapshot.part("kubelet_internal_checkpoint")
            why = f": {part.problem}" if part is not None and part.problem else ""
            raise CommandError(f"{text}: the snapshot has no checkpoint{why}")
        return cls(text, snapshot.checkpoint, None, snapshot)


def inspect_checkpoint(text: str) -> Inspection:
    """Inspect a checkpoint file, which may be damaged. Raises CommandError if it cannot be read."""
    import checkpoint

    return checkpoint.inspect(CheckpointFile.read(text).data)


# -- content -----------------------------------------------------------------------------


def lines(loaded: Checkpoint, names: Names) -> Iterator[str]:
    """Yield the content of a checkpoint as lines, with the known names of pods."""
    if not loaded.entries:
        yield "no devices are allocated"
    # Entries of one container are adjacent, so its heading is printed once.
    latest = None
    for entry in loaded.entries or ():
        if latest != (entry.pod_uid, entry.container_name):
            latest = (entry.pod_uid, entry.container_name)
            name = names.get(entry.pod_uid)
            pod = entry.pod_uid if name is None else f"{name} ({entry.pod_uid})"
            yield f"pod {clean(pod)}, container {clean(entry.container_name)}"
        yield f"  {clean(entry.resource_name)}: {devices_text(entry)}"
        for line in response_lines(entry):
            yield f"    {line}"
    if not loaded.registered_devices:
        yield "no resources are registered"
    for resource, ids in sorted((loaded.registered_devices or {}).items()):
        yield f"registered {clean(resource)}: {len(ids or ())} healthy: {ids_cell(ids)}"


def devices_text(entry: PodDevicesEntry) -> str:
    """Return the devices of a checkpoint entry with their NUMA nodes, as text."""
    parts = []
    for node, ids in sorted((entry.device_ids or {}).items()):
        place = "" if node == _WITHOUT_TOPOLOGY else f" on NUMA node {node}"
        parts.append(f"{ids_cell(ids)}{place}")
    return "; ".join(parts) or "no devices"


def ids_cell(ids: tuple[str, ...] | None) -> str:
    """Return device IDs as the text of one table cell."""
    return ids_text(clean(each) for each in ids or ())


def response_lines(entry: PodDevicesEntry) -> Iterator[str]:
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
    except WireError as error:
        return str(error)


def as_dict(found: Inspection, names: Names) -> dict[str, Any]:
    """Return the content of a checkpoint as data for JSON."""
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


def counts(loaded: Checkpoint) -> str:
    """Return the numbers of entries and of resources in a checkpoint, as text."""
    entries, resources = len(loaded.entries or ()), len(loaded.registered_devices or ())
    return f"{entries} pod device entries, {resources} registered resources"


def warn(file: str, problems: Sequence[str]) -> None:
    """Print a warning on standard error for each problem of a file."""
    for problem in problems:
        print(f"devicemanager: warning: {clean(file)}: {clean(problem)}", file=sys.stderr)
