"""Test device plugins and PodResources clients: fixtures, plugin processes, fake hardware.

Theory of operation. If this distribution is installed, every pytest session loads
``pytest_plugin``, so ``pytest_plugin`` imports only pytest. When a test uses a fixture, the fixture
imports its factory. A factory creates kubelets, plugins or servers, and its context manager stops
them in reverse order. After a failed test, the pytest plugin adds the kubelets' events and the
output of plugin processes to the report.

In:  ``Settings``, plugin commands, recordings, mock PodResources scripts.
Out: running kubelets and plugins; failures that show what happened.

Invariants:
* Importing this package loads no third-party module.
* An error on a server thread of a kubelet fails the test that uses the kubelet.
* The processes of a test end when the test ends, even if pytest is killed.

Start reading at ``pytest_plugin``, then ``factories`` and ``processes``. ``mock_podresources`` is a
PodResources server without a kubelet. ``hardware`` writes fake ``/sys`` and ``/dev`` trees.
``fakes`` has plugins without a socket, for this project's own tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devicemanager.io.lazy import lazy_names
from devicemanager.testing.manifest import pod_manifest

if TYPE_CHECKING:
    from devicemanager.core.versions.version import ANCHORS as KUBELET_VERSIONS
    from devicemanager.testing.api_node import ApiNode
    from devicemanager.testing.dra_objects import (
        claim_spec,
        claim_template,
        device_class,
        external_claim,
        parameters_env,
        pod_external,
        pod_inline,
        pod_inline_multiple,
        resource_slice,
    )
    from devicemanager.testing.drivers import SimulatedDriverFactory
    from devicemanager.testing.factories import (
        MockKubeletFactory,
        PodResourcesServerFactory,
        SimulatedPluginFactory,
    )
    from devicemanager.testing.hardware import FakeDev, FakeSysfs, HardwareError
    from devicemanager.testing.processes import PluginProcess, PluginProcessFactory, ProcessEnded
    from devicemanager.testing.replays import ReplayPluginFactory

__all__ = [
    "KUBELET_VERSIONS",
    "ApiNode",
    "FakeDev",
    "FakeSysfs",
    "HardwareError",
    "MockKubeletFactory",
    "PluginProcess",
    "PluginProcessFactory",
    "PodResourcesServerFactory",
    "ProcessEnded",
    "ReplayPluginFactory",
    "SimulatedDriverFactory",
    "SimulatedPluginFactory",
    "claim_spec",
    "claim_template",
    "device_class",
    "external_claim",
    "parameters_env",
    "pod_external",
    "pod_inline",
    "pod_inline_multiple",
    "pod_manifest",
    "resource_slice",
]

_load, _names = lazy_names(
    __name__,
    {
        "ApiNode": "api_node",
        "FakeDev": "hardware",
        "FakeSysfs": "hardware",
        "HardwareError": "hardware",
        "MockKubeletFactory": "factories",
        "PluginProcess": "processes",
        "PluginProcessFactory": "processes",
        "PodResourcesServerFactory": "factories",
        "ProcessEnded": "processes",
        "ReplayPluginFactory": "replays",
        "SimulatedDriverFactory": "drivers",
        "SimulatedPluginFactory": "factories",
        "claim_spec": "dra_objects",
        "claim_template": "dra_objects",
        "device_class": "dra_objects",
        "external_claim": "dra_objects",
        "parameters_env": "dra_objects",
        "pod_external": "dra_objects",
        "pod_inline": "dra_objects",
        "pod_inline_multiple": "dra_objects",
        "resource_slice": "dra_objects",
    },
)


def __getattr__(name: str) -> Any:
    if name == "KUBELET_VERSIONS":
        # The name in its own module differs, so `lazy_names` cannot load it.
        from devicemanager.core.versions.version import ANCHORS

        return ANCHORS
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*_names(), "KUBELET_VERSIONS"})
