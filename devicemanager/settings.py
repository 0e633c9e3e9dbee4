"""All settings, with the kubelet's own values as defaults."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from devicemanager.core.ids import ResourceName
from devicemanager.core.topology import NumaTopology

QUIRKS = frozenset({"Q5", "Q16"})
"""Defects of the reference that can be brought back, by name."""

KUBELET_LIST_LIMIT = 4 * 1024 * 1024


def _known_quirks(_: object, __: object, value: frozenset[str]) -> None:
    unknown = sorted(value - QUIRKS)
    if unknown:
        raise ValueError(f"unknown quirk {unknown[0]}: choose from {', '.join(sorted(QUIRKS))}")


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
    numa: NumaTopology = attrs.field(factory=lambda: NumaTopology.of([0]))
    """The node's NUMA nodes and distances."""
    shuffle_seed: int | None = None
    """Choose free devices in a random order from this seed, since plugins must bear any
    order (Q22). None chooses the lowest ids."""
    quirks: frozenset[str] = attrs.field(
        default=frozenset(), converter=frozenset, validator=_known_quirks
    )
    """Defects of the reference to bring back for a test; see ``QUIRKS``."""
