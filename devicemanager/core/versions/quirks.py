"""Known defects of the reference, and the versions that have each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from devicemanager.core.versions.steps import Steps, since, step_at
from devicemanager.core.versions.version import KubeletVersion, VersionError

__all__ = ["QUIRKS", "REFERENCE", "Quirk", "check_quirks", "quirks_of"]

REFERENCE = "reference"
"""Stands for all quirks that a version has."""


class Quirk(NamedTuple):
    """A defect: what happens then, and from when on there is it."""

    text: str
    steps: Steps = (since("1.20"),)

    def is_in(self, version: KubeletVersion) -> bool:
        return bool(step_at(self.steps, version).value)


_HEALTH_CHECK = (
    since("1.20", value=False),
    since("1.25.10", "1.26.5", "1.27.2", "1.28", row="k/k#116376"),
)

QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "Q1": Quirk(
            "the late end of a replaced plugin's stream unregisters the one that replaced it",
            (
                since("1.20", value=False),
                since("1.25", row="k/k#109016"),
                since("1.37", value=False, row="k/k#135437"),
            ),
        ),
        "Q2": Quirk(
            "a socket path that is registered already is rejected",
            (since("1.20", value=False), since("1.37", row="k/k#139338")),
        ),
        "Q3": Quirk("connections of replaced and of rejected registrations stay open"),
        "Q4": Quirk(
            "devices chosen for a pod stay in use when GetPreferredAllocation fails or the reply "
            "to Allocate names no container, until a pod that held devices is freed or an "
            "Allocate fails"
        ),
        "Q5": Quirk(
            "after a restart, finished init containers need devices again",
            _HEALTH_CHECK,
        ),
        "Q7": Quirk(
            "allocatedResourcesStatus is in random order",
            (
                since("1.20", value=False),
                since("1.31", row="k/k#126243"),
                since("1.38", value=False, row="k/k#142340"),
            ),
        ),
        "Q8": Quirk(
            "a health change is reported for the holder of that id in any resource",
            (
                since("1.20", value=False),
                since("1.31", row="k/k#126243"),
                since("1.37", value=False, row="k/k#140323"),
            ),
        ),
        "Q9": Quirk(
            "a device that vanished, or whose plugin left, still shows its last health",
            (since("1.20", value=False), since("1.31", row="k/k#126243")),
        ),
        "Q10": Quirk("the checkpoint keeps the entries of deleted pods until another write"),
        "Q13": Quirk(
            "a device whose topology names no node is left out of GetAllocatableResources",
            (since("1.20", value=False), since("1.21", row="k/k#95734")),
        ),
        "Q14": Quirk("a pod runs without a device of a declared resource that is not registered"),
        "Q16": Quirk(
            "a limit of 0 is rejected when no device of the resource is healthy", _HEALTH_CHECK
        ),
        "Q21": Quirk("a corrupt checkpoint stays in place and the next write replaces it"),
        "Q23": Quirk("an endpoint such as ../x is dialed"),
        "Q24": Quirk("lists of a replaced plugin, or of any but the newest, still count"),
        "Q25": Quirk(
            "devices that are being allocated count as free once another pod's are freed",
            (since("1.20"), since("1.38", value=False, row="k/k#137534")),
        ),
        "Q26": Quirk(
            "a claim's device repeats in PodResources the CDI devices of those before it",
            (
                since("1.20", value=False),
                since("1.31", row="k/k#126243"),
                since("1.37", value=False, row="not looked at", unsure=True),
            ),
        ),
        "Q27": Quirk(
            "after a restart of the kubelet a container that had restarted before counts as "
            "gone, and its pod is rejected",
            (
                since("1.20", value=False),
                since("1.28", row="k/k#118559"),
                since("1.34.7", "1.35.4", "1.36", value=False, row="k/k#135485"),
            ),
        ),
        "Q28": Quirk(
            "prefer-closest-numa-nodes on a machine whose NUMA ids have gaps ends in a panic",
            (since("1.20", value=False), since("1.26", row="seen in 1.32.10")),
        ),
    }
)
"""By name. None is on by default."""


def quirks_of(version: KubeletVersion) -> frozenset[str]:
    """Every quirk that a version has."""
    return frozenset(name for name, quirk in QUIRKS.items() if quirk.is_in(version))


def check_quirks(names: Collection[str], version: KubeletVersion) -> None:
    """Raise VersionError for a name that there is not, or that the version never had."""
    if not names:
        return
    has = quirks_of(version)
    for name in sorted(names):
        if name not in QUIRKS:
            raise VersionError(f"unknown quirk {name}: choose from {', '.join(QUIRKS)}")
        if name not in has:
            there = ", ".join(each for each in QUIRKS if each in has)
            raise VersionError(f"kubelet {version} does not have quirk {name}: it has {there}")
