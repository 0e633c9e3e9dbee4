"""What can be wrong with the checkpoint itself, and between it and PodResources."""

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

_SHOWN = 20


def damaged(node: Node) -> Iterator[Finding]:
    """A kubelet that starts goes on without it: ``Start`` logs the error
    (devicemanager/manager.go, v1.36)."""
    saved = node.saved
    if saved is None or not saved.problems:
        return
    if _is_of_first_format(node.snapshot.checkpoint or b""):
        message = "the checkpoint has the format of kubelets before v1.20"
        details: tuple[str, ...] = ("kubelets from v1.22 to v1.30 read it, no other does",)
    else:
        message = "the checkpoint is damaged"
        lost = [f"lost: {each}" for each in saved.lost]
        details = _first((*saved.problems, *lost))
        details += (f"{len(node.saved_entries)} pod device entries can be read",)
    yield Finding(Kind.CHECKPOINT_DAMAGED, Severity.ERROR, message, tuple(dict.fromkeys(details)))


def _first(lines: tuple[str, ...]) -> tuple[str, ...]:
    more = len(lines) - _SHOWN
    return (*lines[:_SHOWN], f"and {more} more") if more > 0 else lines


def _is_of_first_format(data: bytes) -> bool:
    try:
        checkpoint.loads(data, v1=True)
    except CheckpointCorrupt:
        return False
    return True


def missing(node: Node) -> Iterator[Finding]:
    part = node.snapshot.part(layout.CHECKPOINT)
    if part is not None and part.absent and node.holders:
        count = len(node.holders)
        yield Finding(
            Kind.CHECKPOINT_MISSING,
            Severity.ERROR,
            f"there is no checkpoint, and pods hold {count} devices",
            (f"looked for in {part.source}",),
            pods=tuple(sorted({name for names in node.holders.values() for name in names})),
        )


def held_twice(node: Node) -> Iterator[Finding]:
    """By two pods that are there: of one that is gone the entry is only old."""
    for (resource, id_), names in sorted(node.holders.items()):
        if len(names) > 1:
            yield _twice(resource, id_, names, names, "PodResources says so")
    for (resource, id_), uids in sorted(node.entries.items()):
        here = tuple(uid for uid in uids if uid not in node.gone)
        if len(here) > 1 and len(node.holders.get((resource, id_), ())) < 2:
            titles = tuple(map(node.title, here))
            yield _twice(resource, id_, here, titles, "the checkpoint says so")


def _twice(
    resource: str, id_: str, pods: tuple[str, ...], titles: tuple[str, ...], source: str
) -> Finding:
    message = f"device {id_} of {resource} is held by {len(pods)} pods: {', '.join(titles)}"
    return Finding(
        Kind.HELD_TWICE, Severity.ERROR, message, (source,), resource, (id_,), tuple(pods)
    )


def not_saved(node: Node) -> Iterator[Finding]:
    """What only the running kubelet knows: it forgets it with its next restart."""
    if node.saved is None or node.saved.problems:
        return
    lost: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    key: DeviceKey
    for key, names in sorted(node.holders.items()):
        if key not in node.entries:
            lost.setdefault((key[0], names), []).append(key[1])
    for (resource, names), ids in lost.items():
        devices = "device" if len(ids) == 1 else "devices"
        yield Finding(
            Kind.NOT_IN_CHECKPOINT,
            Severity.ERROR,
            f"{devices} {', '.join(ids)} of {resource}, held by {', '.join(names)}: not in the "
            "checkpoint",
            ("PodResources shows who holds them, and the file has no entry for them",),
            resource,
            tuple(ids),
            names,
        )


def only_saved(node: Node) -> Iterator[Finding]:
    """What the running kubelet does not know, of a container that it shows. Of others there is
    no telling: PodResources has no init containers."""
    if node.saved is None or node.saved.problems or node.snapshot.pods is None:
        return
    shown = {
        (f"{pod.namespace}/{pod.name}", container.name)
        for pod in node.snapshot.pods
        for container in pod.containers
    }
    for entry in node.saved_entries:
        name, resource = node.names.get(entry.pod_uid), entry.resource_name
        if (name, entry.container_name) not in shown or entry.pod_uid in node.gone:
            continue
        ids = sorted(i for i in ids_of(entry) if name not in node.holders.get((resource, i), ()))
        if ids:
            yield Finding(
                Kind.ONLY_IN_CHECKPOINT,
                Severity.WARNING,
                f"by the checkpoint, container {entry.container_name} of pod "
                f"{node.title(entry.pod_uid)} holds {', '.join(ids)} of {resource}; by "
                "PodResources it does not",
                (),
                resource,
                tuple(ids),
                (entry.pod_uid,),
            )


def gone(node: Node) -> Iterator[Finding]:
    for uid, is_sure in sorted(node.gone.items()):
        held = {key for key, uids in node.entries.items() if uid in uids}
        devices = sorted(f"{id_} of {resource}" for resource, id_ in held)
        others = sorted({name for key in held for name in node.holders.get(key, ())})
        if others:
            now = f"of these devices some are held by {', '.join(others)} now"
        elif node.snapshot.pods is not None:
            now = "no pod of PodResources holds these devices"
        else:
            now = "PodResources could not be asked"
        how = (
            f"the kubelet has no directory for it, and {now}"
            if is_sure
            else f"{now}; an init container's would not be shown, so make sure"
        )
        yield Finding(
            Kind.POD_GONE,
            Severity.WARNING,
            f"pod {node.title(uid)} is in the checkpoint and not on the node",
            (f"it holds {', '.join(devices)}", how),
            pods=(uid,),
            devices=tuple(sorted(id_ for _, id_ in held)),
        )


_KINDS = {
    FindingKind.REPEATED_ENTRY: Kind.REPEATED_ENTRY,
    FindingKind.UNREGISTERED_RESOURCE: Kind.UNREGISTERED_RESOURCE,
}


def inconsistent(node: Node) -> Iterator[Finding]:
    """What no kubelet would have written."""
    if node.saved is None:
        return
    for found in node.saved.inconsistencies():
        if (kind := _KINDS.get(found.kind)) is not None:
            yield Finding(
                kind, Severity.WARNING, found.message, resource=found.resource, pods=found.pods
            )


def unreadable_answers(node: Node) -> Iterator[Finding]:
    """A kubelet leaves such an entry out (``fromCheckpointData``, v1.36)."""
    for entry in node.saved_entries:
        if (why := _objection(entry)) is not None:
            yield Finding(
                Kind.ANSWER_UNREADABLE,
                Severity.ERROR,
                f"what the plugin of {entry.resource_name} answered for pod "
                f"{node.title(entry.pod_uid)}, container {entry.container_name} cannot be read",
                (why, "a kubelet that starts leaves the entry out, and the devices count as free"),
                entry.resource_name,
                pods=(entry.pod_uid,),
            )


def _objection(entry: PodDevicesEntry) -> str | None:
    from google.protobuf.message import DecodeError

    from devicemanager.kubelet.wire.settings import settings_from_bytes

    try:
        settings_from_bytes(entry.alloc_resp or b"")
    except EndpointError as error:
        # Another cause is one of ours alone: a typed device of a kind that is not known.
        return str(error) if isinstance(error.__cause__, DecodeError) else None
    return None


RULES = (
    damaged,
    missing,
    held_twice,
    not_saved,
    only_saved,
    unreadable_answers,
    gone,
    inconsistent,
)
