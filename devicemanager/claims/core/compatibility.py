"""Compatibility groups: which devices may use a counter set together.

Devices that use a counter set have a group in common, or all of them have no groups
(``compatibilityGroupIntersection`` of structured/internal/experimental, v1.37).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import attrs

Declared = tuple[tuple[Hashable, frozenset[str]], ...]
"""For each counter set that a device uses, the names of its groups there."""

_NO_GROUPS = frozenset({""})
"""Groups of a device that declares none. Such devices are compatible only with each other."""


@attrs.frozen(eq=False)
class Groups:
    """Compatibility groups of devices, and those that devices of other calls leave."""

    declared: Mapping[int, Declared] = attrs.field(factory=dict)
    """By device number. Devices that are missing here are compatible with all devices."""
    in_use: Mapping[Hashable, frozenset[str]] = attrs.field(factory=dict)
    """For each counter set that other calls use, the groups that their devices have in common."""

    @classmethod
    def of(cls, declared: Mapping[int, Declared], others: Iterable[Declared]) -> Groups:
        """Return the groups of devices. ``others``: devices that other calls use."""
        in_use: dict[Hashable, frozenset[str]] = {}
        for device in others:
            for key, groups in device:
                common = in_use.setdefault(key, groups)
                # Upstream ignores a device that contradicts earlier ones in this way.
                if _NO_GROUPS not in (common, groups):
                    in_use[key] = common & groups
        return cls(declared, in_use)


def groups_of(names: Sequence[str]) -> frozenset[str]:
    """Return the groups of a device in a counter set. ``names`` is empty if it declares none."""
    return frozenset(names) or _NO_GROUPS


@attrs.frozen(eq=False)
class CommonGroups:
    """The groups that the devices of a search have in common, by counter set."""

    _groups: Groups
    _common: dict[Hashable, list[frozenset[str]]] = attrs.field(factory=dict)
    """For each counter set, the common groups after each added device."""

    def add(self, number: int) -> bool:
        """Add a device. Return False, without a change, if it is incompatible with the others."""
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
        """Undo the latest ``add``, which was of this device."""
        for key, _ in self._groups.declared.get(number, ()):
            self._common[key].pop()
