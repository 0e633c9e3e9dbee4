"""Write a snapshot to an archive."""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Iterator, Mapping

import attrs

from devicemanager.kubelet.host.numa import as_content
from devicemanager.snapshot import layout
from devicemanager.snapshot.model import Snapshot
from devicemanager.snapshot.packing import pack
from podresources.rendering import allocatable_data, pod_data

__all__ = ["TIME", "archive"]

TIME = "%Y-%m-%dT%H:%M:%SZ"


def archive(snapshot: Snapshot) -> bytes:
    """Return the bytes of a snapshot's archive. Equal snapshots lead to equal bytes."""
    # The files have the time of the snapshot, so that equal snapshots give equal bytes.
    return pack(dict(_files(snapshot)), calendar.timegm(time.strptime(snapshot.taken, TIME)))


def _files(snapshot: Snapshot) -> Iterator[tuple[str, bytes]]:
    yield layout.INDEX, _index(snapshot)
    # A part that was not read has no file, so that readers can distinguish it from an empty part.
    if snapshot.pods is not None:
        pods = [pod_data(pod) for pod in snapshot.pods]
        yield layout.POD_RESOURCES, _json({"pod_resources": pods})
    if snapshot.allocatable is not None:
        yield layout.ALLOCATABLE, _json(allocatable_data(snapshot.allocatable))
    for name, data in (
        (layout.CHECKPOINT, snapshot.checkpoint),
        (layout.CPU_STATE, snapshot.cpu_state),
        (layout.MEMORY_STATE, snapshot.memory_state),
        (layout.DRA_STATE, snapshot.dra_state),
        (layout.DRA_HEALTH, snapshot.dra_health),
    ):
        if data is not None:
            yield name, data
    if snapshot.sockets is not None:
        sockets = [attrs.asdict(socket) for socket in snapshot.sockets]
        yield layout.SOCKETS, _json({"sockets": sockets})
    if snapshot.numa is not None:
        yield layout.NUMA, _json(as_content(snapshot.numa))
    if snapshot.config is not None:
        yield layout.CONFIG, _json(attrs.asdict(snapshot.config))
    if snapshot.directories is not None:
        yield layout.PODS, _json(attrs.asdict(snapshot.directories))


def _index(snapshot: Snapshot) -> bytes:
    return _json(
        {
            "schema": layout.SCHEMA,
            "taken": snapshot.taken,
            "tool": snapshot.tool,
            "node": snapshot.node,
            "root": snapshot.root,
            "parts": [attrs.asdict(part) for part in snapshot.parts],
        }
    )


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
