"""Plugin registration, v1: how the kubelet's plugin watcher discovers plugins.

The plugin serves this on a socket in the plugins_registry directory. The
kubelet finds the socket, requests information about the plugin and reports
the result of the registration.
"""

# Generated from pluginregistration_v1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "InfoRequest",
    "PluginInfo",
    "RegistrationStatus",
    "RegistrationStatusResponse",
]

DESCRIPTOR = file("pluginregistration_v1.proto")

InfoRequest = message("pluginregistration.InfoRequest")
PluginInfo = message("pluginregistration.PluginInfo")
RegistrationStatus = message("pluginregistration.RegistrationStatus")
RegistrationStatusResponse = message("pluginregistration.RegistrationStatusResponse")
