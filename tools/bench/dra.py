"""Benchmark the allocator of ``resource.k8s.io``: reading slices, and a claim of 8 devices.

The code never waits, so the times are CPU times.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any, Final

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.dra import Allocator, InUse, Node
from devicemanager.claims.dra.allocation import NOTHING
from tools.bench.clock import computed
from tools.bench.model import Case, Measurement, Scale

_DRIVER: Final = "gpu.example.com"
_NODE: Final = Node("worker")
_PER_SLICE: Final = 128
_DEVICES: Final = 1_000
_MANY: Final = 10_000
_MODEL: Final = f'device.attributes["{_DRIVER}"].model == "A100"'
_MEMORY: Final = f'device.capacity["{_DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
RELEASES: Final = ("1.36.3", "1.37.2")
"""Releases whose allocator can be compared."""
CLASSES: Final = [
    {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]},
    }
]
CLAIM: Final[dict[str, Any]] = {
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "allocationMode": "ExactCount",
                        "count": 8,
                        "selectors": [{"cel": {"expression": f"{_MODEL} && {_MEMORY}"}}],
                    },
                }
            ]
        }
    },
}


def cases(scale: Scale) -> list[Case]:
    """Return the cases: reading slices, and allocating a claim of 8 devices."""
    few = -(-scale.samples // 30)
    return [
        Case("dra-slices", partial(_read, _MANY, few)),
        Case("dra-claim", partial(_allocate, _DEVICES, scale.samples)),
    ]


def slices(devices: int) -> list[dict[str, Any]]:
    """Return the slices of a node. Every other device is an A100, and each has an ID."""
    count = -(-devices // _PER_SLICE)
    pool = {"name": "worker", "generation": 1, "resourceSliceCount": count}
    return [
        {
            "metadata": {"name": f"s{number:03}"},
            "spec": {
                "driver": _DRIVER,
                "nodeName": _NODE.name,
                "pool": pool,
                "devices": [
                    _device(each)
                    for each in range(number * _PER_SLICE, min(devices, (number + 1) * _PER_SLICE))
                ],
            },
        }
        for number in range(count)
    ]


def _device(number: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "index": {"int": number},
            "uuid": {"string": f"GPU-{number:08}"},
            "model": {"string": ("H100", "A100")[number % 2]},
            "numa": {"int": number % 8},
            "driverVersion": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def _read(devices: int, samples: int) -> list[Measurement]:
    """Measure how long the pools of a node take to read."""
    made = slices(devices)
    times = [computed(lambda: Allocator(made, CLASSES).allocate([], _NODE)) for _ in range(samples)]
    return [Measurement(f"DRA slices with {devices} devices read", times, at_most=100)]


def _allocate(devices: int, samples: int) -> list[Measurement]:
    """Measure a claim for 8 devices.

    First the selectors are not cached. Then they are cached, on an idle node and on a node whose
    devices are nearly all in use.
    """
    made = slices(devices)
    first = [computed(lambda: _once(Allocator(made, CLASSES))) for _ in range(-(-samples // 30))]
    allocator = Allocator(made, CLASSES)
    name = f"DRA claim of 8: {devices} devices"
    found = [Measurement(f"{name}, slices just read", first)]
    for used in (0, devices * 9 // 10):
        in_use = InUse(frozenset(DeviceKey(_DRIVER, "worker", f"gpu-{n}") for n in range(used)))
        _once(allocator, in_use)
        times = [computed(partial(_once, allocator, in_use)) for _ in range(samples)]
        found.append(Measurement(f"{name}, {used} in use", times, at_most=5))
    return found


def _once(allocator: Allocator, in_use: InUse = NOTHING) -> None:
    found = allocator.allocate([CLAIM], _NODE, in_use)
    assert found is not None, "the claim fits"


def against(release: str) -> str:
    """Return a line that compares the time of a claim of 8 devices with that of a release's
    allocator, which is run once.

    Raises BuildError and ReferenceError.
    """
    # Imported here: the other cases need no Go.
    from tools.differential.dra_allocate.problems import FEATURES
    from tools.differential.dra_allocate.running import program_of, solved

    made = slices(_DEVICES)
    problem = {
        "features": list(FEATURES),
        "node": {"name": _NODE.name},
        "slices": made,
        "classes": CLASSES,
        "claims": [CLAIM],
    }
    (answer,) = solved(program_of(release), [problem], "-bench", "200")
    real = answer["nanoseconds"] / 1e6
    allocator = Allocator(made, CLASSES)
    _once(allocator)
    ours = median([computed(partial(_once, allocator)) for _ in range(200)])
    return (
        f"DRA claim of 8 among {_DEVICES} devices: {ours:.2f} ms, {release} {real:.2f} ms,"
        f" ratio {ours / real:.2f} (goal: 2 or less)"
    )
