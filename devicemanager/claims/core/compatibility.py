"""Compatibility groups, which decide whether devices can use a counter set at the same time.

Devices are compatible if one group is common to all of them, or if none of them has groups
(``compatibilityGroupIntersection`` of structured/internal/experimental, v1.37).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import attrs

Declared = tuple[tuple[Hashable, frozenset[str]], ...]
"""Compatibility groups of a device: one pair for each counter set that the device uses.

A pair has the counter set, and the names of the device's groups in this counter set.
"""

_NO_GROUPS = frozenset({""})
"""Groups of a device that declares no groups. Such devices are compatible only with each other."""


@attrs.frozen(eq=False)
class Groups:
    """Compatibility groups for one search: the groups that each device declares, and the common
    groups of the devices that were in use before the search."""

    declared: Mapping[int, Declared] = attrs.field(factory=dict)
    """Groups by device number. A device that is not in the mapping is compatible with all
    devices."""
    in_use: Mapping[Hashable, frozenset[str]] = attrs.field(factory=dict)
    """For each counter set, the groups common to all devices that used this set before the
    search."""

    @classmethod
    def of(cls, declared: Mapping[int, Declared], others: Iterable[Declared]) -> Groups:
        """Return the groups for a search.

        ``declared``: the groups of each device, by device number. ``others``: the groups of each
        device that was in use before the search.
        """
        in_use: dict[Hashable, frozenset[str]] = {}
        for device in others:
            for key, groups in device:
                common = in_use.setdefault(key, groups)
                # Upstream ignores a device that contradicts earlier ones in this way.
                if _NO_GROUPS not in (common, groups):
                    in_use[key] = common & groups
        return cls(declared, in_use)


def groups_of(names: Sequence[str]) -> frozenset[str]:
    """Return the compatibility groups of a device in one counter set.

    ``names``: the groups that the device declares. A device that declares no groups gets a special
    group, which is the same for all devices without declared groups.
    """
    return frozenset(names) or _NO_GROUPS


@attrs.frozen(eq=False)
class CommonGroups:
    """For each counter set, the groups common to all devices that use this set.

    A device uses its counter sets if it was in use before the search, or if ``add`` has added it.
    """

    _groups: Groups
    _common: dict[Hashable, list[frozenset[str]]] = attrs.field(factory=dict)
    """For each counter set, the common groups after each added device."""

    def add(self, number: int) -> bool:
        """Add a device, given by its number, and return True.

        If the device is incompatible with an added device, or with a device that was in use before
        the search, change nothing and return False.
        """
        narrowed = []
        for key, groups in self._groups.declared.get(number, ()):
            stack = self._common.setdefault(key, [])
            before = stack[-1] if stack else self._groups.in_use.get(key, groups)
            if not before & groups:
                return False
            narrowed.append((stack, before & groups))
        for stack, common in narrowed:
            stack.append(common)
        return True

    def remove(self, number: int) -> None:
        """Remove the device that was added last. ``number``: the number of this device."""
        for key, _ in self._groups.declared.get(number, ()):
            self._common[key].pop()
