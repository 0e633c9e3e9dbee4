"""The kubelet's feature gates that affect devices, and their defaults by version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from devicemanager.core.versions.version import NEWEST_KNOWN, KubeletVersion, VersionError


class GateStep(NamedTuple):
    """State of a feature gate from the kubelet version 1.``since`` on."""

    since: int
    default: bool
    stage: str
    locked: bool = False


Stage = tuple[GateStep, ...]
_GONE = "gone"


def _steps(
    *steps: tuple[int, bool, str] | tuple[int, bool, str, bool],
) -> Stage:
    return tuple(GateStep(*step) for step in steps)


# Only gates that change the behavior of the mock. The table is needed for two reasons: users
# rarely set gates, so the defaults apply. And a kubelet does not start with a gate that its version
# does not have or has locked, so the mock must reject it.
GATES: Mapping[str, Stage] = {
    "ContainerRestartRules": _steps((34, False, "alpha"), (35, True, "beta")),
    "DRAExtendedResource": _steps((34, False, "alpha"), (36, True, "beta"), (37, True, "GA", True)),
    # Proposed for 1.35 in KEP-5322. No kubelet up to 1.37.2 has it, so a real one rejects it.
    "DRAHandlePermanentDriverFailures": _steps((35, False, "proposed")),
    "DRAOptionalNodeOperations": _steps((37, False, "alpha")),
    "DRAWorkloadResourceClaims": _steps((36, False, "alpha"), (37, False, "beta")),
    "DevicePluginCDIDevices": _steps(
        (28, False, "alpha"), (29, True, "beta"), (31, True, "GA", True), (34, True, _GONE)
    ),
    "DynamicResourceAllocation": _steps(
        (26, False, "alpha"),
        (32, False, "beta"),
        (34, True, "GA"),
        (35, True, "GA", True),
        (38, True, _GONE),
    ),
    "GenericWorkload": _steps((35, False, "alpha"), (37, False, "beta")),
    "InPlacePodVerticalScaling": _steps(
        (27, False, "alpha"), (33, True, "beta"), (35, True, "GA", True)
    ),
    "KubeletPodResourcesDynamicResources": _steps(
        (27, False, "alpha"), (34, True, "beta"), (36, True, "GA", True)
    ),
    "KubeletPodResourcesGet": _steps(
        (27, False, "alpha"), (34, True, "beta"), (36, True, "GA", True)
    ),
    "KubeletPodResourcesGetAllocatable": _steps(
        (21, False, "alpha"), (23, True, "beta"), (28, True, "GA"), (30, True, _GONE)
    ),
    "KubeletPodResourcesListUseActivePods": _steps((34, True, "deprecated")),
    "PodObservedGenerationTracking": _steps(
        (33, False, "alpha"), (34, True, "beta"), (35, True, "GA", True)
    ),
    "PodsAPI": _steps((36, False, "alpha"), (37, True, "beta")),
    "PodLevelResources": _steps((32, False, "alpha"), (34, True, "beta")),
    "PodLevelResourceManagers": _steps((36, False, "alpha"), (37, False, "beta")),
    "ResourceHealthStatus": _steps((31, False, "alpha"), (36, True, "beta")),
    "ResourceHealthStatusMessage": _steps((36, True, "beta")),
    "RestartAllContainersOnContainerExits": _steps((35, False, "alpha"), (36, True, "beta")),
    "SidecarContainers": _steps(
        (28, False, "alpha"), (29, True, "beta"), (33, True, "GA", True), (37, True, _GONE)
    ),
    "TopologyManagerPolicyAlphaOptions": _steps((26, False, "alpha")),
    "TopologyManagerPolicyBetaOptions": _steps((26, False, "beta"), (28, True, "beta")),
    "TopologyManagerPolicyOptions": _steps(
        (26, False, "alpha"), (28, True, "beta"), (32, True, "GA"), (36, True, "GA", True)
    ),
}
"""Steps of each feature gate, in ascending order. A gate does not exist before its first step. The
stage ``gone`` means that the gate was removed and its feature is always on."""


def step_at(name: str, version: KubeletVersion) -> GateStep | None:
    """Return the state of a feature gate in a kubelet version; None if the version does not have
    the gate yet."""
    found = [step for step in GATES[name] if step.since <= version.minor]
    return found[-1] if found else None


def resolve_gates(version: KubeletVersion, chosen: Mapping[str, bool]) -> Mapping[str, bool]:
    """Return the state of each feature gate in a kubelet version, by name: True if the gate is on.
    The values in ``chosen`` override the defaults.

    Gates that the version does not have yet are off. Raises VersionError if the version does not
    have a chosen gate, or has locked the gate to the opposite value.
    """
    for name in chosen:
        _check(name, version, chosen[name])
    steps = {name: step_at(name, version) for name in GATES}
    return {
        name: chosen.get(name, step.default) if step is not None else False
        for name, step in sorted(steps.items())
    }


def accepts(name: str, version: KubeletVersion, wanted: bool) -> bool:
    """True if a kubelet of this version accepts the value ``wanted`` for the gate, and starts."""
    try:
        _check(name, version, wanted)
    except VersionError:
        return False
    return True


def _check(name: str, version: KubeletVersion, wanted: object) -> None:
    if not isinstance(wanted, bool):
        raise VersionError(f"invalid feature gate {name}={wanted!r}: use True or False")
    step = step_at(name, version) if name in GATES else None
    # A kubelet does not start if a removed gate is set, even to its last default.
    if step is None or step.stage == _GONE:
        existing = [gate for gate in GATES if _exists(gate, version)]
        raise VersionError(
            f"unknown feature gate {name!r} for kubelet {version}: use one of {', '.join(existing)}"
        )
    if step.locked and wanted is not step.default:
        raise VersionError(
            f"invalid feature gate {name}={wanted}: it is locked to {step.default} "
            f"in kubelet {version}: do not set it"
        )


def _exists(name: str, version: KubeletVersion) -> bool:
    step = step_at(name, version)
    return step is not None and step.stage != _GONE


# A step after the newest known version would never apply.
assert all(step.since <= NEWEST_KNOWN for steps in GATES.values() for step in steps)
