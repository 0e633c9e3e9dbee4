"""Import the modules of all attacks. The order of imports is the order of the table's rows."""

from __future__ import annotations

from tools.attack import (
    apiserver,
    connections,
    control,
    disk,
    dra,
    files,
    lists,
    nri,
    output,
    registrations,
    spdy,
    starts,
)
from tools.attack.model import ATTACKS, Attack

MODULES = (
    connections,
    control,
    apiserver,
    spdy,
    disk,
    dra,
    nri,
    files,
    lists,
    output,
    registrations,
    starts,
)


def attacks() -> list[Attack]:
    """Return all attacks."""
    return ATTACKS
