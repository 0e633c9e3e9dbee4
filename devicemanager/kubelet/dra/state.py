"""State of the DRA manager of one kubelet process, and the lock that guards it."""

from __future__ import annotations

import threading

import attrs

from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.health import HealthCache
from devicemanager.core.dra.rules import DraRules

__all__ = ["DraState"]


@attrs.define(eq=False, repr=False)
class DraState:
    """Claims, drivers and device health of a node. Hold ``lock`` to use them."""

    rules: DraRules
    cache: ClaimCache
    drivers: Drivers
    health: HealthCache
    lock: threading.Condition = attrs.field(factory=lambda: threading.Condition(threading.Lock()))
    """Guards all fields. Waiting threads are woken when the claims of a pod were prepared or
    unprepared."""

    @classmethod
    def empty(cls, rules: DraRules) -> DraState:
        """Return the state of a node without claims."""
        return cls(rules, ClaimCache(), Drivers(rules), HealthCache(rules))
