"""Constraints of claims, with the known bugs of Kubernetes' allocator (``profile.Quirk``)."""

from __future__ import annotations

import attrs

from devicemanager.claims.core.device_order import Values, are_distinct


@attrs.define(eq=False)
class StaleMatch:
    """``matchAttribute`` constraint with Kubernetes' bug ``STALE_LIST_MATCH``.

    ``common``: the attribute values that all added devices have. Because of the bug, ``remove``
    leaves ``common`` unchanged.
    """

    common: Values = frozenset()
    count: int = 0

    def add(self, request: int, values: Values) -> bool:
        """Add a device and return True; return False if none of its ``values`` is in ``common``.

        A device is always added while the constraint has no other device.
        """
        if self.count:
            values &= self.common
            if not values:
                return False
        self.common = values
        self.count += 1
        return True

    def remove(self, request: int) -> None:
        """Remove the latest device, but leave ``common`` unchanged."""
        self.count -= 1


@attrs.define(eq=False)
class DistinctPerRequest:
    """``distinctAttribute`` constraint with Kubernetes' bug ``DISTINCT_PER_REQUEST``.

    Because of the bug, ``add`` compares a new device only with the latest device of each request.
    """

    latest: dict[int, Values] = attrs.field(factory=dict)
    count: int = 0

    def add(self, request: int, values: Values) -> bool:
        """Add a device if its ``values`` differ from those of the latest device of each request.

        ``values``: the attribute values of the device. Return True if the device was added.
        """
        if self.count and not are_distinct(values, list(self.latest.values())):
            return False
        self.latest[request] = values
        self.count += 1
        return True

    def remove(self, request: int) -> None:
        """Remove the latest device of a request."""
        # Earlier devices of the request may still be picked, but are not compared any more.
        self.latest.pop(request, None)
        self.count -= 1
