"""Generate pools, a class and claims in the form in which users write them."""

from __future__ import annotations

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.core.quantity import NANOS, Quantity

NODE = "n1"
_DRIVER = "gpu.example.com"
_PROJECTIONS = 50
"""Number of distinct values of the attributes that constraints read, over all devices."""
_GIB = 2**30 * NANOS


def pool(number: int, devices: int) -> api.DevicePool:
    return api.DevicePool(
        api.ObjectMeta(f"pool-{number}"),
        _DRIVER,
        NODE,
        (api.Attribute("model", string_value="a100"),),
        devices=tuple([_device(place) for place in range(devices)]),
    )


def _device(place: int) -> api.Device:
    memory = api.Attribute(
        "memory", quantity_value=Quantity((40 + place % (_PROJECTIONS // 5)) * _GIB)
    )
    numa = api.Attribute("numa", int_value=place % 5)
    return api.Device(f"gpu-{place}", (memory, numa))


def claim(number: int, count: int) -> api.DeviceClaim:
    """Return a claim for devices with enough memory that are on one NUMA node."""
    detail = api.ClaimDetail(
        device_class="gpu",
        constraints="device.memory >= '40Gi' && device.numa < 4",
        requests={api.COUNT: Quantity(count * NANOS)},
        match_attributes=("numa",),
    )
    return api.DeviceClaim(api.ObjectMeta(f"c{number}", "default"), (api.ClaimInstance(detail),))


def allocator(devices: int, pools: int = 4) -> Allocator:
    """Return an allocator with published pools and no claims."""
    store = ObjectStore()
    for number in range(pools):
        store.publish(pool(number, devices // pools))
    store.define(api.DeviceClass(api.ObjectMeta("gpu"), _DRIVER, "gpu", "device.model == 'a100'"))
    return Allocator(store)
