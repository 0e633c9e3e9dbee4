"""A ready-made plugin with virtual devices, for demos and for tests of a kubelet's error handling.

In:  :class:`SimulationSettings`, from Python, environment variables or flags; a control file that
     changes the health of devices; :class:`Faults`, which can be changed at any time.
Out: a registered plugin with a log of its calls (:class:`RpcCall`); or the manifest of a DaemonSet
     that runs the plugin, which is printed or applied to a cluster.

Every RPC is logged. Depending on the faults, the RPC is then delayed, fails or gets a wrong
response. The package uses the plugin framework and does not depend on the mock kubelet.
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
    from devicemanager.plugin.simulated.service import RpcCall, RpcRequest
    from devicemanager.plugin.simulated.settings import IdShape, PreferredPolicy, SimulationSettings

__all__ = [
    "AllocateFault",
    "DeploymentError",
    "Faults",
    "IdShape",
    "ListFault",
    "PreferredPolicy",
    "RpcCall",
    "RpcRequest",
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

# Lazy: the command sets up its signal handlers before gRPC is imported.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AllocateFault": "faults",
        "DeploymentError": "deployment",
        "Faults": "faults",
        "IdShape": "settings",
        "ListFault": "faults",
        "PreferredPolicy": "settings",
        "RpcCall": "service",
        "RpcRequest": "service",
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
