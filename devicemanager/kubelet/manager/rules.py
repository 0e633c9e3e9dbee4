"""What the settings' version and quirks mean for the core."""

from __future__ import annotations

from devicemanager.core.allocation.rules import Rules
from devicemanager.core.endpoints import Endpoints
from devicemanager.core.ledger import Ledger
from devicemanager.kubelet.settings import Settings

__all__ = ["allocation_rules", "new_endpoints", "new_ledger"]


def allocation_rules(settings: Settings) -> Rules:
    """How devices are allocated under these settings."""
    behaviour = settings.behaviour
    return Rules(
        quirks=settings.quirks,
        checks_health=behaviour.admission_checks_health,
        running_need_nothing=behaviour.running_survive_restart,
        sidecars_keep=behaviour.sidecars_keep,
        pod_level_rejection=behaviour.pod_level_rejection,
        empty_reply=behaviour.empty_allocate_reply,
        no_topology_node=behaviour.no_topology_node,
    )


def new_endpoints(settings: Settings) -> Endpoints:
    """Endpoints of which nobody has registered yet."""
    return Endpoints(
        several=settings.behaviour.several_plugins, lists_of_all="Q24" in settings.quirks
    )


def new_ledger(settings: Settings) -> Ledger:
    """A ledger without entries."""
    return Ledger(ignores_drafts="Q25" in settings.quirks)
