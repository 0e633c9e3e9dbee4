"""Specifications of nodes that are going to join: names, kubelets, addresses.

A *kind* is a group of nodes with the same devices and options. A node has an *index* within its
kind, and a *number* among the nodes of all kinds.

A *full* node has a ``MockKubelet``, with which real plugins can register. An *in-memory* node has
simulated plugins and no sockets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, Self, cast

import attrs

from devicemanager.client.errors import ClusterError
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.options import AMOUNTS, NodeOptions
from devicemanager.core.quantity import Quantity
from devicemanager.io.clock import SystemClock
from devicemanager.kubelet.inmemory.devices import Simulated, simulated_devices
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings

__all__ = ["NodeSpecs", "Numbering", "address"]

MAX_NODES: Final = 100_000
MAX_FULL_NODES: Final = 100
"""Largest number of nodes with a ``MockKubelet``. Each of these nodes needs an inotify instance,
and the kernel allows 128 per user."""
# 127.1.0.0, because many programs use addresses in 127.0.0.0/16.
_FIRST_ADDRESS: Final = (127 << 24) + (1 << 16)


class _Stoppable(NodeKubelet, Protocol):
    def stop(self) -> None: ...


@attrs.frozen
class Numbering:
    """Mapping from the index of a node within its kind to its number among the nodes of all kinds.

    The node with index I has the number ``first + I * step``. Its address and its shard depend on
    this number.
    """

    first: int = 0
    step: int = 1
    """Difference between the numbers of two consecutive nodes of a kind. It is the number of
    kinds, because the kinds take numbers in turn."""
    total: int = 0
    """Number of equal parts into which the range of pod addresses is divided. Each node uses one
    part. 0 for as many parts as nodes."""


_ADOPTED_PARTS: Final = 1024
"""Number of parts into which the range of pod addresses is divided for adopted nodes. It is fixed,
because the number of adopted nodes is not known in advance."""
_ONLY_KIND: Final = Numbering()


@attrs.frozen
class NodeSpecs:
    """Specification of the nodes of one kind, with the indexes 0, 1 and so on.

    It has functions that create the kubelets of these nodes and dispose of them.
    """

    names: Sequence[str]
    make: Callable[[int], NodeKubelet]
    """Function that creates the kubelet of a node; called with the node's index when it joins."""
    end: Callable[[NodeKubelet], None]
    """Function that disposes of a kubelet; called when its node has left."""
    options: NodeOptions
    behaviour: ContainerBehaviour
    prefix: str = ""
    """Beginning of the nodes' names, before ``-0``, ``-1`` and so on; empty for a single node."""
    kind: str = ""
    """Name of the nodes' kind; empty for nodes without a kind. ``Cluster.scale`` uses this
    name."""
    numbering: Numbering = _ONLY_KIND

    @classmethod
    def single(
        cls,
        name: str,
        kubelet: NodeKubelet,
        options: NodeOptions | None = None,
        behaviour: ContainerBehaviour | None = None,
    ) -> Self:
        """Return the specification of one node with an existing kubelet.

        The kubelet continues to run after the node has left.
        """
        return cls(
            (name,),
            lambda index: kubelet,
            lambda kubelet: None,
            options or NodeOptions(),
            behaviour or ContainerBehaviour(),
        )

    @classmethod
    def numbered(
        cls,
        prefix: str,
        count: int,
        simulate: Simulated | None = None,
        *,
        settings: Settings | None = None,
        options: NodeOptions | None = None,
        behaviour: ContainerBehaviour | None = None,
        full: int = 0,
        root: Path | None = None,
        kubeconfig: Path | None = None,
        kind: str = "",
        numbering: Numbering = _ONLY_KIND,
        names: Sequence[str] = (),
    ) -> Self:
        """Return the specification of ``count`` nodes, ``PREFIX-0``, ``PREFIX-1`` and so on.

        Each of the first ``full`` nodes has a ``MockKubelet`` in ``ROOT/node-0`` and so on. It has
        the devices of the plugins that register with its kubelet. The kubelet gets ResourceClaims
        from the cluster in ``kubeconfig``. All further nodes are in-memory nodes with the devices
        in ``simulate``. ``names`` replaces the names ``PREFIX-0`` and so on. ``count`` can be 0
        only with a ``kind``. Raises ClusterError if ``count`` or ``full`` is out of range.
        """
        # A kind can start without nodes, because ``Cluster.scale`` can add them later.
        _check_count(count, 0 if kind else 1)
        given, names = names, names or _names(prefix, count)
        max_full = min(count, MAX_FULL_NODES)
        if not 0 <= full <= max_full:
            raise ClusterError(f"invalid number of full nodes {full}: use 0 to {max_full}")
        options = options or NodeOptions()
        base = settings or Settings()
        # As on a kubelet, pods that do not fit are rejected, even if no scheduler bound them.
        base = attrs.evolve(base, node_allocatable={**options.amounts, **base.node_allocatable})
        # All nodes share one timer thread and one list of devices.
        clock = SystemClock()
        devices = {str(name): each for name, each in simulated_devices(simulate or {}).items()}

        drivers = {each.driver: each.devices for each in options.drivers}

        # Called when a node joins, because a process may run only some of the nodes.
        def make(index: int) -> _Stoppable:
            # A kind can be scaled, so the index can be that of a later node.
            name = given[index] if given else f"{prefix}-{index}"
            own = attrs.evolve(base, node_name=name)
            if index >= full:
                return InMemoryKubelet(own, devices, clock=clock, drivers=drivers)
            # Imported here because it loads gRPC, which in-memory nodes do not need.
            from devicemanager.kubelet.mock import MockKubelet

            own = attrs.evolve(own, kubeconfig=kubeconfig)
            return MockKubelet(None if root is None else root / f"node-{index}", own).start()

        def end(kubelet: NodeKubelet) -> None:
            cast(_Stoppable, kubelet).stop()

        behaviour = behaviour or ContainerBehaviour()
        return cls(names, make, end, options, behaviour, prefix, kind, numbering)

    @classmethod
    def adopted(
        cls,
        name: str,
        number: int,
        amounts: Mapping[str, Quantity],
        simulate: Simulated | None = None,
        *,
        settings: Settings | None = None,
        options: NodeOptions | None = None,
        behaviour: ContainerBehaviour | None = None,
    ) -> Self:
        """Return the specification of an *adopted* node: an in-memory node whose Node object was
        created by another program.

        ``number`` is the number of the node among all adopted nodes. ``amounts`` is the capacity
        that the Node object already has.
        """
        options = attrs.evolve(
            options or NodeOptions(), adopted=True, amounts={**AMOUNTS, **amounts}
        )
        return cls.numbered(
            name,
            1,
            simulate,
            settings=settings,
            options=options,
            behaviour=behaviour,
            numbering=Numbering(number, 1, _ADOPTED_PARTS),
            names=(name,),
        )

    def resized(self, count: int) -> Self:
        """Return a copy for ``count`` nodes of this kind. Raises ClusterError if ``count`` is out
        of range."""
        _check_count(count, 0)
        return attrs.evolve(self, names=_names(self.prefix, count))

    @property
    def indexes(self) -> range:
        """The indexes of all nodes of this kind."""
        return range(len(self.names))

    def number(self, index: int) -> int:
        """Return the number, among the nodes of all kinds, of the node with this index."""
        return self.numbering.first + self.numbering.step * index

    @property
    def total(self) -> int:
        """Number of equal parts into which the range of pod addresses is divided. Each node uses
        one part."""
        return max(1, self.numbering.total or len(self.names))

    def options_of(self, index: int, *, as_nodes: bool, shard: int = 0) -> NodeOptions:
        """Return the options of the node with this index, including its address.

        If ``options`` has no address, the function ``address`` provides it. ``shard`` is the number
        of the node's shard.
        """
        return attrs.evolve(
            self.options,
            address=self.options.address or address(self.number(index)),
            as_nodes=as_nodes,
            shard=str(shard),
        )


def _check_count(count: int, least: int) -> None:
    if not least <= count <= MAX_NODES:
        raise ClusterError(f"invalid number of nodes {count}: use {least} to {MAX_NODES}")


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{index}" for index in range(count)]


def address(index: int) -> str:
    """Return the InternalIP of the node with this number.

    If this process runs in a pod, the InternalIP is the pod's address. Otherwise each node has a
    separate address in 127.0.0.0/8. The API server connects to the InternalIP, so it must never be
    the address of another host.
    """
    # ``deploy/join.yaml`` sets the variable from the field ``status.podIP`` of the pod.
    if found := os.environ.get("POD_IP"):
        return found
    number = _FIRST_ADDRESS + index
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
