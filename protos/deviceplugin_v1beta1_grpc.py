"""Stubs, servicers and method paths of deviceplugin_v1beta1.proto."""

# Generated from deviceplugin_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from protos import _service
from protos.deviceplugin_v1beta1 import DESCRIPTOR

__all__ = [
    "ALLOCATE",
    "GET_DEVICE_PLUGIN_OPTIONS",
    "GET_PREFERRED_ALLOCATION",
    "LIST_AND_WATCH",
    "PRE_START_CONTAINER",
    "REGISTER",
    "DevicePluginServicer",
    "DevicePluginStub",
    "RegistrationServicer",
    "RegistrationStub",
    "add_DevicePluginServicer_to_server",
    "add_RegistrationServicer_to_server",
]

REGISTER = "/v1beta1.Registration/Register"
GET_DEVICE_PLUGIN_OPTIONS = "/v1beta1.DevicePlugin/GetDevicePluginOptions"
LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"
GET_PREFERRED_ALLOCATION = "/v1beta1.DevicePlugin/GetPreferredAllocation"
ALLOCATE = "/v1beta1.DevicePlugin/Allocate"
PRE_START_CONTAINER = "/v1beta1.DevicePlugin/PreStartContainer"

_Registration = DESCRIPTOR.services_by_name["Registration"]
RegistrationStub = _service.stub(_Registration, __name__)
RegistrationServicer = _service.servicer(_Registration, __name__)
add_RegistrationServicer_to_server = _service.adder(_Registration)

_DevicePlugin = DESCRIPTOR.services_by_name["DevicePlugin"]
DevicePluginStub = _service.stub(_DevicePlugin, __name__)
DevicePluginServicer = _service.servicer(_DevicePlugin, __name__)
add_DevicePluginServicer_to_server = _service.adder(_DevicePlugin)
