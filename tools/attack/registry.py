"""Import all attacks, in the order of the table."""

from __future__ import annotations

from tools.attack import (  # noqa: F401
    cdi,
    connections,
    control,
    disk,
    lists,
    manifests,
    output,
    registrations,
    starts,
)
from tools.attack.model import ATTACKS, Attack


def attacks() -> list[Attack]:
    """Return all attacks."""
    return ATTACKS
