"""The in-memory kubelet of a fleet's node, with its running pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

import attrs

from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.fleet.model import FleetError, FleetNode
from devicemanager.fleet.snapshots import parsed, snapshot_of
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.rehearsal.runs import Plan
from devicemanager.rehearsal.snapshot_node import SnapshotNode
from devicemanager.rehearsal.start_problems import KubeletFails
from devicemanager.rehearsal.steps import Configure
from devicemanager.snapshot.node import Node

__all__ = ["KubeletOfNode", "native_amounts"]


@attrs.frozen
class KubeletOfNode:
    """The state of a fleet's node. Its methods make in-memory kubelets with this state."""

    fleet_node: FleetNode
    node: SnapshotNode
    version: str | None

    @classmethod
    def of(cls, fleet_node: FleetNode, facts: Node | None = None) -> Self:
        """Create a ``KubeletOfNode`` from the snapshot of a fleet's node.

        ``facts`` has the contents of the snapshot if the caller has already read the snapshot.
        Without ``facts``, this method reads the snapshot. Raises FleetError for a node whose data
        cannot be used, and SnapshotError for an invalid snapshot.
        """
        node = SnapshotNode.of(facts or Node(snapshot_of(fleet_node)))
        version = fleet_node.version
        return cls(fleet_node, node, None if version is None else str(version))

    def settings(
        self, node_allocatable: Mapping[str, str] | None = None, changes: Configure | None = None
    ) -> Settings:
        """Return the settings of the node's kubelet.

        ``node_allocatable`` maps resources such as ``cpu``, ``memory`` and ``pods`` to quantities;
        None means no limits. ``changes`` has a kubelet version and settings of the Topology Manager
        that replace those of the node. Raises FleetError if the kubelet would not start.
        """
        plan = Plan(self.node, (), (), lost_checkpoint=None)
        try:
            present = Configure(kubelet_version=self.version)
            # The changes come last, because they replace the settings of the node.
            base = plan.settings(present if changes is None else present.then(changes))
        except KubeletFails as error:
            raise FleetError(f"{self.fleet_node.name}: {error}") from None
        return attrs.evolve(
            base, node_name=self.fleet_node.name, node_allocatable=node_allocatable or {}
        )

    def kubelet(self, settings: Settings) -> InMemoryKubelet:
        """Return a new kubelet with the node's devices.

        The allocations come from the node's checkpoint. The kubelet starts without pods.
        """
        devices = {str(name): tuple(each.values()) for name, each in self.node.inventory().items()}
        # This clock needs no thread, and the result does not depend on the time of day.
        return InMemoryKubelet(
            settings, devices, clock=ManualClock(), saved=self.node.saved, names=self.node.names
        )

    def kubelet_with_pods(self) -> InMemoryKubelet:
        """Return a new kubelet with all running pods of the node.

        When the kubelet admits another pod, it also checks CPU, memory and the number of pods.
        """
        kubelet = self.kubelet(self.settings(native_amounts(self.fleet_node)))
        for pod in self.fleet_node.running:
            # Not ``admit``: these pods already hold devices of the checkpoint.
            kubelet.restore(parsed(pod))
        return kubelet

    def room(self, resource: str, size: int, most: int) -> int:
        """Return the number of further pods that fit on the node, up to ``most``.

        Each pod requests ``size`` devices of the resource and nothing else.
        """
        kubelet = self.kubelet(self.settings())
        # Admitted one by one: with alignment, the number of free devices does not show how many
        # pods fit.
        copies = _copies(resource, size, most)
        return next((n for n, pod in enumerate(copies) if not kubelet.admit(pod).admitted), most)


def native_amounts(node: FleetNode) -> Mapping[str, str]:
    """Return the allocatable CPU, memory and other resources of a node as quantities, without the
    resources of plugins."""
    allocatable = node.object["status"].get("allocatable") or {}
    # Native resources, such as hugepages-2Mi, have no domain.
    return {name: text for name, text in allocatable.items() if "/" not in name}


def _copies(resource: str, size: int, most: int) -> Iterator[Pod]:
    amounts = {ResourceName(resource): size}
    container = Container(ContainerName("main"), amounts, amounts)
    return (Pod(PodUid(f"fits-{n}"), f"fits-{n}", "fits", (container,)) for n in range(most))
