"""A ready plugin with virtual devices: for demos, and to see what a kubelet does with faults.

What belongs here: settings by environment and flags, the devices, faults on purpose, and
the deployment to a cluster. What never does: hardware, or anything of the kubelet's side.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.plugin.simulated.command import add_arguments, run, simulate_main
    from devicemanager.plugin.simulated.deployment import DeploymentError, deploy, undeploy
    from devicemanager.plugin.simulated.faults import (
        AllocateFault,
        Faults,
        ListFault,
        SimulatedError,
    )
    from devicemanager.plugin.simulated.objects import manifest
    from devicemanager.plugin.simulated.plugin import SimulatedPlugin
    from devicemanager.plugin.simulated.recording import RpcCall
    from devicemanager.plugin.simulated.settings import IdShape, PreferredPolicy, SimulationSettings

__all__ = [
    "AllocateFault",
    "DeploymentError",
    "Faults",
    "IdShape",
    "ListFault",
    "PreferredPolicy",
    "RpcCall",
    "SimulatedError",
    "SimulatedPlugin",
    "SimulationSettings",
    "add_arguments",
    "deploy",
    "manifest",
    "run",
    "simulate_main",
    "undeploy",
]

# The command's own set-up comes before gRPC is loaded.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AllocateFault": "faults",
        "DeploymentError": "deployment",
        "Faults": "faults",
        "IdShape": "settings",
        "ListFault": "faults",
        "PreferredPolicy": "settings",
        "RpcCall": "recording",
        "SimulatedError": "faults",
        "SimulatedPlugin": "plugin",
        "SimulationSettings": "settings",
        "add_arguments": "command",
        "deploy": "deployment",
        "manifest": "objects",
        "run": "command",
        "simulate_main": "command",
        "undeploy": "deployment",
    },
)
