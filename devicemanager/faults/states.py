"""A fault that is set: what has become of it so far, and whether it fires."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import attrs

from devicemanager.faults.fault import Fault
from devicemanager.faults.holds import Hold
from devicemanager.faults.injection_point import FaultContext, InjectionPoint

__all__ = ["Entry", "FaultState"]


@attrs.frozen
class FaultState:
    """A fault that was set, as it stands now."""

    id: int
    """Faults of one registry are numbered from 1, in the order in which they were set."""
    fault: Fault
    seen: int
    """How many occasions have been the fault's."""
    fired: int
    """At how many of them it fired."""
    holding: int = 0
    """How many calls or streams it holds up now."""

    @property
    def is_spent(self) -> bool:
        """Whether it has fired as often as it may."""
        return self.fault.times == self.fired or self.fault.is_immediate

    def as_data(self) -> dict[str, Any]:
        """``id``, ``spec`` (the line that sets it), ``seen``, ``fired``, ``holding``,
        ``spent``, and the fault's own fields as in :meth:`Fault.as_data`."""
        return {
            "id": self.id,
            "spec": str(self.fault),
            "seen": self.seen,
            "fired": self.fired,
            "holding": self.holding,
            "spent": self.is_spent,
            **self.fault.as_data(),
        }


@attrs.define(eq=False)
class Entry:
    """What is guarded by the registry's lock, of one fault."""

    id: int
    fault: Fault
    seen: int = 0
    fired: int = 0
    occasions: Counter[str | None] = attrs.field(factory=Counter)
    holds: set[Hold] = attrs.field(factory=set)
    prepared: Any = None
    """What was noted when it was set, for when it fires."""

    def state(self) -> FaultState:
        return FaultState(self.id, self.fault, self.seen, self.fired, len(self.holds))

    def concerns(self, occasion: FaultContext) -> bool:
        fault = self.fault
        wanted = fault.resource, fault.plugin, fault.rpc
        found = occasion.resource, occasion.plugin, occasion.rpc
        if any(one not in (None, other) for one, other in zip(wanted, found, strict=True)):
            return False
        return fault.point is not InjectionPoint.CALL or fault.phase == occasion.phase

    def fires(self, occasion: FaultContext, seed: int) -> bool:
        """Count the occasion, and decide."""
        fault = self.fault
        self.seen += 1
        self.occasions[occasion.resource] += 1
        if self.seen <= fault.after or self.fired == fault.times:
            return False
        if fault.probability < 1:
            # By resource: with two plugins at work it does not matter which comes first.
            own = f"{seed}/{self.id}" if fault.seed is None else str(fault.seed)
            count = self.occasions[occasion.resource]
            source = random.Random(f"{own}/{occasion.resource}/{count}")
            if source.random() >= fault.probability:
                return False
        self.fired += 1
        return True
