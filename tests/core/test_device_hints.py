"""Caching of the layout of device lists."""

from devicemanager.core.allocation.pod import DeviceHintProvider
from devicemanager.core.devices import Device
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.inventory import Columns, device_list_from
from devicemanager.core.topology import NumaTopology, configure

GPU = ResourceName("vendor.com/gpu")


def index_on(node: int):
    devices = [Device(DeviceId("gpu-0"), "Healthy", (node,))]
    return device_list_from(Columns.of(devices)).device_index


def test_layout_is_cached_until_the_topology_changes() -> None:
    provider = DeviceHintProvider(configure(NumaTopology.of([0, 1]), "restricted"))
    first, second = index_on(0), index_on(1)
    assert provider.layout(GPU, first).masks == (1,)
    after = provider.layout(GPU, second)
    assert after.masks == (2,)
    assert provider.layout(GPU, second) is after
