"""List what a rehearsal assumes about facts that the snapshot of the node does not show.

A rehearsal predicts what steps such as a kubelet restart or a reboot would do on a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from devicemanager.core.versions.changelog import warning
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.rehearsal.snapshot_node import SnapshotNode
from devicemanager.rehearsal.steps import Configure, Reboot, Restart, SetDevices, Step
from devicemanager.snapshot.kubeletconfig import Alignment
from devicemanager.snapshot.statefiles import STATIC_CPU, STATIC_MEMORY

__all__ = ["assumptions"]

_ALWAYS = (
    "each pod requests what is allocated to it; pods without devices, exclusive CPUs, exclusive "
    "memory and ResourceClaims are left out",
    "plugins accept every allocation and prefer no devices",
    "drivers accept every ResourceClaim, and claims are allocated the devices in dra_manager_state",
)


def assumptions(
    node: SnapshotNode, steps: Sequence[Step], version: KubeletVersion
) -> tuple[str, ...]:
    """Return the assumptions of a rehearsal, as sentences without a period at the end."""
    aligned = _of_cpus_and_memory(node.aligned)
    return (*_ALWAYS, *aligned, *_of_steps(steps, version), *_missing(node), *node.notes)


def _of_cpus_and_memory(aligned: Alignment) -> Iterator[str]:
    if aligned.cpu_policy == STATIC_CPU or aligned.memory_policy == STATIC_MEMORY:
        yield (
            "exclusive CPUs and memory follow the source of the kubelet's CPU manager and memory "
            "manager; they were not compared with a real kubelet"
        )
    if aligned.cpu_policy == STATIC_CPU and aligned.cpu_options:
        yield f"CPU manager policy options are ignored: {', '.join(aligned.cpu_options)}"


def _of_steps(steps: Sequence[Step], version: KubeletVersion) -> Iterator[str]:
    if not any(isinstance(step, Configure) and step.kubelet_version for step in steps):
        yield f"the kubelet is of version {version}, because the snapshot does not show it"
    changed = sorted({step.resource for step in steps if isinstance(step, SetDevices)})
    if any(isinstance(step, Restart | Reboot) for step in steps):
        others = f", except {', '.join(changed)}" if changed else ""
        yield f"plugins advertise the same devices after a start{others}"
    if text := warning(version):
        yield text


def _missing(node: SnapshotNode) -> Iterator[str]:
    for part in node.node.snapshot.parts:
        if part.problem is not None and not part.absent:
            yield f"{part.source} is not in the snapshot: {part.problem}"
