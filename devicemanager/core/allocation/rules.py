"""Rules of device allocation that differ between kubelet versions, and enabled quirks."""

from __future__ import annotations

import attrs

from devicemanager.core.devices import WITHOUT_TOPOLOGY


@attrs.frozen(eq=False, repr=False)
class Rules:
    """Rules of device allocation in one kubelet version. The defaults are those of v1.36."""

    quirks: frozenset[str] = frozenset()
    """Enabled quirks: kubelet defects to reproduce, such as ``Q4``."""
    checks_health: bool = True
    """True if the kubelet also checks a container that has devices from an earlier admission. The
    pod is rejected if the resource is not registered or one of the devices is unhealthy
    (kubernetes/kubernetes#116376)."""
    running_need_nothing: bool = True
    """True if containers that were running before a kubelet restart are exempt from
    ``checks_health``."""
    sidecars_keep: bool = True
    """True if later containers cannot reuse the devices of restartable init containers
    (sidecars)."""
    pod_level_rejection: bool = False
    """True if the topology manager has a special message for rejected pods with
    ``spec.resources``."""
    empty_reply: str = ""
    """How Go's ``%v`` prints an AllocateResponse without container responses. The text is part of
    the kubelet's message."""
    no_topology_node: int = WITHOUT_TOPOLOGY
    """ID of the NUMA node under which a device without topology is recorded: -1, or 0 up to
    v1.22."""
