"""All settings, with the kubelet's own values as defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import attrs

from devicemanager.core.ids import ResourceName
from devicemanager.core.providers import HintProvider
from devicemanager.core.topology import NumaTopology

QUIRKS: Mapping[str, str] = MappingProxyType(
    {
        "Q1": "the late end of a replaced plugin's stream unregisters the one that replaced it",
        "Q2": "a socket path that is registered already is refused",
        "Q3": "connections of replaced and of refused registrations stay open",
        "Q4": "devices chosen for a pod stay in use when GetPreferredAllocation fails or the "
        "reply to Allocate names no container",
        "Q5": "after a restart, finished init containers need devices again",
        "Q7": "allocatedResourcesStatus is in random order",
        "Q8": "a health change is reported for the holder of that id in any resource",
        "Q9": "a device that vanished, or whose plugin left, still shows its last health",
        "Q10": "the checkpoint keeps the entries of deleted pods until another write",
        "Q13": "a device whose topology names no node is left out of GetAllocatableResources",
        "Q14": "a pod runs without a device of a declared resource that is not registered",
        "Q16": "a limit of 0 is refused when no device of the resource is healthy",
        "Q21": "a corrupt checkpoint stays in place and the next write replaces it",
        "Q23": "an endpoint such as ../x is dialed",
    }
)
"""Defects of the reference that can be brought back: name to what happens then."""

KUBELET_LIST_LIMIT = 4 * 1024 * 1024


def _known_quirks(_: object, __: object, value: frozenset[str]) -> None:
    unknown = sorted(value - QUIRKS.keys())
    if unknown:
        raise ValueError(f"unknown quirk {unknown[0]}: choose from {', '.join(sorted(QUIRKS))}")


def _as_names(value: Iterable[str]) -> frozenset[str]:
    return frozenset(value)


@attrs.frozen(kw_only=True)
class Settings:
    """How a kubelet behaves. Times are in seconds; None switches a limit off."""

    dial_timeout: float = 10.0
    """How long Register waits for the plugin's own socket."""
    options_timeout: float | None = 10.0
    """Deadline of GetDevicePluginOptions during Register. The kubelet sets none of its
    own, but a plugin waits for the reply to Register; None waits for ever."""
    allocate_timeout: float | None = None
    """Deadline of Allocate. The kubelet sets none: a plugin that hangs blocks the pod."""
    preferred_allocation_timeout: float | None = None
    """Deadline of GetPreferredAllocation. The kubelet sets none."""
    pre_start_timeout: float | None = 30.0
    """Deadline of PreStartContainer, the only one the kubelet sets besides dialing."""
    grace_period: float = 300.0
    """How long a resource is kept after its last plugin has stopped."""
    max_list_bytes: int = KUBELET_LIST_LIMIT
    """The largest ListAndWatch message that is read (Q11). The kubelet's limit is gRPC's
    default of 4 MiB; -1 switches it off."""
    pod_resources_qps: float | None = 100.0
    """PodResources requests a second; None switches the rate limit off."""
    pod_resources_burst: int = 10
    """How many PodResources requests may come at once."""
    health_queue_size: int = 100
    """How many reports of changed device health wait for a reader; more are dropped."""
    declared_resources: frozenset[ResourceName] = frozenset()
    """Resources that this node is meant to have: a pod that asks for one before any
    plugin registered it is refused (Q14)."""
    strict: bool = False
    """Refuse a pod that asks for a resource nobody ever registered, instead of running
    it without the device and a warning event, as the kubelet does."""
    wait_for_plugin: float = 0.0
    """After a reboot, how long an admission waits for the pod's plugins to come back
    (Q6). 0 refuses at once, as the kubelet does."""
    topology_policy: str = "none"
    """``none``, ``best-effort``, ``restricted`` or ``single-numa-node``."""
    topology_scope: str = "container"
    """``container`` or ``pod``."""
    topology_options: Mapping[str, str] = attrs.field(factory=dict)
    """``prefer-closest-numa-nodes`` and ``max-allowable-numa-nodes``."""
    node_allocatable: Mapping[ResourceName, int] = attrs.field(factory=dict)
    """What the node has besides devices: ``cpu`` in milli-CPUs, ``memory`` in bytes,
    ``pods``. What is not named is not checked."""
    providers: tuple[HintProvider, ...] = ()
    """CPUs and memory that take part in topology alignment and are handed out
    exclusively: ``CpuProvider``, ``MemoryProvider`` or others like them."""
    numa: NumaTopology = attrs.field(factory=lambda: NumaTopology.of([0]))
    """The node's NUMA nodes and distances."""
    sysfs: Path = Path("/sys")
    """Where PCI devices that a plugin names by vendor and product id are looked up."""
    shuffle_seed: int | None = None
    """Choose free devices in a random order from this seed, since plugins must bear any
    order (Q22). None chooses the lowest ids."""
    quirks: frozenset[str] = attrs.field(
        default=frozenset(), converter=_as_names, validator=_known_quirks
    )
    """Defects of the reference to bring back for a test; see ``QUIRKS``."""
