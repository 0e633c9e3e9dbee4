"""Rules for the checkpoint, and for differences between the checkpoint and PodResources."""

from __future__ import annotations

from collections.abc import Iterator

import checkpoint
from checkpoint import CheckpointCorrupt, FindingKind, PodDevicesEntry
from devicemanager.core.errors import EndpointError
from devicemanager.snapshot import layout
from devicemanager.snapshot.names import ids_of
from devicemanager.snapshot.node import DeviceKey, Node
from devicemanager.snapshot.rules.finding import Finding, Kind, Severity

__all__ = ["RULES"]

_MOST_LINES = 20


def damaged(node: Node) -> Iterator[Finding]:
    """Find a damaged checkpoint, or a checkpoint of an old format.

    At its start, the kubelet logs the error and continues without the file (``Start``,
    devicemanager/manager.go, v1.36).
    """
    saved = node.saved
    if saved is None or not saved.problems:
        return
    # An old format is not damage, although newer kubelets treat it as damage. It needs another fix.
    if _has_first_format(node.snapshot.checkpoint or b""):
        message = "the checkpoint has the format of kubelets before v1.20"
        details: tuple[str, ...] = ("only kubelets from v1.22 to v1.30 can read it",)
    else:
        message = "the checkpoint is damaged"
        lost = [f"lost: {each}" for each in saved.lost]
        details = _first((*saved.problems, *lost))
        details += (f"readable pod device entries: {len(node.saved_entries)}",)
    yield Finding(Kind.CHECKPOINT_DAMAGED, Severity.ERROR, message, tuple(dict.fromkeys(details)))


def _first(lines: tuple[str, ...]) -> tuple[str, ...]:
    more = len(lines) - _MOST_LINES
    return (*lines[:_MOST_LINES], f"and {more} more") if more > 0 else lines


def _has_first_format(data: bytes) -> bool:
    try:
        checkpoint.loads(data, v1=True)
    except CheckpointCorrupt:
        return False
    return True


def missing(node: Node) -> Iterator[Finding]:
    """Find a missing checkpoint on a node with allocated devices."""
    part = node.snapshot.part(layout.CHECKPOINT)
    # Without allocated devices, a kubelet that starts without a checkpoint loses nothing.
    if part is not None and part.absent and node.allocated_to:
        yield Finding(
            Kind.CHECKPOINT_MISSING,
            Severity.ERROR,
            f"there is no checkpoint; number of allocated devices: {len(node.allocated_to)}",
            (f"no file {part.source}",),
            pods=tuple(sorted({name for names in node.allocated_to.values() for name in names})),
        )


def allocated_twice(node: Node) -> Iterator[Finding]:
    """Find devices that are allocated to several pods.

    Pods that are no longer on the node do not count: their entries in the checkpoint are only
    stale.
    """
    for (resource, id_), names in sorted(node.allocated_to.items()):
        if len(names) > 1:
            yield _twice(resource, id_, names, names, "according to PodResources")
    # Use the checkpoint only for devices that PodResources shows for at most one pod, so that one
    # problem leads to one finding.
    for (resource, id_), uids in sorted(node.saved_for.items()):
        here = tuple(uid for uid in uids if uid not in node.gone)
        if len(here) > 1 and len(node.allocated_to.get((resource, id_), ())) < 2:
            titles = tuple(map(node.title, here))
            yield _twice(resource, id_, here, titles, "according to the checkpoint")


def _twice(
    resource: str, id_: str, pods: tuple[str, ...], titles: tuple[str, ...], source: str
) -> Finding:
    message = f"device {id_} of {resource} is allocated to {len(pods)} pods: {', '.join(titles)}"
    return Finding(
        Kind.HELD_TWICE, Severity.ERROR, message, (source,), resource, (id_,), tuple(pods)
    )


def not_saved(node: Node) -> Iterator[Finding]:
    """Find allocated devices that are missing in the checkpoint. A kubelet restart would free
    them."""
    # A damaged file can lack entries, and the rule `damaged` already reports it.
    if node.saved is None or node.saved.problems:
        return
    # Grouped by resource and pods, so that one cause leads to one finding.
    lost: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    key: DeviceKey
    for key, names in sorted(node.allocated_to.items()):
        if key not in node.saved_for:
            lost.setdefault((key[0], names), []).append(key[1])
    for (resource, names), ids in lost.items():
        devices = "device" if len(ids) == 1 else "devices"
        yield Finding(
            Kind.NOT_IN_CHECKPOINT,
            Severity.ERROR,
            f"{devices} {', '.join(ids)} of {resource}, allocated to {', '.join(names)}: not in "
            "the checkpoint",
            ("PodResources shows the allocation, and the file has no entry for it",),
            resource,
            tuple(ids),
            names,
        )


