"""Virtual hardware for structured claims: pools of GPUs, NICs and FPGAs, and their classes."""

# - GPUs that can be partitioned: each card is a pool with one budget of compute and memory
#   slices, and offers more partitions than the budget covers. Profiles and charges are those
#   of an A100 with 80 GB.
# - NICs: each card is a pool of virtual functions, allocated whole, and one uplink whose
#   bandwidth is shared. All have the attribute ``card``, so a claim can request both of one card.
# - FPGAs: whole devices that differ in the version of their shell.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import attrs

from devicemanager.claims.drivers import ClaimDriver, FakeDriver
from devicemanager.claims.v1alpha1.objects import (
    Attribute,
    Device,
    DeviceClass,
    DevicePool,
    Object,
    ObjectMeta,
    ResourceCapacity,
)
from devicemanager.core.quantity import Quantity

GPU_DRIVER = "gpu.example.com"
NIC_DRIVER = "nic.example.com"
FPGA_DRIVER = "fpga.example.com"
DRIVERS = (FPGA_DRIVER, GPU_DRIVER, NIC_DRIVER)

_COMPUTE, _MEMORY = "compute-slices", "memory-slices"
_CARD = {_COMPUTE: 7, _MEMORY: 8}
_VIRTUAL_FUNCTIONS = 8
_SHELLS = ("1.10.0", "1.8.2")


@attrs.frozen
class Profile:
    """Size of a GPU partition, and the compute and memory slices of a card that it consumes."""

    name: str
    memory: str
    compute_slices: int
    memory_slices: int
    count: int
    """The number of partitions with this profile that one card offers."""


PROFILES = (
    Profile("7g.80gb", "80Gi", 7, 8, 1),
    Profile("3g.40gb", "40Gi", 3, 4, 2),
    Profile("2g.20gb", "20Gi", 2, 2, 3),
    Profile("1g.10gb", "10Gi", 1, 1, 7),
)


@attrs.frozen
class SimulatedHardware:
    """Virtual hardware of a node: the number of cards of each kind."""

    gpu: int = 2
    nic: int = 1
    fpga: int = 2

    def pools(self, node: str) -> tuple[DevicePool, ...]:
        """Return the device pools of a node. Cards of one kind alternate between two NUMA nodes."""
        gpus = [_gpu(node, number) for number in range(self.gpu)]
        nics = [_nic(node, number) for number in range(self.nic)]
        fpgas = [_fpgas(node, self.fpga)] if self.fpga else []
        return (*gpus, *nics, *fpgas)


class NodeClaims(Protocol):
    """Protocol with the members of ``ClaimManager`` that ``publish_hardware`` uses."""

    node: str

    def set_driver(self, name: str, driver: ClaimDriver | None) -> None: ...

    def apply(self, objects: Iterable[Object]) -> None: ...


def publish_hardware(claims: NodeClaims, hardware: SimulatedHardware) -> None:
    """Publish pools and classes of virtual hardware, and set fake drivers for its devices."""
    for name in DRIVERS:
        claims.set_driver(name, FakeDriver())
    claims.apply([*simulated_classes(), *hardware.pools(claims.node)])


def simulated_classes() -> tuple[DeviceClass, ...]:
    """Return device classes that match the devices of ``SimulatedHardware``."""
    whole = PROFILES[0].name
    return (
        _class("fpga", FPGA_DRIVER, "fpga"),
        _class("gpu", GPU_DRIVER, "gpu", f"device.profile == '{whole}'"),
        _class("gpu-partition", GPU_DRIVER, "gpu-partition", f"device.profile != '{whole}'"),
        attrs.evolve(_class("gpu-monitor", GPU_DRIVER, "gpu-monitor"), admin_access=True),
        _class("nic-bandwidth", NIC_DRIVER, "nic-bandwidth", "device.function == 'uplink'"),
        _class("nic-function", NIC_DRIVER, "nic-function", "device.function == 'virtual'"),
    )


def _class(name: str, driver: str, device_type: str, constraints: str = "") -> DeviceClass:
    return DeviceClass(ObjectMeta(name), driver, device_type, constraints)


def _gpu(node: str, number: int) -> DevicePool:
    name = f"{node}-gpu-{number}"
    common = (
        Attribute("card", string_value=name),
        Attribute("model", string_value="A100-SXM4-80GB"),
        Attribute("numa", int_value=number % 2),
    )
    budget = tuple([ResourceCapacity(each, _whole(size)) for each, size in _CARD.items()])
    return DevicePool(ObjectMeta(name), GPU_DRIVER, node, common, budget, tuple(_partitions()))


def _partitions() -> Iterator[Device]:
    for profile in PROFILES:
        attributes = (
            Attribute("profile", string_value=profile.name),
            Attribute("memory", quantity_value=Quantity.parse(profile.memory)),
        )
        used = {_COMPUTE: profile.compute_slices, _MEMORY: profile.memory_slices}
        charge: Mapping[str, Quantity] = {name: _whole(count) for name, count in used.items()}
        for number in range(profile.count):
            name = f"{profile.name.replace('.', '-')}-{number}"
            yield Device(name, attributes, charge)


def _nic(node: str, number: int) -> DevicePool:
    name = f"{node}-nic-{number}"
    common = (
        Attribute("card", string_value=name),
        Attribute("linkSpeed", quantity_value=Quantity.parse("100G")),
        Attribute("numa", int_value=number % 2),
    )
    bandwidth = ResourceCapacity("bandwidth", Quantity.parse("100G"), Quantity.parse("1G"))
    uplink = Device("uplink", _function("uplink"), resources=(bandwidth,))
    functions = [Device(f"vf-{i}", _function("virtual")) for i in range(_VIRTUAL_FUNCTIONS)]
    return DevicePool(ObjectMeta(name), NIC_DRIVER, node, common, (), (uplink, *functions))


def _function(kind: str) -> tuple[Attribute, ...]:
    return (Attribute("function", string_value=kind),)


def _fpgas(node: str, count: int) -> DevicePool:
    devices = [
        Device(
            f"fpga-{number}",
            (
                Attribute("shell", sem_ver_value=_SHELLS[number % len(_SHELLS)]),
                Attribute("numa", int_value=number % 2),
            ),
        )
        for number in range(count)
    ]
    common = (Attribute("model", string_value="U250"),)
    return DevicePool(ObjectMeta(f"{node}-fpga"), FPGA_DRIVER, node, common, (), tuple(devices))


def _whole(count: int) -> Quantity:
    return Quantity.parse(str(count))
