"""Findings of the rules: kinds of problems, their severity, and advice for each kind."""

from __future__ import annotations

import enum
from typing import Final

import attrs

__all__ = ["ADVICE", "Advice", "Finding", "Kind", "Severity"]


class Severity(enum.StrEnum):
    """How serious a finding is: an error, a warning or a note."""

    ERROR = "error"
    """Pods are rejected or get devices of other pods, now or after the next kubelet restart."""
    WARNING = "warning"
    """Something is wrong, but allocated devices are not affected."""
    NOTE = "note"
    """Not a fault, but useful to know when you look for a fault."""


class Kind(enum.StrEnum):
    """Kind of problem that a rule finds."""

    # The values are part of the JSON output (docs/json.md), so they do not change when texts do.
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
    DRA_STATE_DAMAGED = "dra-state-damaged"
    PREPARED_TWICE = "prepared-twice"
    CLAIM_POD_GONE = "claim-pod-gone"
    CLAIM_WITHOUT_PODS = "claim-without-pods"
    REPEATED_CLAIM = "repeated-claim"
    REPEATED_CLAIM_DEVICE = "repeated-claim-device"
    TOO_MANY_NUMA_NODES = "too-many-numa-nodes"
    NO_NUMA_NODES = "no-numa-nodes"


@attrs.frozen
class Finding:
    """One problem that a rule has found in a snapshot of a node."""

    kind: Kind
    severity: Severity
    message: str
    """The problem in one line, for people."""
    details: tuple[str, ...] = ()
    """Facts that show the problem, one line each."""
    resource: str | None = None
    devices: tuple[str, ...] = ()
    """IDs of affected devices of ``resource``."""
    pods: tuple[str, ...] = ()
    """Affected pods: UIDs from the checkpoint, or ``namespace/name`` from PodResources."""


@attrs.frozen
class Advice:
    """Steps that fix a kind of problem, with links to more information."""

    steps: tuple[str, ...]
    page: str = ""
    """Section of docs/broken-node.md about the problem; empty if the page has no such section."""
    issues: tuple[int, ...] = ()
    """Numbers of issues and pull requests of kubernetes/kubernetes."""

    @property
    def links(self) -> tuple[str, ...]:
        """GitHub URLs of ``issues``."""
        return tuple(f"https://github.com/kubernetes/kubernetes/issues/{n}" for n in self.issues)


def _advice(*steps: str, page: str = "", issues: tuple[int, ...] = ()) -> Advice:
    return Advice(steps, f"docs/broken-node.md#{page}" if page else "", issues)


# Anchors of sections in docs/broken-node.md. A test checks that the sections exist.
_REBOOT = "unexpectedadmissionerror-after-a-reboot"
_ZERO = "nothing-allocatable-though-the-plugin-runs"
_STALE = "devices-of-pods-that-are-gone"
_CORRUPT = "a-corrupt-checkpoint"
_NUMA = "rejected-for-numa-nodes"
_TWICE = "two-pods-on-one-device"
_CLAIMS = "the-kubelet-does-not-start-because-of-dra"

# The kubelet writes its checkpoint after each device list that a plugin sends, and restarting a
# plugin does not affect containers. So restarting a plugin is the safe way to get a new file while
# the kubelet runs.
_REWRITE = "the kubelet rewrites the file from memory when a plugin sends a device list"
_DRAIN = "drain the node, stop the kubelet, move the file away, start the kubelet"

