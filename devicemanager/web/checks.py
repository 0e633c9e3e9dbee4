"""The checks of a mock kubelet's health."""

from __future__ import annotations

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.web.health import Check

__all__ = ["live_checks", "ready_checks"]


def live_checks() -> tuple[Check, ...]:
    """Whether the program answers: it does."""
    return (Check("ping", lambda: ""), Check("log", lambda: ""))


def ready_checks(kubelet: MockKubelet) -> tuple[Check, ...]:
    """Whether the kubelet runs."""

    def syncloop() -> str:
        return "" if kubelet.is_serving else "the kubelet is stopped"

    return (*live_checks(), Check("syncloop", syncloop))
