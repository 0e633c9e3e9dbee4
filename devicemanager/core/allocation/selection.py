"""Choose devices of one resource for one container."""

# Theory of operation. ``select`` is a generator: it yields ``PreferenceWanted`` at most once,
# and the caller sends in the plugin's preference. During the RPC other pods can be admitted and
# the device list can change. Two rules make this safe:
#
# * Every chosen device is reserved in the draft immediately, so no other pod can choose it.
# * A ``View`` (device list and free devices) is valid only until the next ``yield``. After the
#   ``yield`` a new ``View`` is created.
#
# Devices are chosen from these sources, in the order of ``devicesToAllocate`` (manager.go,
# v1.32), until there are enough:
#
# 1. Reusable devices of earlier init containers of the pod, healthy or not.
# 2. If more devices are aligned to the container's affinity than it needs: the aligned devices
#    that the plugin prefers.
# 3. In all other cases: all aligned devices, without calling the plugin, because a preference
#    must not decide whether a container is aligned. Then the devices that the plugin prefers
#    among all free devices.
# 4. If devices are still missing: aligned devices, then other devices with topology, then
#    devices without topology.
#
# IDs in a plugin's preference are ignored if they are not free or, in case 2, not aligned.
# The pod is rejected if too few devices are free, before the RPC or after it.

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import attrs

from devicemanager.core import bitset, messages
from devicemanager.core.endpoints import EndpointInfo, Endpoints
from devicemanager.core.errors import AllocationError, EndpointError
from devicemanager.core.ids import DeviceId, EndpointId, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceList
from devicemanager.core.ledger import Draft, Ledger

Pick = Callable[[int, int], int]
"""Function that chooses devices. It takes a bit set of devices and a number ``n``, and returns the
bit set of the ``n`` chosen devices."""


class PreferenceError(AllocationError):
    """Error for a failed call of GetPreferredAllocation. The kubelet then rejects the pod."""


class PreferenceWanted(NamedTuple):
    """Request to the caller to make one GetPreferredAllocation call to a plugin.

    The generator ``select`` yields the request. The caller sends a tuple of device IDs into the
    generator.
    """

    resource: ResourceName
    endpoint: EndpointId
    endpoint_name: str
    available: tuple[DeviceId, ...]
    must_include: tuple[DeviceId, ...]
    size: int


class AllocateWanted(NamedTuple):
    """Request to the caller to make one Allocate call to a plugin, for one container.

    The generator ``allocate_container`` yields the request. The caller sends an ``AllocateAnswer``
    into the generator.
    """

    resource: ResourceName
    endpoint: EndpointId
    endpoint_name: str
    device_ids: tuple[DeviceId, ...]


@attrs.frozen(eq=False, repr=False)
class AllocateAnswer:
    """The container responses of a plugin's AllocateResponse, each serialized, in order."""

    responses: tuple[bytes, ...]


Wanted = PreferenceWanted | AllocateWanted
Answer = tuple[DeviceId, ...] | AllocateAnswer | None
Steps = Generator[Wanted, Answer, frozenset[DeviceId]]


class Partition(NamedTuple):
    """Available devices, split by a container's topology affinity into three sets."""

    aligned: int
    unaligned: int
    without_topology: int


def partition(devices: DeviceList, available: int, affinity: int | None) -> Partition:
    """Return the set ``available`` of devices, split by ``affinity`` into three sets
    (``filterByAffinity``, v1.32).

    ``affinity`` is a set of NUMA nodes. A device is in ``aligned`` if at least one of its nodes is
    in ``affinity``. If ``affinity`` is None, all devices are in ``without_topology``.
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
    """Device list of a resource, and its free devices as a bit set. A view is outdated after an
    RPC, because devices can change during the call."""

    devices: DeviceList
    free: int

    def parts(self, affinity: int | None) -> Partition:
        """Return the free devices, split by NUMA affinity into three sets (``partition``)."""
        return partition(self.devices, self.free, affinity)


@attrs.define(eq=False, repr=False)
class Selection:
    """Device selection in progress, for one container and resource.

    The devices in ``chosen`` are reserved in ``draft``.
    """

    resource: ResourceName
    needed: int
    """Number of devices still to be chosen."""
    affinity: int | None
    endpoints: Endpoints
    ledger: Ledger
    draft: Draft
    pick: Pick = bitset.lowest
    chosen: set[DeviceId] = attrs.field(factory=set)

    def view(self) -> View:
        """Return the resource's current device list and free devices."""
        devices = self.endpoints.devices(self.resource) or EMPTY
        in_use = self.ledger.in_use(self.resource, devices.device_index)
        return View(devices, devices.healthy & ~in_use)

    def take(self, view: View, bits: int) -> None:
        """Choose and reserve free devices of the set ``bits``, up to the number still needed."""
        bits &= view.free
        count = min(self.needed, bits.bit_count())
        if not count:
            return
        picked = self.pick(bits, count)
        view.free &= ~picked
        self._reserve(frozenset(view.devices.device_index.select(picked)))

    def take_reusable(self, reusable: frozenset[DeviceId]) -> None:
        """Choose and reserve devices of earlier init containers of the pod, up to the number
        still needed."""
        # Unhealthy and unlisted devices are chosen, too: the kubelet takes from
        # reusableDevices before it reads the device list. Unlisted devices come last.
        device_index = self.view().devices.device_index
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
    """Choose and reserve ``selection.needed`` devices, and return their IDs.

    Devices in ``reusable`` are chosen first. Raises ``AllocationError`` if too few devices are
    free. The generator yields ``PreferenceWanted`` if GetPreferredAllocation must be called.
    """
    selection.ledger.request(selection.resource)
    if reusable:
        selection.take_reusable(reusable)
    if not selection.needed:
        return frozenset(selection.chosen)
    view = selection.view()
    _check_enough(selection, view)
    parts = view.parts(selection.affinity)
    # Without affinity no device counts as aligned, and the plugin chooses among all devices.
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
    """Choose the devices that the plugin prefers.

    With ``only_aligned``, the plugin chooses among the aligned devices, otherwise among all free
    devices. If more devices are needed, choose aligned devices, then other devices with topology,
    then devices without topology.
    """
    endpoint = selection.endpoints.serving(selection.resource)
    if endpoint is not None and endpoint.options.get_preferred_allocation_available:
        offered = parts.aligned if only_aligned else view.free
        preference = yield from _preference(selection, endpoint, view, offered)
        # During the RPC other pods can have been admitted, and the list can have changed.
        view = selection.view()
        parts = view.parts(selection.affinity)
        preferred = view.devices.device_index.bits(preference)
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
    """Request a call of GetPreferredAllocation, and return the device IDs of the response.

    ``offered`` is the set of devices from which the plugin can choose.
    """
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
    except EndpointError as error:
        raise PreferenceError(messages.PREFERRED_FAILED.format(error=error)) from error
    if not isinstance(answer, tuple):
        raise TypeError(
            f"invalid response to GetPreferredAllocation: {answer!r}: "
            f"expected a tuple of device IDs"
        )
    return answer