# If an obvious step would make things worse, the advice begins with a warning about it. The most
# frequent such step is to restart the kubelet: it loads the checkpoint and forgets everything else.
ADVICE: Final = {
    Kind.KUBELET_NOT_SERVING: _advice("check that the kubelet runs, and read the end of its log"),
    Kind.REGISTRATION_CLOSED: _advice(
        "restart the kubelet; plugins re-register when kubelet.sock exists", page=_ZERO
    ),
    Kind.CHECKPOINT_DAMAGED: _advice(
        "do not restart the kubelet before this is fixed: it would continue without the file, and "
        "allocated devices would be free",
        f"if the kubelet runs, restart a plugin's pod: {_REWRITE}",
        "otherwise `devicemanager checkpoint repair FILE` shows what can be recovered; --write "
        "repairs the file",
        page=_CORRUPT,
        issues=(102880,),
    ),
    Kind.CHECKPOINT_MISSING: _advice(
        "do not restart the kubelet: allocated devices would be free",
        f"restart a plugin's pod: {_REWRITE}",
        page=_CORRUPT,
    ),
    Kind.HELD_TWICE: _advice(
        "delete one of the pods, and do not trust what the device computed while both had it",
        "do not restart the kubelet or a container before you delete the pod: both pods would get "
        "the device again",
        page=_TWICE,
        issues=(137534, 75880),
    ),
    Kind.NOT_IN_CHECKPOINT: _advice(
        "check whether the disk is full or read-only, then restart a plugin's pod: "
        f"{_REWRITE}; a kubelet restart before that would free allocated devices",
        page=_TWICE,
        issues=(94305,),
    ),
    Kind.ONLY_IN_CHECKPOINT: _advice(
        "the running kubelet did not write this file: was it replaced by hand? Restart a plugin's "
        f"pod: {_REWRITE}; a kubelet restart before that would load the file",
        page=_STALE,
    ),
    Kind.RESOURCE_WITHOUT_PLUGIN: _advice(
        "check in the plugin's log that the plugin runs and has registered since the kubelet "
        "started",
        "restart the plugin's pod so that it re-registers its devices",
        page=_ZERO,
        issues=(121994, 127803, 62773),
    ),
    # Only the plugin's log shows the reason: the kubelet only repeats the plugin's device list.
    Kind.DEVICES_NOT_OFFERED: _advice(
        "read in the plugin's log why the devices are unhealthy or no longer listed",
        page=_ZERO,
    ),
    Kind.HELD_NOT_OFFERED: _advice(
        "read the reason in the plugin's log; a pod that restarts with the kubelet is rejected "
        "until the device is healthy again: move the pod to another node",
        page=_REBOOT,
        issues=(125579, 109595),
    ),
    Kind.DEAD_SOCKET: _advice(
        "a plugin has left the socket behind: start the plugin again, or remove the socket if the "
        "plugin is uninstalled",
        page=_ZERO,
    ),
    Kind.POD_GONE: _advice(
        "usually nothing: a running kubelet frees these devices at the next admission or List "
        "call, and writes the file at the next allocation",
        "to remove the entries while the kubelet is stopped: `devicemanager checkpoint edit FILE "
        "--drop-pod UID`",
        page=_STALE,
        issues=(137010,),
    ),
    Kind.REPEATED_ENTRY: _advice(
        "the last entry counts; `devicemanager checkpoint repair FILE` removes the other entries"
    ),
    Kind.UNREGISTERED_RESOURCE: _advice(
        "if the plugin was uninstalled, delete the pods that use its devices; otherwise start the "
        "plugin",
        page=_ZERO,
    ),
    Kind.ANSWER_UNREADABLE: _advice(
        "delete the pod before the kubelet restarts, so that it is recreated", page=_CORRUPT
    ),
    # If the file is moved away, the kubelet starts with all CPUs shared, but running containers
    # would keep their exclusive CPUs. So drain the node first.
    Kind.CPU_STATE: _advice(_DRAIN, page=_NUMA, issues=(110478,)),
    Kind.MEMORY_STATE: _advice(_DRAIN, page=_NUMA, issues=(131253, 109996)),
    Kind.DRA_STATE_DAMAGED: _advice(
        "do not restart the kubelet before this is fixed: it would not start",
        "if the kubelet runs, start or delete a pod: the kubelet rewrites the file from memory",
        "otherwise `devicemanager checkpoint repair FILE` shows what can be recovered; --write "
        "repairs the file",
        page=_CLAIMS,
    ),
    Kind.PREPARED_TWICE: _advice(
        "check in the API server whether one of the claims has admin access; otherwise delete the "
        "pods of one claim, and do not trust what the device computed",
        page=_CLAIMS,
    ),
    Kind.CLAIM_POD_GONE: _advice(
        "usually nothing: a running kubelet unprepares these claims within a minute; if it does "
        "not, read the driver's error in the kubelet's log",
        "to remove the pod while the kubelet is stopped: `devicemanager checkpoint edit FILE "
        "--drop-pod UID`; no driver is called then",
        page=_CLAIMS,
    ),
    Kind.CLAIM_WITHOUT_PODS: _advice(
        "the claim blocks a new claim with the same name; stop the kubelet and move the file away, "
        "or start a pod with this claim and delete the pod",
        page=_CLAIMS,
    ),
    Kind.REPEATED_CLAIM: _advice(
        "the last entry counts; `devicemanager checkpoint repair FILE` removes the other entries",
        page=_CLAIMS,
    ),
    Kind.REPEATED_CLAIM_DEVICE: _advice(
        "usually nothing: kubelets before v1.37 add a device again when they repeat a call; "
        "containers get its CDI devices twice",
        page=_CLAIMS,
    ),
    Kind.TOO_MANY_NUMA_NODES: _advice(
        "set the policy option max-allowable-numa-nodes, or policy none", page=_NUMA
    ),
    Kind.NO_NUMA_NODES: _advice(
        "if the devices belong to NUMA nodes, the plugin should name them (TopologyInfo)",
        page=_NUMA,
    ),
}
"""Advice for each kind of problem."""
