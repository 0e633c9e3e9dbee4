"""A user of a strict type checker can annotate all that ``devicemanager.claims`` returns."""

import importlib.util
import subprocess
import sys

import pytest

from tests.paths import ROOT

PROGRAM = '''
from collections.abc import Mapping, Sequence

from devicemanager import MockKubelet
from devicemanager.claims import (
    AccessMode,
    Allocation,
    AttributeValue,
    ClaimManager,
    ClaimsError,
    ClaimSource,
    ClaimStatus,
    ClaimView,
    Device,
    DeviceClaim,
    DeviceKey,
    DevicePool,
    DeviceStatus,
    DoesNotFit,
    ExcludedDevices,
    Explanation,
    Grant,
    Object,
    ObjectMeta,
    PoolKey,
    Quantity,
    RequestExplanation,
    SimulatedHardware,
    publish_hardware,
    simulated_classes,
)


class Driver:
    """A ``ClaimDriver`` that prepares nothing."""

    def __init__(self) -> None:
        self.prepared: dict[str, tuple[DeviceKey, ...]] = {}

    def prepare(
        self, claim: DeviceClaim, devices: Sequence[DeviceKey]
    ) -> Mapping[DeviceKey, Sequence[str]]:
        self.prepared[claim.id] = tuple(devices)
        return {key: (f"vendor.com/gpu={key.name}",) for key in devices}

    def unprepare(self, claim: DeviceClaim, devices: Sequence[DeviceKey]) -> None:
        del self.prepared[claim.id]


def pool(name: str, *devices: str) -> DevicePool:
    return DevicePool(
        ObjectMeta(name), "gpu.example.com", devices=tuple(Device(each) for each in devices)
    )


def grants(view: ClaimView) -> list[tuple[DeviceKey, AccessMode, Mapping[str, int]]]:
    allocation: Allocation | None = view.allocation
    found: tuple[Grant, ...] = () if allocation is None else allocation.grants
    return [(each.device, each.mode, each.amounts) for each in found]


def rules(explanation: Explanation) -> list[str]:
    requests: tuple[RequestExplanation, ...] = explanation.requests
    excluded: list[ExcludedDevices] = [each for request in requests for each in request.excluded]
    return [each.rule for each in excluded]


def values(pool: DevicePool) -> list[AttributeValue]:
    return [value for attribute in pool.attributes for value in attribute.values()]


def use(kubelet: MockKubelet, source: ClaimSource, objects: Sequence[Object]) -> str:
    manager: ClaimManager = kubelet.claims
    manager.set_driver("gpu.example.com", Driver())
    publish_hardware(manager, SimulatedHardware(gpu=1))
    manager.apply([*objects, *simulated_classes(), pool("p", "a", "b")])
    kubelet.claim(source)
    try:
        manager.allocate("default/train")
    except DoesNotFit:
        return manager.explain("default/train").text()
    except ClaimsError as error:
        return str(error)
    view: ClaimView = manager.claim("default/train")
    status: ClaimStatus = view.claim.status
    amounts: list[Quantity] = [
        amount.allocation for device in status.allocations for amount in device.allocations
    ]
    keys: set[PoolKey] = {key.pool_key for key, _, _ in grants(view)}
    manager.report("gpu.example.com", "default/train", DeviceStatus("p", "a"))
    return f"{amounts} {keys} {view.missing}"
'''


@pytest.mark.timeout(300)
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_strict_user_program_type_checks(tmp_path):
    """Fails if ``Driver`` does not satisfy ``ClaimDriver``, or a type cannot be annotated."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # The cache of the last run: without one, mypy reads all packages and libraries again.
    cache = ROOT / ".cache/mypy"
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={cache}"]
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
