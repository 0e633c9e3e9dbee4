"""Stubs, servicers and method paths of nri_v1alpha1.proto."""

# Generated from nri_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from protos import _service
from protos.nri_v1alpha1 import DESCRIPTOR

__all__ = [
    "CONFIGURE",
    "CREATE_CONTAINER",
    "REGISTER_PLUGIN",
    "STATE_CHANGE",
    "STOP_CONTAINER",
    "SYNCHRONIZE",
    "UPDATE_CONTAINERS",
    "PluginServicer",
    "PluginStub",
    "RuntimeServicer",
    "RuntimeStub",
    "add_PluginServicer_to_server",
    "add_RuntimeServicer_to_server",
]

REGISTER_PLUGIN = "/nri.pkg.api.v1alpha1.Runtime/RegisterPlugin"
UPDATE_CONTAINERS = "/nri.pkg.api.v1alpha1.Runtime/UpdateContainers"
CONFIGURE = "/nri.pkg.api.v1alpha1.Plugin/Configure"
SYNCHRONIZE = "/nri.pkg.api.v1alpha1.Plugin/Synchronize"
CREATE_CONTAINER = "/nri.pkg.api.v1alpha1.Plugin/CreateContainer"
STOP_CONTAINER = "/nri.pkg.api.v1alpha1.Plugin/StopContainer"
STATE_CHANGE = "/nri.pkg.api.v1alpha1.Plugin/StateChange"

_Runtime = DESCRIPTOR.services_by_name["Runtime"]
RuntimeStub = _service.stub(_Runtime, __name__)
RuntimeServicer = _service.servicer(_Runtime, __name__)
add_RuntimeServicer_to_server = _service.adder(_Runtime)

_Plugin = DESCRIPTOR.services_by_name["Plugin"]
PluginStub = _service.stub(_Plugin, __name__)
PluginServicer = _service.servicer(_Plugin, __name__)
add_PluginServicer_to_server = _service.adder(_Plugin)
