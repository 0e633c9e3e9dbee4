"""Known defects of the kubelet that tests can enable, and the versions that have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from devicemanager.core.versions.steps import Steps, since, step_at
from devicemanager.core.versions.version import KubeletVersion, VersionError

REFERENCE = "reference"
"""Name that stands for all quirks that a kubelet version has."""


class Quirk(NamedTuple):
    """A known defect of the kubelet: its effect, and the versions that have it."""

    text: str
    steps: Steps = (since("1.20"),)

    def is_in(self, version: KubeletVersion) -> bool:
        return bool(step_at(self.steps, version).value)


_HEALTH_CHECK = (
    since("1.20", value=False),
    since("1.25.10", "1.26.5", "1.27.2", "1.28", evidence="k/k#116376"),
)

# A quirk is a defect that users are likely to meet and want to reproduce in a test. By default the
# mock does not have it, because most tests are about the plugin. The defects with the missing
# numbers are settings of the mock (docs/kubelet-behaviour.md) or cannot occur.
QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "Q1": Quirk(
            "if the stream of a replaced plugin ends after the new plugin has registered, the new "
            "plugin is unregistered",
            (
                since("1.20", value=False),
                since("1.25", evidence="k/k#109016"),
                since("1.37", value=False, evidence="k/k#135437"),
            ),
        ),
        "Q2": Quirk(
            "a plugin that registers the same socket path again is rejected, and the kubelet then "
            "does not notice when the connected plugin disconnects",
            (since("1.20", value=False), since("1.37", evidence="k/k#139338")),
        ),
        "Q3": Quirk("connections of replaced and rejected registrations stay open"),
        "Q4": Quirk(
            "if GetPreferredAllocation fails, or an AllocateResponse has no containers, the chosen "
            "devices stay in use until devices of another pod are freed or an Allocate call fails"
        ),
        "Q5": Quirk(
            "after a kubelet restart, finished init containers require devices again",
            _HEALTH_CHECK,
        ),
        "Q7": Quirk(
            "allocatedResourcesStatus is in random order",
            (
                since("1.20", value=False),
                since("1.31", evidence="k/k#126243"),
                since("1.38", value=False, evidence="k/k#142340"),
            ),
        ),
        "Q8": Quirk(
            "a health change of a device is also reported for pods that use a device with the same "
            "ID of another resource",
            (
                since("1.20", value=False),
                since("1.31", evidence="k/k#126243"),
                since("1.37", value=False, evidence="k/k#140323"),
            ),
        ),
        "Q9": Quirk(
            "in the pod status, a device that is missing from the plugin's list is Healthy, and a "
            "device whose plugin has disconnected keeps its last health",
            (since("1.20", value=False), since("1.31", evidence="k/k#126243")),
        ),
        "Q10": Quirk(
            "devices of ended pods, and of pods that only the checkpoint names, stay allocated "
            "until the next allocation or List call of PodResources"
        ),
        "Q13": Quirk(
            "a device with an empty topology is missing from GetAllocatableResources",
            (since("1.20", value=False), since("1.21", evidence="k/k#95734")),
        ),
        "Q14": Quirk("a pod runs without devices of a resource that no plugin has registered"),
        "Q16": Quirk(
            "a pod with a limit of 0 is rejected if no device of the resource is healthy",
            _HEALTH_CHECK,
        ),
        "Q21": Quirk("a corrupt checkpoint is overwritten by the next write"),
        "Q23": Quirk(
            "the kubelet connects to an endpoint such as ../x, which is outside the plugin "
            "directory"
        ),
        "Q24": Quirk(
            "device lists are still applied if their plugin was replaced or is not the newest "
            "plugin of the resource"
        ),
        "Q25": Quirk(
            "the devices that an admission has reserved count as free once devices of another pod "
            "are freed",
            (since("1.20"), since("1.38", value=False, evidence="k/k#137534")),
        ),
        "Q26": Quirk(
            "in PodResources, the second and each later device of a driver in a claim also has the "
            "CDI devices of the devices before it",
            (since("1.20", value=False), since("1.31", evidence="k/k#126243")),
        ),
        "Q27": Quirk(
            "after a kubelet restart, a pod is rejected if one of its containers had restarted "
            "before",
            (
                since("1.20", value=False),
                since("1.28", evidence="k/k#118559"),
                since("1.34.7", "1.35.4", "1.36", value=False, evidence="k/k#135485"),
            ),
        ),
        "Q28": Quirk(
            "the kubelet panics with prefer-closest-numa-nodes if NUMA node IDs have gaps",
            (since("1.20", value=False), since("1.26", evidence="seen in 1.32.10")),
        ),
        "Q29": Quirk(
            "the checkpoint is written after every device list, and not when a plugin disconnects"
        ),
        "Q30": Quirk(
            "when the newest of several plugins of a resource disconnects, the resource keeps its "
            "current device list",
            (since("1.20", value=False), since("1.37", evidence="seen in 1.37.2")),
        ),
        "Q31": Quirk(
            "until the next allocation or List call of PodResources, a rejected pod keeps the "
            "devices that were allocated to it"
        ),
        "Q32": Quirk(
            "a health change of a device that several pods use is reported for only one of these "
            "pods",
            (since("1.20", value=False), since("1.31", evidence="k/k#126243")),
        ),
        "Q33": Quirk(
            "the kubelet panics if the device list lacks a chosen device after Allocate; after a "
            "restart, it also panics if the list lacks a pod's device and other devices have a "
            "topology",
            (since("1.20", value=False), since("1.34", evidence="seen in 1.37.2")),
        ),
        "Q34": Quirk(
            "a pod never starts if two entries of its spec.resourceClaims name the same "
            "ResourceClaim",
            (since("1.20", value=False), since("1.32", evidence="seen in 1.34.4")),
        ),
        "Q35": Quirk(
            "when a claim is prepared again, the devices in the response are added to the "
            "claim's earlier devices",
            (
                since("1.20", value=False),
                since("1.32", evidence="seen in 1.34.4"),
                since("1.37", value=False, evidence="k/k#140274"),
            ),
        ),
        "Q36": Quirk(
            "after a failed unprepare, a claim cannot be prepared until an unprepare succeeds",
            (since("1.20", value=False), since("1.37", evidence="seen in 1.37.2")),
        ),
        "Q37": Quirk(
            "two pods that start at the same time both prepare their shared claim",
            (since("1.20", value=False), since("1.32", evidence="seen in 1.36.3")),
        ),
        "Q38": Quirk(
            "the kubelet does not start if its DRA state file is corrupt",
            (since("1.20", value=False), since("1.32", evidence="seen in 1.36.3")),
        ),
        "Q39": Quirk(
            "a pod cannot end if the ResourceClaim of one of its templates was never created",
            (since("1.20", value=False), since("1.32", evidence="k/k#139772")),
        ),
    }
)
"""All quirks by name. No quirk is enabled by default."""


def quirks_of(version: KubeletVersion) -> frozenset[str]:
    """Return the names of the quirks that a kubelet version has."""
    return frozenset(name for name, quirk in QUIRKS.items() if quirk.is_in(version))


def check_quirks(names: Collection[str], version: KubeletVersion) -> None:
    """Raise VersionError if a quirk is unknown or the kubelet version does not have it."""
    if not names:
        return
    has = quirks_of(version)
    for name in sorted(names):
        if name not in QUIRKS:
            raise VersionError(f"unknown quirk {name}: use one of {', '.join(QUIRKS)}")
        if name not in has:
            existing = ", ".join(each for each in QUIRKS if each in has)
            raise VersionError(
                f"kubelet {version} does not have quirk {name}: use one of {existing}"
            )
