"""Constraints with upstream's bugs (``profile.Quirk``)."""

from __future__ import annotations

import attrs

from devicemanager.claims.core.device_order import Values, are_distinct


@attrs.define(eq=False)
class StaleMatch:
    """``Match`` with the bug ``STALE_LIST_MATCH``.

    ``remove`` does not restore the common values.
    """

    common: Values = frozenset()
    count: int = 0

    def add(self, request: int, values: Values) -> bool:
        """Add a device if it shares a value with all devices added so far. Return True if it was
        added."""
        if self.count:
            values &= self.common
            if not values:
                return False
        self.common = values
        self.count += 1
        return True

    def remove(self, request: int) -> None:
        """Remove the latest device, but do not change the common values."""
        self.count -= 1


@attrs.define(eq=False)
class DistinctPerRequest:
    """``Distinct`` with the bug ``DISTINCT_PER_REQUEST``.

    ``add`` compares only with the latest device of each request.
    """

    latest: dict[int, Values] = attrs.field(factory=dict)
    count: int = 0

    def add(self, request: int, values: Values) -> bool:
        """Add a device if its values differ from those of each request's latest device. Return True
        if the device was added."""
        if self.count and not are_distinct(values, list(self.latest.values())):
            return False
        self.latest[request] = values
        self.count += 1
        return True

    def remove(self, request: int) -> None:
        """Remove the request's latest device."""
        self.latest.pop(request, None)
        self.count -= 1
