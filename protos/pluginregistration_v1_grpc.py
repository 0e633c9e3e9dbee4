"""Stubs, servicers and method paths of pluginregistration_v1.proto."""

# Generated from pluginregistration_v1.proto by tools/generate_protos.py: edit that file instead.

from protos import _service
from protos.pluginregistration_v1 import DESCRIPTOR

__all__ = [
    "GET_INFO",
    "NOTIFY_REGISTRATION_STATUS",
    "RegistrationServicer",
    "RegistrationStub",
    "add_RegistrationServicer_to_server",
]

GET_INFO = "/pluginregistration.Registration/GetInfo"
NOTIFY_REGISTRATION_STATUS = "/pluginregistration.Registration/NotifyRegistrationStatus"

_Registration = DESCRIPTOR.services_by_name["Registration"]
RegistrationStub = _service.stub(_Registration, __name__)
RegistrationServicer = _service.servicer(_Registration, __name__)
add_RegistrationServicer_to_server = _service.adder(_Registration)
