"""What a finding is: something that is wrong with a node, and can be seen in its snapshot."""

from __future__ import annotations

import enum

import attrs

__all__ = ["Finding", "Kind", "Severity"]


class Severity(enum.StrEnum):
    """How much it matters."""

    ERROR = "error"
    """Pods are rejected, or get what others have, or will after the next restart."""
    WARNING = "warning"
    """Something is not as it should be; what is allocated is not touched by it."""
    NOTE = "note"
    """As it may be; somebody who looks for a fault wants to know it."""


class Kind(enum.StrEnum):
    """What is wrong."""

    KUBELET_NOT_SERVING = "kubelet-not-serving"
    REGISTRATION_CLOSED = "registration-closed"
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    CHECKPOINT_MISSING = "checkpoint-missing"
    HELD_TWICE = "held-twice"
    NOT_IN_CHECKPOINT = "not-in-checkpoint"
    ONLY_IN_CHECKPOINT = "only-in-checkpoint"
    RESOURCE_WITHOUT_PLUGIN = "resource-without-plugin"
    DEVICES_NOT_OFFERED = "devices-not-offered"
    HELD_NOT_OFFERED = "held-not-offered"
    DEAD_SOCKET = "dead-socket"
    POD_GONE = "pod-gone"
    REPEATED_ENTRY = "repeated-entry"
    UNREGISTERED_RESOURCE = "unregistered-resource"
    ANSWER_UNREADABLE = "answer-unreadable"
    CPU_STATE = "cpu-state"
    MEMORY_STATE = "memory-state"
    TOO_MANY_NUMA_NODES = "too-many-numa-nodes"
    NO_NUMA_NODES = "no-numa-nodes"


@attrs.frozen
class Finding:
    """One thing that is wrong. What it says can be looked up in the snapshot."""

    kind: Kind
    severity: Severity
    message: str
    """What is wrong, one line for people."""
    details: tuple[str, ...] = ()
    """What was seen, a line each."""
    resource: str | None = None
    devices: tuple[str, ...] = ()
    """Ids of devices of that resource."""
    pods: tuple[str, ...] = ()
    """UIDs of the checkpoint, or ``namespace/name`` of PodResources."""
