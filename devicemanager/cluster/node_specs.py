"""Nodes that are going to join: names, kubelets, addresses."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, Self, cast

import attrs

from devicemanager.cluster.client.errors import ClusterError
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.options import NodeOptions
from devicemanager.io.clock import SystemClock
from devicemanager.kubelet.inmemory.devices import Simulated, simulated_devices
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings

__all__ = ["NodeSpecs", "address"]

MAX_NODES: Final = 100_000
MAX_FULL_NODES: Final = 100
"""Each needs an inotify instance, and the kernel allows 128 per user."""
# 127.1.0.0, since many programs use addresses in 127.0.0.0/16.
_FIRST_ADDRESS: Final = (127 << 24) + (1 << 16)


class _Stoppable(NodeKubelet, Protocol):
    def stop(self) -> None: ...


@attrs.frozen
class NodeSpecs:
    """Nodes with numbers from 0 on, and how to create their kubelets."""

    names: Sequence[str]
    make: Callable[[int], NodeKubelet]
    """Creates the kubelet of a node, when it joins."""
    end: Callable[[NodeKubelet], None]
    """Disposes of a kubelet, when its node has left."""
    options: NodeOptions
    behaviour: ContainerBehaviour

    @classmethod
    def single(
        cls,
        name: str,
        kubelet: NodeKubelet,
        options: NodeOptions | None = None,
        behaviour: ContainerBehaviour | None = None,
    ) -> Self:
        """Return one node with an existing kubelet, which keeps running after the node left."""
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
    ) -> Self:
        """Return in-memory nodes ``PREFIX-0``, ``PREFIX-1`` and so on with simulated devices.

        The first ``full`` nodes are a ``MockKubelet`` in ``ROOT/node-0`` and so on instead, with
        the devices of the plugins that register there. Raises ClusterError for a number out of
        range.
        """
        if not 1 <= count <= MAX_NODES:
            raise ClusterError(f"invalid number of nodes {count}: use 1 to {MAX_NODES}")
        max_full = min(count, MAX_FULL_NODES)
        if not 0 <= full <= max_full:
            raise ClusterError(f"invalid number of full nodes {full}: use 0 to {max_full}")
        base = settings or Settings()
        # All nodes share one timer thread and one list of devices.
        clock = SystemClock()
        devices = {str(name): each for name, each in simulated_devices(simulate or {}).items()}

        # When the node joins, not now: a process may run only a part of the nodes.
        def make(index: int) -> _Stoppable:
            own = attrs.evolve(base, node_name=f"{prefix}-{index}")
            if index >= full:
                return InMemoryKubelet(own, devices, clock=clock)
            # Imported here: it loads gRPC, which in-memory nodes do not need.
            from devicemanager.kubelet.mock import MockKubelet

            return MockKubelet(None if root is None else root / f"node-{index}", own).start()

        def end(kubelet: NodeKubelet) -> None:
            cast(_Stoppable, kubelet).stop()

        names = [f"{prefix}-{index}" for index in range(count)]
        return cls(names, make, end, options or NodeOptions(), behaviour or ContainerBehaviour())

    @property
    def indexes(self) -> range:
        """Numbers of all nodes."""
        return range(len(self.names))

    def options_of(self, index: int, *, as_nodes: bool, shard: int = 0) -> NodeOptions:
        """Return the options of a node, with an address unless all nodes share one."""
        return attrs.evolve(
            self.options,
            address=self.options.address or address(index),
            as_nodes=as_nodes,
            shard=str(shard),
        )


def address(index: int) -> str:
    """Return the address of a node: the pod's in a pod, else one in 127.0.0.0/8.

    The API server connects to it, so it must never be the address of another host.
    """
    if found := os.environ.get("POD_IP"):
        return found
    number = _FIRST_ADDRESS + index
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
