"""How devices are allocated where kubelets differ, and defects to bring back."""

from __future__ import annotations

import attrs

from devicemanager.core.devices import WITHOUT_TOPOLOGY

__all__ = ["Rules"]


@attrs.frozen(eq=False, repr=False)
class Rules:
    """By default those of v1.36."""

    quirks: frozenset[str] = frozenset()
    """Defects of the reference to bring back (``Q4``, ``Q5``, ``Q16``)."""
    checks_health: bool = True
    """Whether a container that has its devices is admitted again only if they are healthy
    (k/k#116376)."""
    running_need_nothing: bool = True
    """Whether that is not asked of one that runs while the kubelet restarts."""
    sidecars_keep: bool = True
    """Whether restartable init containers hand nothing on."""
    pod_level_rejection: bool = False
    """Whether a pod with resources of its own is rejected by the topology manager in other
    words."""
    empty_reply: str = ""
    """%v of an AllocateResponse without containers, as the version's protobuf prints it."""
    no_topology_node: int = WITHOUT_TOPOLOGY
    """The node under which a device without topology is recorded; 0 up to v1.22."""
