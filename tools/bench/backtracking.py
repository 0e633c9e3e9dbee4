"""Plain backtracking search, the baseline for the search of the claim allocator.

For one request after another, it tries the devices in order, and goes back if no device is left.
This is the simplest approach. It counts the devices that it tries and stops at a limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from devicemanager.claims.core.inventory import Device, Inventory, PoolKey
from devicemanager.claims.core.model import AccessMode, Alternative, Claim
from tools.bench.claimcases import ClaimCase


class GivenUpError(Exception):
    """Exception of a search that has reached its limit of tried devices."""


@attrs.frozen
class Tried:
    """Result of a plain search. ``picks`` is the number of devices that it tried."""

    picks: int
    found: bool
    given_up: bool


def backtrack(case: ClaimCase, most: int) -> Tried:
    """Search an idle node for devices for the case's claims. Try up to ``most`` devices."""
    search = _Search(case.inventory, case.claims, most)
    try:
        return Tried(search.picks, search.request(0), False)
    except GivenUpError:
        return Tried(most, False, True)


class _Search:
    def __init__(self, inventory: Inventory, claims: Sequence[Claim], most: int) -> None:
        self.picks = 0
        self._most = most
        self._devices = inventory.devices
        self._requests = [request.alternatives for claim in claims for request in claim.requests]
        self._taken: set[int] = set()
        self._left: dict[PoolKey, dict[str, int]] = {
            pool.key: dict(pool.budget) for pool in inventory.pools
        }

    def request(self, place: int) -> bool:
        if place == len(self._requests):
            return True
        return any(self._pick(place, each, 0, []) for each in self._requests[place])

    def _pick(self, place: int, wanted: Alternative, start: int, picked: list[int]) -> bool:
        if self._is_enough(wanted, picked):
            return self.request(place + 1)
        if len(picked) == (wanted.limit or wanted.count):
            return False
        for number in range(start, len(self._devices)):
            if number in self._taken or not wanted.eligible >> number & 1:
                continue
            device = self._devices[number]
            # Devices that do not match count, too, because the limit bounds the time of the search.
            self._count()
            if not self._matches(wanted, device, picked) or not self._pay(device, 1):
                continue
            # Continue with later devices only: the order of the devices in a request does not
            # matter.
            self._taken.add(number)
            if self._pick(place, wanted, number + 1, [*picked, number]):
                return True
            self._taken.remove(number)
            self._pay(device, -1)
        return False

    def _count(self) -> None:
        self.picks += 1
        if self.picks > self._most:
            raise GivenUpError

    def _is_enough(self, wanted: Alternative, picked: Sequence[int]) -> bool:
        if wanted.mode is not AccessMode.SHARED:
            return len(picked) == wanted.count
        return all(
            sum(self._devices[number].capacity[name].total for number in picked) >= amount
            for name, amount in wanted.amounts.items()
        )

    def _matches(self, wanted: Alternative, device: Device, picked: Sequence[int]) -> bool:
        return not picked or all(
            self._devices[picked[0]].attributes[name] == device.attributes[name]
            for name in wanted.match
        )

    def _pay(self, device: Device, sign: int) -> bool:
        left = self._left[device.key.pool_key]
        if sign > 0 and any(left[name] < amount for name, amount in device.charge.items()):
            return False
        for name, amount in device.charge.items():
            left[name] -= sign * amount
        return True
