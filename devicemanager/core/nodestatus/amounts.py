"""``capacity`` and ``allocatable`` of a node: what it has besides devices, and its devices."""

from __future__ import annotations

from collections.abc import Mapping

from devicemanager.core.node import NodeStatus
from devicemanager.core.quantity import Quantity

__all__ = ["node_amounts"]

Texts = dict[str, str]
"""Quantities by resource, as the API has them."""


def node_amounts(
    fixed: Mapping[str, Quantity],
    devices: NodeStatus,
    reserved: Mapping[str, Quantity] | None = None,
) -> tuple[Texts, Texts]:
    """Capacity and allocatable, each sorted by name.

    ``fixed`` is the allocatable part of what is no device; ``reserved`` comes on top of it in
    the capacity. The counts of devices go over everything else, as with the kubelet
    (``MachineInfo``, v1.32).
    """
    more = reserved or {}
    capacity = {
        str(name): str(Quantity(amount.nanos + _nanos(more, name), amount.format))
        for name, amount in fixed.items()
    }
    allocatable = {str(name): str(amount) for name, amount in fixed.items()}
    capacity |= {name: str(count) for name, count in devices.capacity.items()}
    allocatable |= {name: str(count) for name, count in devices.allocatable.items()}
    return dict(sorted(capacity.items())), dict(sorted(allocatable.items()))


def _nanos(amounts: Mapping[str, Quantity], name: str) -> int:
    return amounts[name].nanos if name in amounts else 0
