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
    """True if a container that already has devices is rejected while the resource is not registered
    or one of these devices is unhealthy (k/k#116376)."""
    running_need_nothing: bool = True
    """True if ``checks_health`` does not apply to containers that were running before a kubelet
    restart."""
    sidecars_keep: bool = True
    """True if devices of restartable init containers are not reusable."""
    pod_level_rejection: bool = False
    """True if the topology manager has a special message for rejected pods with
    ``spec.resources``."""
    empty_reply: str = ""
    """The text that the kubelet prints for an AllocateResponse without container responses
    (``%v``)."""
    no_topology_node: int = WITHOUT_TOPOLOGY
    """The NUMA node under which a device without topology is recorded; 0 up to v1.22."""
