"""Choosing devices for one container and one resource.

``select`` is a generator: it yields the preference it wants asked of the plugin and
gets the answer sent in. While an RPC is under way other pods may be admitted and lists
may change, so after each answer the state is looked at afresh; what was chosen before
is reserved in the draft and cannot be lost.

Follows ``devicesToAllocate`` of pkg/kubelet/cm/devicemanager/kubelet/manager.go (v1.32).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import attrs

from devicemanager.core import bitset, messages
from devicemanager.core.endpoints import EndpointInfo, Endpoints
from devicemanager.core.errors import AllocationError, RpcError
from devicemanager.core.ids import DeviceId, EndpointId, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceList
from devicemanager.core.ledger import Draft, Ledger

Pick = Callable[[int, int], int]
"""From a set of devices (by number) take as many as the second argument says."""


class PreferenceError(AllocationError):
    """GetPreferredAllocation failed, which rejects the pod."""


class PreferenceWanted(NamedTuple):
    """Ask GetPreferredAllocation; the answer is a tuple of device ids."""

    resource: ResourceName
    endpoint: EndpointId
    endpoint_name: str
    available: tuple[DeviceId, ...]
    must_include: tuple[DeviceId, ...]
    size: int


class AllocateWanted(NamedTuple):
    """Ask Allocate for one container; the answer is ``AllocateAnswer``."""

    resource: ResourceName
    endpoint: EndpointId
    endpoint_name: str
    device_ids: tuple[DeviceId, ...]


@attrs.frozen(eq=False, repr=False)
class AllocateAnswer:
    """The serialized container responses of an AllocateResponse, in its order."""

    responses: tuple[bytes, ...]


Wanted = PreferenceWanted | AllocateWanted
Answer = tuple[DeviceId, ...] | AllocateAnswer | None
Steps = Generator[Wanted, Answer, frozenset[DeviceId]]


class Partition(NamedTuple):
    """Available devices by how they stand to the container's topology affinity."""

    aligned: int
    unaligned: int
    without_topology: int


def partition(devices: DeviceList, available: int, affinity: int | None) -> Partition:
    """Split ``available`` by a mask of NUMA nodes (``filterByAffinity``, v1.32).

    A device on several nodes is aligned if any of them is in the affinity.
    """
    if affinity is None or not devices.has_topology:
        return Partition(0, 0, available)
    inside = 0
    for node, bits in devices.device_index.per_node.items():
        if node >= 0 and (affinity >> node) & 1:
            inside |= bits
    aligned = available & inside
    with_topology = available & devices.device_index.with_topology
    return Partition(aligned, with_topology & ~aligned, available & ~with_topology)


@attrs.define(eq=False, repr=False)
class View:
    """A resource as it is until the next RPC: its list, and what is free of it."""

    devices: DeviceList
    free: int

    def parts(self, affinity: int | None) -> Partition:
        return partition(self.devices, self.free, affinity)


@attrs.define(eq=False, repr=False)
class Selection:
    """One choice under way. ``draft`` already reserves what ``chosen`` holds."""

    resource: ResourceName
    needed: int
    """How many devices are still to be chosen."""
    affinity: int | None
    endpoints: Endpoints
    ledger: Ledger
    draft: Draft
    pick: Pick = bitset.lowest
    chosen: set[DeviceId] = attrs.field(factory=set)

    def look(self) -> View:
        """The resource as of now."""
        devices = self.endpoints.devices(self.resource) or EMPTY
        in_use = self.ledger.in_use(self.resource, devices.device_index)
        return View(devices, devices.healthy & ~in_use)

    def take(self, view: View, bits: int) -> None:
        """Choose from those of a set that are free, as many as are still needed."""
        bits &= view.free
        count = min(self.needed, bits.bit_count())
        if not count:
            return
        picked = self.pick(bits, count)
        view.free &= ~picked
        self._reserve(frozenset(view.devices.device_index.select(picked)))

    def take_reusable(self, reusable: frozenset[DeviceId]) -> None:
        """Choose from what earlier init containers of the pod hand on."""
        # Whatever its health, and also what is not listed any more, which comes last: the
        # kubelet takes from reusableDevices before it looks at the list.
        device_index = self.look().devices.device_index
        bits = device_index.bits(reusable)
        picked = set(device_index.select(self.pick(bits, min(self.needed, bits.bit_count()))))
        vanished = sorted(reusable - device_index.index.keys())
        self._reserve(frozenset(picked.union(vanished[: self.needed - len(picked)])))

    def _reserve(self, ids: frozenset[DeviceId]) -> None:
        if ids:
            self.ledger.reserve(self.draft, self.resource, ids)
            self.chosen |= ids
            self.needed -= len(ids)


