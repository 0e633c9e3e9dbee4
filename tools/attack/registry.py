"""All attacks, in the order of the table."""

from __future__ import annotations

from tools.attack import (
    answers,
    cdi,
    connections,
    control,
    directories,
    disk,
    lists,
    manifests,
    output,
    podresources,
    registrations,
    starts,
    web,
)
from tools.attack.model import Attack

_MODULES = (
    lists,
    registrations,
    connections,
    control,
    web,
    directories,
    answers,
    podresources,
    starts,
    manifests,
    cdi,
    output,
    disk,
)


def attacks() -> list[Attack]:
    """Every attack."""
    return [attack for module in _MODULES for attack in module.attacks()]
