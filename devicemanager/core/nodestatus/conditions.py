"""The conditions of a node's status (pkg/kubelet/nodestatus/setters.go, v1.32)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import attrs

_REQUIRED = ("cpu", "memory", "pods", "ephemeral-storage")
"""Resources that a ready node must have in its capacity."""


class Pressure(StrEnum):
    """Pressure condition of a node; the members are in the kubelet's order."""

    MEMORY = "MemoryPressure"
    DISK = "DiskPressure"
    PID = "PIDPressure"


_TEXTS = {
    (Pressure.MEMORY, False): (
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    (Pressure.MEMORY, True): (
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
    ),
    (Pressure.DISK, False): ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    (Pressure.DISK, True): ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    (Pressure.PID, False): ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    (Pressure.PID, True): ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
}


@attrs.frozen
class NodeCondition:
    """One condition of a node's status, without its times."""

    type: str
    status: bool
    reason: str
    message: str


def node_conditions(
    capacity: Collection[str],
    errors: Sequence[str] = (),
    pressures: Collection[Pressure] = (),
) -> tuple[NodeCondition, ...]:
    """Return the four conditions of the node, Ready last.

    ``capacity`` has the names of the resources in the node's capacity. A node without ``cpu``,
    ``memory``, ``pods`` or ``ephemeral-storage`` is not ready. ``errors`` are other reasons why the
    node is not ready. ``pressures`` has the pressure conditions that are True.
    """
    under_pressure = tuple(
        NodeCondition(kind, kind in pressures, *_TEXTS[kind, kind in pressures])
        for kind in Pressure
    )
    return (*under_pressure, _ready(capacity, errors))


def _ready(capacity: Collection[str], errors: Sequence[str]) -> NodeCondition:
    missing = [name for name in _REQUIRED if name not in capacity]
    faults = list(errors)
    if missing:
        faults.append(f"missing node capacity for resources: {', '.join(missing)}")
    if not faults:
        return NodeCondition("Ready", True, "KubeletReady", "kubelet is posting ready status")
    # Go's error aggregate prints each message once (k8s.io/apimachinery/pkg/util/errors).
    faults = list(dict.fromkeys(faults))
    message = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    return NodeCondition("Ready", False, "KubeletNotReady", message)