def select(selection: Selection, reusable: frozenset[DeviceId]) -> Steps:
    """Choose ``selection.needed`` devices, or raise ``AllocationError``.

    There are three ways, after what init containers hand on was taken:

    - More devices are aligned than are needed. The plugin is asked which of the aligned ones
      it prefers, and whatever it says, only aligned ones are taken.
    - Fewer are aligned than needed, or just as many. All of them are taken, without asking:
      the plugin has no say in whether a container is aligned. It is asked for the rest, and
      may choose from all that are left.
    - There is no affinity. Nothing counts as aligned then, so this is the second way, with
      the whole choice left to the plugin.

    What the plugin leaves open, or answers wrongly, is filled up in the order aligned,
    unaligned, without topology.
    """
    if reusable:
        selection.take_reusable(reusable)
    if not selection.needed:
        return frozenset(selection.chosen)
    view = selection.look()
    _check_enough(selection, view)
    parts = view.parts(selection.affinity)
    if selection.needed < parts.aligned.bit_count():
        yield from _choose(selection, view, parts, only_aligned=True)
    else:
        selection.take(view, parts.aligned)
        if selection.needed:
            yield from _choose(selection, view, parts, only_aligned=False)
    return frozenset(selection.chosen)


def _choose(
    selection: Selection, view: View, parts: Partition, *, only_aligned: bool
) -> Generator[Wanted, Answer, None]:
    """What the plugin prefers, of the aligned devices or of all, comes first; then aligned
    devices, the others with topology, and those without."""
    endpoint = selection.endpoints.serving(selection.resource)
    if endpoint is not None and endpoint.options.get_preferred_allocation_available:
        offered = parts.aligned if only_aligned else view.free
        answer = yield from _preference(selection, endpoint, view, offered)
        # Other pods may have come and lists changed while the plugin was asked.
        view = selection.look()
        parts = view.parts(selection.affinity)
        preferred = view.devices.device_index.bits(answer)
        selection.take(view, preferred & parts.aligned if only_aligned else preferred)
    for bits in parts:
        if bits:
            selection.take(view, bits)
    if selection.needed:
        _check_enough(selection, view)


def _check_enough(selection: Selection, view: View) -> None:
    available = view.free.bit_count()
    if available < selection.needed:
        raise AllocationError(
            messages.UNAVAILABLE.format(
                resource=selection.resource, requested=selection.needed, available=available
            )
        )


def _preference(
    selection: Selection, endpoint: EndpointInfo, view: View, offered: int
) -> Generator[Wanted, Answer, tuple[DeviceId, ...]]:
    """Ask the plugin which devices it would choose."""
    ids = {*view.devices.device_index.select(offered), *selection.chosen}
    try:
        answer = yield PreferenceWanted(
            resource=selection.resource,
            endpoint=endpoint.id,
            endpoint_name=endpoint.name,
            available=tuple(sorted(ids)),
            must_include=tuple(sorted(selection.chosen)),
            size=len(selection.chosen) + selection.needed,
        )
    except RpcError as error:
        raise PreferenceError(messages.PREFERRED_FAILED.format(error=error)) from error
    if not isinstance(answer, tuple):
        raise TypeError(f"a preference is a tuple of device ids, not {answer!r}")
    return answer
