"""The snapshot of a fleet's node: the one in the fleet, or one made from API objects.

The API server shows how many devices a node has and how many a container requests, but no device
IDs, NUMA nodes or policies. Therefore devices get made-up IDs, and an in-memory kubelet allocates
devices to the pods of the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

import checkpoint
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.ids import ResourceName
from devicemanager.core.pods import Pod, pod_requests
from devicemanager.core.quantity import parse_quantity, whole_units
from devicemanager.fleet.model import FleetError, FleetNode, Object
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.objects.manifests import ManifestError, bound_pod
from devicemanager.snapshot import layout
from devicemanager.snapshot.model import LoggedPod, Part, PodDirectories, Snapshot

__all__ = ["amounts", "device_pods", "devices_of", "snapshot_of"]

_PARTS = (
    Part(
        layout.CHECKPOINT,
        "the checkpoint",
        "the API server shows only numbers of devices: they have made-up IDs, no NUMA nodes, "
        "and older pods have the lowest IDs",
    ),
    Part(
        layout.CONFIG,
        "the kubelet's configuration",
        "the topology policy none and no exclusive CPUs or memory are assumed",
    ),
)


def snapshot_of(node: FleetNode) -> Snapshot:
    """Return the node's snapshot from the fleet, or make one from API objects.

    If the snapshot is made from API objects, its ``parts`` say which data is missing and what is
    assumed instead. Raises FleetError for invalid API objects, and SnapshotError for an invalid
    archive.
    """
    if node.archive is not None:
        # Not at the top: a fleet without snapshots does not need the reader of archives.
        from devicemanager.snapshot.reading import read_snapshot

        return read_snapshot(node.archive, f"snapshot of {node.name}")
    return _made(node)


def _made(node: FleetNode) -> Snapshot:
    healthy, all_ = devices_of(node, "allocatable"), devices_of(node, "capacity")
    # With all devices, because pods can hold devices that became unhealthy after the admission.
    kubelet = InMemoryKubelet(simulate=all_, clock=ManualClock())
    ids = {name: sorted(each.id for each in found) for name, found in kubelet.simulated().items()}
    # On a node that allocates more than it has, the pods that do not fit are left out.
    pods = [pod for pod in device_pods(node) if kubelet.admit(pod, start=False).admitted]
    stored = kubelet.stored_checkpoint()
    saved = attrs.evolve(
        stored or checkpoint.Checkpoint(None, {}),
        # The API does not say which devices are unhealthy. Those with the highest IDs are assumed,
        # because the pods hold the lowest IDs.
        registered_devices={
            name: tuple(each[: healthy.get(name, 0)]) for name, each in ids.items()
        },
    )
    return Snapshot(
        taken="",
        tool="",
        node=node.name,
        root="",
        parts=_PARTS,
        checkpoint=checkpoint.dumps(saved),
        directories=PodDirectories(
            tuple(pod.uid for pod in pods),
            tuple(LoggedPod(pod.namespace, pod.name, pod.uid) for pod in pods),
        ),
    )


def devices_of(node: FleetNode, field: str) -> dict[str, int]:
    """Return the number of devices of each extended resource, from the node's status.

    ``field`` is ``capacity`` or ``allocatable``.
    """
    found = amounts(node.object["status"].get(field) or {}, node.name)
    return {name: each for name, each in found.items() if is_extended_resource_name(name)}


def amounts(quantities: Mapping[str, object], where: str) -> dict[str, int]:
    """Convert quantities to integers, rounded up. Raises FleetError for an invalid quantity; the
    error's text begins with ``where``."""
    try:
        return {name: whole_units(parse_quantity(str(each))) for name, each in quantities.items()}
    except ValueError as error:
        raise FleetError(f"{where}: {error}") from None


def device_pods(node: FleetNode) -> Iterator[Pod]:
    """Yield the running pods of a node that request devices. Raises FleetError for an invalid
    pod."""
    return (parsed(pod) for pod in node.running if _requests_devices(pod))


def parsed(pod: Object) -> Pod:
    """Parse a Pod object of the fleet and return the ``Pod``. Raises FleetError for an invalid
    object."""
    try:
        return bound_pod(pod)
    except ManifestError as error:
        raise FleetError(str(error)) from None


def _requests_devices(pod: Object) -> bool:
    # Parsing takes much longer than this check, and most pods request no device.
    containers = (*pod["spec"].get("containers", ()), *pod["spec"].get("initContainers", ()))
    return any("/" in name for each in containers for name in _limits(each))


def _limits(container: Object) -> Mapping[str, object]:
    return (container.get("resources") or {}).get("limits") or {}


def requested(pods: Iterator[Pod]) -> Mapping[ResourceName, int]:
    """Return the number of devices that pods request, by resource."""
    found: dict[ResourceName, int] = {}
    for pod in pods:
        # The API server requires limits for extended resources, and requests equal to them.
        for name, amount in pod_requests(pod, lambda container: container.limits).items():
            if is_extended_resource_name(name):
                found[name] = found.get(name, 0) + amount
    return found
