"""Kubernetes objects that run the simulated plugin on every node of a cluster."""

from __future__ import annotations

import re
from typing import Any

import attrs

from devicemanager.core.api.deviceplugin import PLUGIN_DIRECTORY
from devicemanager.plugin.errors import ConfigurationError
from devicemanager.plugin.simulated.settings import SimulationSettings, as_text, title

__all__ = ["DEFAULT_IMAGE", "MANAGED_BY", "daemon_set", "manifest", "namespace", "variables"]

DEFAULT_IMAGE = "simulated-device-plugin:latest"
MANAGED_BY = {"app.kubernetes.io/managed-by": "kubelet-devicemanager"}

_VOLUME = "device-plugins"
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"


def manifest(settings: SimulationSettings, image: str = DEFAULT_IMAGE) -> str:
    """Return the plugin's namespace and DaemonSet as YAML for ``kubectl apply``.

    Raises ConfigurationError for names that Kubernetes would reject.
    """
    import yaml

    return yaml.safe_dump_all([namespace(settings), daemon_set(settings, image)], sort_keys=False)


def namespace(settings: SimulationSettings) -> dict[str, Any]:
    """Return the plugin's Namespace object. Raises ConfigurationError for an invalid name."""
    _check_name("namespace", settings.namespace, _LABEL)
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": settings.namespace, "labels": dict(MANAGED_BY)},
    }


def daemon_set(settings: SimulationSettings, image: str) -> dict[str, Any]:
    """Return the plugin's DaemonSet object. Raises ConfigurationError for an invalid name."""
    _check_name("plugin_name", settings.plugin_name, rf"{_LABEL}(\.{_LABEL})*")
    labels = {"app.kubernetes.io/name": settings.plugin_name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": settings.plugin_name,
            "namespace": settings.namespace,
            "labels": labels | MANAGED_BY,
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(settings, image)},
        },
    }


def variables(settings: SimulationSettings) -> dict[str, str]:
    """Return ``settings`` as environment variables, for ``SimulationSettings.from_env``.

    Settings with default values are omitted. The node name is also omitted, because it differs on
    every node.
    """
    default = SimulationSettings()
    changed = {}
    for field in attrs.fields(SimulationSettings):
        value = getattr(settings, field.name)
        if field.name != "node_name" and value != getattr(default, field.name):
            changed[field.name.upper()] = as_text(value)
    return changed


def _pod(settings: SimulationSettings, image: str) -> dict[str, Any]:
    env: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in variables(settings).items()
    ]
    node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    container = {
        "name": "plugin",
        "image": image,
        # The default image has the tag `latest`, which Kubernetes always pulls by default.
        "imagePullPolicy": "IfNotPresent",
        "env": [*env, {"name": "NODE_NAME", "valueFrom": node}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": _VOLUME, "mountPath": PLUGIN_DIRECTORY}],
    }
    return {
        # Tolerate all taints: nodes with devices are often tainted.
        "tolerations": [{"operator": "Exists"}],
        # Evict the plugin last, because without it the node has no devices.
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": _VOLUME, "hostPath": {"path": PLUGIN_DIRECTORY, "type": "Directory"}}],
    }


def _check_name(setting: str, name: str, pattern: str) -> None:
    # The name of the DaemonSet is also a label value, which has at most 63 characters.
    if len(name) > 63 or not re.fullmatch(pattern, name):
        raise ConfigurationError(
            f"{title(setting)} becomes the name of an object in Kubernetes: use at most 63 "
            f"lower-case letters, digits and '-', with a letter or digit at both ends, not {name!r}"
        )
