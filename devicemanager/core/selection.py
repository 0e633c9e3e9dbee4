"""Choosing devices for one container and one resource.

``select`` is a generator: it yields the preference it wants asked of the plugin and
gets the answer sent in. While an RPC is under way other pods may be admitted and lists
may change, so after each answer the state is looked at afresh; what was chosen before
is reserved in the draft and cannot be lost.

Follows ``devicesToAllocate`` of pkg/kubelet/cm/devicemanager/manager.go (v1.32).
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import attrs

from devicemanager.core import bitset, texts
from devicemanager.core.endpoints import Endpoints
from devicemanager.core.errors import AllocationError, RpcError
from devicemanager.core.ids import DeviceId, EndpointId, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceList
from devicemanager.core.ledger import Draft, Ledger

Pick = Callable[[int, int], int]
"""From a set of devices (by number) take as many as the second argument says."""


class PreferenceError(AllocationError):
    """GetPreferredAllocation failed, which refuses the pod."""


@attrs.frozen
class PreferenceWanted:
    """Ask GetPreferredAllocation; the answer is a tuple of device ids."""

    resource: ResourceName
    endpoint: EndpointId
    endpoint_name: str
    available: tuple[DeviceId, ...]
    must_include: tuple[DeviceId, ...]
    size: int


@attrs.frozen
class AllocateWanted:
    """Ask Allocate for one container; the answer is ``AllocateAnswer``."""

    resource: ResourceName
    endpoint: EndpointId
    endpoint_name: str
    device_ids: tuple[DeviceId, ...]


@attrs.frozen
class AllocateAnswer:
    """The serialized container responses of an AllocateResponse, in its order."""

    responses: tuple[bytes, ...]


Wanted = PreferenceWanted | AllocateWanted
Answer = tuple[DeviceId, ...] | AllocateAnswer | None
Steps = Generator[Wanted, Answer, frozenset[DeviceId]]


@attrs.frozen
class Partition:
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
    for node, bits in devices.numbering.per_node.items():
        if node >= 0 and (affinity >> node) & 1:
            inside |= bits
    aligned = available & inside
    with_topology = available & devices.numbering.with_topology
    return Partition(aligned, with_topology & ~aligned, available & ~with_topology)


@attrs.define(eq=False)
class Selection:
    """One choice under way. ``draft`` already reserves what ``chosen`` holds."""

    resource: ResourceName
    required: int
    affinity: int | None
    endpoints: Endpoints
    ledger: Ledger
    draft: Draft
    pick: Pick = bitset.lowest
    chosen: set[DeviceId] = attrs.field(factory=set)

    @property
    def needed(self) -> int:
        return self.required - len(self.chosen)

    def devices(self) -> DeviceList:
        return self.endpoints.devices(self.resource) or EMPTY

    def available(self) -> int:
        """Healthy devices that nobody holds, as of now."""
        devices = self.devices()
        return devices.healthy & ~self.ledger.in_use(self.resource, devices.numbering)

    def parts(self) -> Partition:
        return partition(self.devices(), self.available(), self.affinity)

    def take(self, bits: int) -> None:
        """Choose from a set of free devices, as many as are still needed."""
        if not self.needed:
            return
        picked = self.pick(bits, min(self.needed, bits.bit_count()))
        self._reserve(frozenset(self.devices().numbering.select(picked)))

    def take_reusable(self, reusable: frozenset[DeviceId]) -> None:
        """Choose from what earlier init containers of the pod hand on."""
        if not reusable:
            return
        numbering = self.devices().numbering
        bits = numbering.bits(reusable)
        picked = set(numbering.select(self.pick(bits, min(self.needed, bits.bit_count()))))
        vanished = sorted(reusable - numbering.index.keys())
        self._reserve(frozenset(picked.union(vanished[: self.needed - len(picked)])))

    def _reserve(self, ids: frozenset[DeviceId]) -> None:
        if ids:
            self.ledger.reserve(self.draft, self.resource, ids)
            self.chosen |= ids


def select(selection: Selection, reusable: frozenset[DeviceId]) -> Steps:
    """Choose ``selection.required`` devices, or raise ``AllocationError``."""
    selection.take_reusable(reusable)
    if not selection.needed:
        return frozenset(selection.chosen)
    _check_enough(selection)
    if selection.needed < selection.parts().aligned.bit_count():
        yield from _from_aligned(selection)
    else:
        yield from _from_all(selection)
    # Another pod may have taken devices while the plugin was asked.
    _check_enough(selection)
    return frozenset(selection.chosen)


def _from_aligned(selection: Selection) -> Generator[Wanted, Answer, None]:
    preferred = yield from _preference(selection, selection.parts().aligned)
    parts = selection.parts()
    selection.take(preferred & parts.aligned)
    for bits in (parts.aligned, parts.unaligned, parts.without_topology):
        selection.take(bits & selection.available())


def _from_all(selection: Selection) -> Generator[Wanted, Answer, None]:
    selection.take(selection.parts().aligned)
    if not selection.needed:
        return
    preferred = yield from _preference(selection, selection.available())
    parts = selection.parts()
    selection.take(preferred & selection.available())
    for bits in (parts.aligned, parts.unaligned, parts.without_topology):
        selection.take(bits & selection.available())


def _check_enough(selection: Selection) -> None:
    available = selection.available().bit_count()
    if available < selection.needed:
        raise AllocationError(
            texts.UNAVAILABLE.format(
                resource=selection.resource, requested=selection.needed, available=available
            )
        )


def _preference(selection: Selection, available: int) -> Generator[Wanted, Answer, int]:
    """Ask the plugin, if it offers that; the set of those it names, by number."""
    endpoint = selection.endpoints.serving(selection.resource)
    if endpoint is None or not endpoint.options.get_preferred_allocation_available:
        return 0
    ids = set(selection.devices().numbering.select(available)) | selection.chosen
    try:
        answer = yield PreferenceWanted(
            resource=selection.resource,
            endpoint=endpoint.id,
            endpoint_name=endpoint.name,
            available=tuple(sorted(ids)),
            must_include=tuple(sorted(selection.chosen)),
            size=selection.required,
        )
    except RpcError as error:
        raise PreferenceError(texts.PREFERRED_FAILED.format(error=error)) from error
    if not isinstance(answer, tuple):
        raise TypeError(f"a preference is a tuple of device ids, not {answer!r}")
    return selection.devices().numbering.bits(answer)
