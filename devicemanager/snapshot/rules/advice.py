"""What to do about each kind of finding, and where it is known upstream."""

from __future__ import annotations

from typing import Final

import attrs

from devicemanager.snapshot.rules.finding import Kind

__all__ = ["ADVICE", "Advice", "link"]

_PAGE: Final = "docs/broken-node.md"
_ISSUES: Final = "https://github.com/kubernetes/kubernetes/issues/"


@attrs.frozen
class Advice:
    """What to do, where it is described, and whose defect it is."""

    steps: tuple[str, ...]
    page: str = ""
    """A section of docs/broken-node.md."""
    issues: tuple[int, ...] = ()
    """Issues and pull requests of kubernetes/kubernetes."""

    @property
    def links(self) -> tuple[str, ...]:
        return tuple(map(link, self.issues))


def link(issue: int) -> str:
    """The address of an issue or pull request of kubernetes/kubernetes."""
    return f"{_ISSUES}{issue}"


def _advice(*steps: str, page: str = "", issues: tuple[int, ...] = ()) -> Advice:
    return Advice(steps, f"{_PAGE}#{page}" if page else "", issues)


_REBOOT = "unexpectedadmissionerror-after-a-reboot"
_ZERO = "nothing-allocatable-though-the-plugin-runs"
_STALE = "devices-of-pods-that-are-gone"
_CORRUPT = "a-corrupt-checkpoint"
_NUMA = "rejected-for-numa-nodes"
_TWICE = "two-pods-on-one-device"

_DRAIN = "drain the node, stop the kubelet, move the file away, start the kubelet"

ADVICE: Final = {
    Kind.KUBELET_NOT_SERVING: _advice(
        "look whether the kubelet runs, and at the last lines of its log"
    ),
    Kind.REGISTRATION_CLOSED: _advice(
        "restart the kubelet; plugins register again when kubelet.sock is there", page=_ZERO
    ),
    Kind.CHECKPOINT_DAMAGED: _advice(
        "do not restart the kubelet before this is mended: it would go on without the file, and "
        "devices that containers have would be free",
        "if it runs, restart a plugin's pod: with the list that a plugin sends, the kubelet writes "
        "the file anew from memory",
        "else `devicemanager checkpoint repair FILE` shows what can be saved, and --write does it",
        page=_CORRUPT,
        issues=(102880,),
    ),
    Kind.CHECKPOINT_MISSING: _advice(
        "do not restart the kubelet: devices in use would be free; restart a plugin's pod instead: "
        "with the list that a plugin sends, the file is written anew",
        page=_CORRUPT,
    ),
    Kind.HELD_TWICE: _advice(
        "delete one of the pods, and do not trust what the device did meanwhile",
        "restart nothing before that: both would get the device again",
        page=_TWICE,
        issues=(137534, 75880),
    ),
    Kind.NOT_IN_CHECKPOINT: _advice(
        "look whether the disk is full or read-only, then restart a plugin's pod: with the list "
        "that a plugin sends, the file is written anew; if the kubelet restarts before, it frees "
        "what is in use",
        page=_TWICE,
        issues=(94305,),
    ),
    Kind.ONLY_IN_CHECKPOINT: _advice(
        "the file is not the running kubelet's: was it put there by hand? Restart a plugin's pod, "
        "and the kubelet writes it anew from memory; if the kubelet restarts before, it believes "
        "the file",
        page=_STALE,
    ),
    Kind.RESOURCE_WITHOUT_PLUGIN: _advice(
        "look at the plugin's log: does it run, and did it register since the kubelet started?",
        "restart the plugin's pod: it registers anew, and the devices are back",
        page=_ZERO,
        issues=(121994, 127803, 62773),
    ),
    Kind.DEVICES_NOT_OFFERED: _advice(
        "look in the plugin's log why it reports them as unhealthy, or lists them no more",
        page=_ZERO,
    ),
    Kind.HELD_NOT_OFFERED: _advice(
        "look in the plugin's log why; a pod that restarts with the kubelet is rejected until the "
        "device is healthy again: move it to another node",
        page=_REBOOT,
        issues=(125579, 109595),
    ),
    Kind.DEAD_SOCKET: _advice(
        "a plugin left it behind: start the plugin again, or remove the file if it is gone for "
        "good",
        page=_ZERO,
    ),
    Kind.POD_GONE: _advice(
        "as a rule nothing: a running kubelet frees these devices at the next admission or List, "
        "and writes the file with the next allocation",
        "if a stopped kubelet is to start without them: `devicemanager checkpoint edit FILE "
        "--drop-pod UID`",
        page=_STALE,
        issues=(137010,),
    ),
    Kind.REPEATED_ENTRY: _advice(
        "the last entry counts; `devicemanager checkpoint repair FILE` leaves the others out"
    ),
    Kind.UNREGISTERED_RESOURCE: _advice(
        "if the plugin was removed for good, end the pods that hold its devices; else start it",
        page=_ZERO,
    ),
    Kind.ANSWER_UNREADABLE: _advice(
        "end the pod before the kubelet restarts, and let it be made anew", page=_CORRUPT
    ),
    Kind.CPU_STATE: _advice(_DRAIN, page=_NUMA, issues=(110478,)),
    Kind.MEMORY_STATE: _advice(_DRAIN, page=_NUMA, issues=(131253, 109996)),
    Kind.TOO_MANY_NUMA_NODES: _advice(
        "set the policy option max-allowable-numa-nodes, or policy none", page=_NUMA
    ),
    Kind.NO_NUMA_NODES: _advice(
        "if the devices have a place, the plugin should name it (TopologyInfo)", page=_NUMA
    ),
}
"""By kind; every kind has one."""
