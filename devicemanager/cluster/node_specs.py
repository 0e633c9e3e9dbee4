"""The nodes that are to join, before they do: names, kubelets, addresses."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

import attrs

from devicemanager.cluster.client.errors import ClusterError
from devicemanager.cluster.facts import Facts
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.options import NodeOptions
from devicemanager.io.clock import SystemClock
from devicemanager.kubelet.inmemory.devices import Simulated, simulated_devices
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings

__all__ = ["Members", "address", "light_members"]

MOST: Final = 100_000
MOST_FULL: Final = 100
"""The kernel allows a user 128 inotify instances."""
_LOOPBACK_FROM: Final = (127 << 24) + (1 << 16)


class OwnKubelet(NodeKubelet, Protocol):
    """A kubelet that we made, and end."""

    def stop(self) -> None:
        """End it."""


@attrs.frozen
class Members:
    """Nodes ``PREFIX-0``, ``PREFIX-1`` and so on."""

    names: Sequence[str]
    make: Callable[[int], NodeKubelet]
    """The kubelet of one, made when it joins."""
    end: Callable[[NodeKubelet], None]
    """What is done with a kubelet once its node has left."""
    options: NodeOptions
    facts: Facts

    @classmethod
    def single(cls, name: str, kubelet: NodeKubelet, options: NodeOptions, facts: Facts) -> Members:
        """One node whose kubelet is there already."""
        return cls((name,), lambda index: kubelet, lambda kubelet: None, options, facts)

    @property
    def indexes(self) -> range:
        """Of all of them."""
        return range(len(self.names))

    def name(self, index: int) -> str:
        """Of one."""
        return self.names[index]

    def options_of(self, index: int, *, as_nodes: bool, shard: int = 0) -> NodeOptions:
        """Of one: it has an address of its own unless all were given one."""
        return attrs.evolve(
            self.options,
            address=self.options.address or address(index),
            as_nodes=as_nodes,
            shard=str(shard),
        )


def address(index: int) -> str:
    """The pod's, where this is one; else one of loopback's for each node: no address that is
    not ours, since the API server dials it."""
    if found := os.environ.get("POD_IP"):
        return found
    number = _LOOPBACK_FROM + index
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def light_members(
    prefix: str,
    count: int,
    simulate: Simulated,
    settings: Settings | None,
    options: NodeOptions,
    facts: Facts,
    *,
    full: int = 0,
    root: Path | None = None,
) -> Members:
    """Light nodes with virtual devices; the first ``full`` of them are whole kubelets instead,
    in ``ROOT/node-0`` and so on, and have the devices of the plugins that register there.

    Raises ClusterError for a number that cannot be.
    """
    if not 1 <= count <= MOST:
        raise ClusterError(f"{count} nodes: give a number from 1 to {MOST}")
    if not 0 <= full <= min(count, MOST_FULL):
        raise ClusterError(f"{full} full nodes: give a number from 0 to {min(count, MOST_FULL)}")
    base = settings or Settings()
    # One timer's thread, and one list of devices, for all of them.
    clock = SystemClock()
    devices = {str(name): each for name, each in simulated_devices(simulate).items()}

    def make(index: int) -> OwnKubelet:
        own = attrs.evolve(base, node_name=f"{prefix}-{index}")
        if index >= full:
            return InMemoryKubelet(own, devices, clock=clock)
        from devicemanager.kubelet.mock import MockKubelet

        return MockKubelet(None if root is None else root / f"node-{index}", own).start()

    def end(kubelet: NodeKubelet) -> None:
        cast(OwnKubelet, kubelet).stop()

    names = [f"{prefix}-{index}" for index in range(count)]
    return Members(names, make, end, options, facts)
