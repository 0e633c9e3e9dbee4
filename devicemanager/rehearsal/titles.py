"""Short descriptions of steps."""

from __future__ import annotations

from devicemanager.rehearsal.steps import (
    Admit,
    Configure,
    Drain,
    Reboot,
    Restart,
    SetDevices,
    Step,
    WithoutPlugin,
)

__all__ = ["title"]


def title(step: Step) -> str:
    """Return a short description of a step, such as ``reboot the node``."""
    match step:
        case Restart():
            return "restart the kubelet"
        case Reboot():
            return "reboot the node"
        case Drain():
            return "drain the node"
        case WithoutPlugin(resource):
            return f"stop the plugin of {resource}"
        case SetDevices(resource, devices):
            return f"set the devices of {resource} to {devices}"
        case Admit(pod):
            return f"admit pod {pod.namespace}/{pod.name}"
        case Configure():
            return f"configure the kubelet: {', '.join(_changes(step))}"


def _changes(step: Configure) -> list[str]:
    named = {
        "version": step.kubelet_version,
        "policy": step.policy,
        "scope": step.scope,
        **step.options,
    }
    return [f"{name} {value}" for name, value in named.items() if value is not None]