def only_saved(node: Node) -> Iterator[Finding]:
    """Find devices that a container has in the checkpoint, but not in PodResources.

    A container that PodResources does not show is skipped: it may be an init container, which
    PodResources omits.
    """
    if node.saved is None or node.saved.problems or node.snapshot.pods is None:
        return
    shown = {
        (f"{pod.namespace}/{pod.name}", container.name)
        for pod in node.snapshot.pods
        for container in pod.containers
    }
    # Skip pods that are no longer on the node: the rule ``gone`` reports their entries.
    for entry in node.saved_entries:
        name, resource = node.names.get(entry.pod_uid), entry.resource_name
        if (name, entry.container_name) not in shown or entry.pod_uid in node.gone:
            continue
        ids = sorted(
            id_ for id_ in ids_of(entry) if name not in node.allocated_to.get((resource, id_), ())
        )
        if ids:
            yield Finding(
                Kind.ONLY_IN_CHECKPOINT,
                Severity.WARNING,
                f"container {entry.container_name} of pod {node.title(entry.pod_uid)} has "
                f"{', '.join(ids)} of {resource} in the checkpoint, but not in PodResources",
                (),
                resource,
                tuple(ids),
                (entry.pod_uid,),
            )


def gone(node: Node) -> Iterator[Finding]:
    """Find checkpoint entries of pods that are no longer on the node."""
    for uid, is_certain in sorted(node.gone.items()):
        keys = {key for key, uids in node.saved_for.items() if uid in uids}
        devices = sorted(f"{id_} of {resource}" for resource, id_ in keys)
        others = sorted({name for key in keys for name in node.allocated_to.get(key, ())})
        # The devices of a pod that is gone are free and may have been allocated to another pod.
        if others:
            now = f"some of these devices are now allocated to {', '.join(others)}"
        elif node.snapshot.pods is not None:
            now = "according to PodResources, none of these devices is allocated"
        else:
            now = "PodResources could not be read"
        reason = (
            f"the kubelet has no directory for the pod; {now}"
            if is_certain
            else f"{now}; PodResources omits init containers, so check the pod"
        )
        yield Finding(
            Kind.POD_GONE,
            Severity.WARNING,
            f"pod {node.title(uid)} is in the checkpoint, but not on the node",
            (f"its entries have {', '.join(devices)}", reason),
            pods=(uid,),
            devices=tuple(sorted(id_ for _, id_ in keys)),
        )


_KINDS = {
    FindingKind.REPEATED_ENTRY: Kind.REPEATED_ENTRY,
    FindingKind.UNREGISTERED_RESOURCE: Kind.UNREGISTERED_RESOURCE,
}


def inconsistent(node: Node) -> Iterator[Finding]:
    """Find checkpoint entries that no kubelet would have written."""
    if node.saved is None:
        return
    for found in node.saved.inconsistencies():
        # Skip devices that are allocated twice: the rule ``allocated_twice`` above also uses
        # PodResources.
        if (kind := _KINDS.get(found.kind)) is not None:
            yield Finding(
                kind, Severity.WARNING, found.message, resource=found.resource, pods=found.pods
            )


def unreadable_responses(node: Node) -> Iterator[Finding]:
    """Find checkpoint entries with an invalid plugin response. A kubelet skips such entries
    (``fromCheckpointData``, v1.36)."""
    for entry in node.saved_entries:
        if (problem := _problem(entry)) is not None:
            yield Finding(
                Kind.ANSWER_UNREADABLE,
                Severity.ERROR,
                f"the response of the plugin of {entry.resource_name} for pod "
                f"{node.title(entry.pod_uid)}, container {entry.container_name} cannot be read",
                (problem, "a kubelet that starts skips the entry, and its devices count as free"),
                entry.resource_name,
                pods=(entry.pod_uid,),
            )


def _problem(entry: PodDevicesEntry) -> str | None:
    # Imported here because protobuf is slow to import, and taking a snapshot does not need it.
    from google.protobuf.message import DecodeError

    from devicemanager.kubelet.wire.settings import settings_from_bytes

    try:
        settings_from_bytes(entry.alloc_resp or b"")
    except EndpointError as error:
        # Ignore any other cause: it concerns an extension of this project, typed devices of an
        # unknown kind.
        return str(error) if isinstance(error.__cause__, DecodeError) else None
    return None


RULES = (
    damaged,
    missing,
    allocated_twice,
    not_saved,
    only_saved,
    unreadable_responses,
    gone,
    inconsistent,
)
