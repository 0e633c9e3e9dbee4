"""Constraints with the bugs of the original; see ``profile.Quirk``."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from devicemanager.claims.core.device_order import Values, are_distinct


@attrs.define(eq=False)
class StaleMatch:
    """``Match`` that does not restore the common values when a device is removed."""

    values: Callable[[int], Values | None]
    common: Values = frozenset()
    count: int = 0

    def add(self, request: int, number: int) -> bool:
        """Add a device that has a common value with all devices so far."""
        values = self.values(number)
        if values is None:
            return False
        if self.count:
            values &= self.common
            if not values:
                return False
        self.common = values
        self.count += 1
        return True

    def remove(self, request: int, number: int) -> None:
        """Forget the device, but not its values."""
        self.count -= 1


@attrs.define(eq=False)
class DistinctPerRequest:
    """``Distinct`` that knows only the latest device of each request."""

    values: Callable[[int], Values | None]
    latest: dict[int, Values] = attrs.field(factory=dict)
    count: int = 0

    def add(self, request: int, number: int) -> bool:
        """Add a device whose values differ from the known ones."""
        values = self.values(number)
        if values is None:
            return False
        if self.count and not are_distinct(values, list(self.latest.values())):
            return False
        self.latest[request] = values
        self.count += 1
        return True

    def remove(self, request: int, number: int) -> None:
        """Forget the latest device of the request."""
        self.latest.pop(request, None)
        self.count -= 1
