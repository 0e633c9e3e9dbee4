"""Benchmark admissions of pods without claims while the search for the devices of a claim runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Final

from devicemanager.claims.errors import TryAgain
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.core.quantity import NANOS, Quantity
from devicemanager.kubelet.mock import MockKubelet
from tools.bench import claimcases
from tools.bench.clock import timed
from tools.bench.environment import admit, node, pod
from tools.bench.model import Case, Measurement, Scale

_GOAL: Final = 1.5
_ROUNDS: Final = 4
_CLAIM: Final = "default/hard"


def cases(scale: Scale) -> list[Case]:
    """Return the only case: admissions during a search."""
    return [Case("admission-beside-search", partial(_beside, scale.samples))]


def _beside(samples: int) -> list[Measurement]:
    """Measure admissions on the same node without and with searches, alternately."""
    quiet: list[float] = []
    searching: list[float] = []
    rounds = min(_ROUNDS, samples)
    each = samples // rounds
    with node(each) as (kubelet, _):
        _publish_hard_claim(kubelet)
        for _round in range(rounds):
            quiet += _admissions(kubelet, each)
            with _searches(kubelet):
                searching += _admissions(kubelet, each)
    return [
        Measurement(
            "admission of a pod without claims while a search runs",
            searching,
            against="no search",
            baseline=quiet,
            at_most_ratio=_GOAL,
        )
    ]


def _admissions(kubelet: MockKubelet, count: int) -> list[float]:
    pods = [pod(number) for number in range(count)]
    times = [timed(partial(admit, kubelet, each)) for each in pods]
    kubelet.terminate(*[each.uid for each in pods])
    return times


@contextlib.contextmanager
def _searches(kubelet: MockKubelet) -> Iterator[None]:
    """Search for the devices of a hard claim repeatedly during a ``with`` block."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        while not over.is_set():
            begun.set()
            # The search reaches its limits without a result, so it always takes the longest time.
            with contextlib.suppress(TryAgain):
                kubelet.claims.allocate(_CLAIM)

    thread = threading.Thread(target=work, name="searches")
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _publish_hard_claim(kubelet: MockKubelet) -> None:
    """Publish the pool and the claim of ``claimcases.independent_set`` as objects of the API."""
    case = claimcases.independent_set()
    (pool,) = case.inventory.pools
    one = Quantity(NANOS)
    budget = sorted({name for device in pool.devices for name in device.charge})
    kubelet.publish(
        api.DevicePool(
            api.ObjectMeta("graph"),
            "graph.example.com",
            resources=tuple([api.ResourceCapacity(name, one) for name in budget]),
            devices=tuple(
                [
                    api.Device(device.key.name, requests=dict.fromkeys(device.charge, one))
                    for device in pool.devices
                ]
            ),
        )
    )
    kubelet.define(api.DeviceClass(api.ObjectMeta("vertex"), "graph.example.com", "vertex"))
    (request,) = case.claims[0].requests
    detail = api.ClaimDetail(
        device_class="vertex",
        requests={api.COUNT: Quantity(request.alternatives[0].count * NANOS)},
    )
    meta = api.ObjectMeta("hard", "default")
    kubelet.claim(api.DeviceClaim(meta, (api.ClaimInstance(detail),)))
