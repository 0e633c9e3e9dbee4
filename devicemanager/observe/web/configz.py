"""``/configz``: the kubelet's configuration, as far as a mock kubelet has one."""

from __future__ import annotations

from typing import Any

from devicemanager.kubelet.settings import Settings

__all__ = ["kubelet_configuration"]


def kubelet_configuration(settings: Settings) -> dict[str, Any]:
    """The answer: fields of ``KubeletConfiguration`` (kubelet.config.k8s.io/v1beta1). As with
    the kubelet, empty maps are left out."""
    configuration: dict[str, Any] = {
        "topologyManagerPolicy": settings.topology_policy,
        "topologyManagerScope": settings.topology_scope,
        "topologyManagerPolicyOptions": dict(settings.topology_options),
        "featureGates": dict(settings.feature_gates),
    }
    return {"kubeletconfig": {name: value for name, value in configuration.items() if value}}
