"""The checks of a mock kubelet's health."""

from __future__ import annotations

from devicemanager.core.versions.behaviour import HealthCheck
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.telemetry import NodeInfo
from devicemanager.observe.web.health import Check

__all__ = ["checks_of", "live_checks", "node_checks"]


def live_checks() -> tuple[Check, ...]:
    """Whether the program answers: it does."""
    return (Check("ping", lambda: ""), Check("log", lambda: ""))


def node_checks(kubelet: NodeInfo) -> tuple[Check, ...]:
    """Whether the kubelet runs: one that does not would not answer at all, but here it does."""

    def syncloop() -> str:
        return "" if kubelet.is_serving else "the kubelet is stopped"

    return (*live_checks(), Check("syncloop", syncloop))


def checks_of(kubelet: MockKubelet) -> tuple[Check, ...]:
    """Those of the kubelet's version."""
    checks = node_checks(kubelet)
    if kubelet.settings.behaviour.health_check is HealthCheck.NONE:
        return checks
    return (*checks, Check("device-plugin", kubelet.telemetry.registration_failure))
