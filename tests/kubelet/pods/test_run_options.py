"""A container's settings from plugins with and without a response."""

from devicemanager.core import runoptions
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.kubelet.pods.options import merged_options
from devicemanager.kubelet.wire.settings import settings_to_bytes

SAYS, SILENT = ResourceName("a.com/says"), ResourceName("b.com/silent")
SETTINGS = ContainerSettings(envs={"A": "1"})


def holding(response: bytes | None) -> AllocatedDevices:
    return AllocatedDevices({-1: (DeviceId("d"),)}, response)


def test_empty_response_adds_nothing() -> None:
    holdings = {SAYS: holding(settings_to_bytes(SETTINGS)), SILENT: holding(b"")}
    assert merged_options(holdings) == runoptions.merge(
        {SAYS: SETTINGS, SILENT: ContainerSettings()}
    )
    nothing = {SAYS: holding(None), SILENT: holding(b"")}
    assert merged_options(nothing) == runoptions.merge({SILENT: ContainerSettings()})
