"""What differs between kubelets when devices are allocated, and which defects to reproduce."""

from __future__ import annotations

import attrs

from devicemanager.core.devices import WITHOUT_TOPOLOGY


@attrs.frozen(eq=False, repr=False)
class Rules:
    """Rules of one kubelet version. The defaults are those of v1.36."""

    quirks: frozenset[str] = frozenset()
    """Kubelet defects to reproduce (``Q4``, ``Q5``, ``Q16``)."""
    checks_health: bool = True
    """True if a container with devices is admitted again only if they are healthy
    (k/k#116376)."""
    running_need_nothing: bool = True
    """True if that check is skipped for containers that run while the kubelet restarts."""
    sidecars_keep: bool = True
    """True if devices of restartable init containers are not reusable."""
    pod_level_rejection: bool = False
    """True if the topology manager's rejection of a pod with ``spec.resources`` has a
    different message."""
    empty_reply: str = ""
    """An AllocateResponse without containers as the version's protobuf prints it (``%v``)."""
    no_topology_node: int = WITHOUT_TOPOLOGY
    """The NUMA node under which a device without topology is recorded; 0 up to v1.22."""
