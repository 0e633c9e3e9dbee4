"""Benchmark the control API while the plugin of many pods hangs in Allocate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from devicemanager.control import ControlServer, MockKubeletClient
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing import pod_manifest
from tools.bench.clock import timed
from tools.bench.environment import node
from tools.bench.model import Case, Measurement, Scale
from tools.bench.plugin import RESOURCE

_PODS: Final = 64
_ROUNDS: Final = 3
_GOAL: Final = 2.0
_HANG: Final = 3600.0


def cases(scale: Scale) -> list[Case]:
    """Return the only case: requests while the plugin of many pods hangs."""
    return [Case("control", partial(_while_pods_hang, min(_PODS, scale.pods), scale.samples))]


def _while_pods_hang(pods: int, samples: int) -> list[Measurement]:
    """Measure requests with admitted pods and with pods whose plugin hangs, alternately."""
    quiet: list[float] = []
    hung: list[float] = []
    with (
        node(pods) as (kubelet, _),
        ControlServer(kubelet) as server,
        ThreadPoolExecutor(pods) as pool,
    ):
        client = MockKubeletClient(server.socket_path)
        for _round in range(_ROUNDS):
            # The same number of pods, so that responses have about the same size.
            with _admitted(client, pool, pods):
                quiet += [timed(partial(_requests, client)) for _ in range(samples)]
            kubelet.faults.set("delay-call", rpc="Allocate", seconds=_HANG)
            with _admitted(client, pool, pods, kubelet):
                hung += [timed(partial(_requests, client)) for _ in range(samples)]
    return [
        Measurement(
            f"control API while {pods} pods hang: 4 requests",
            hung,
            against="no pod hangs",
            baseline=quiet,
            at_most_ratio=_GOAL,
        )
    ]


def _requests(client: MockKubeletClient) -> None:
    """Send the requests of a person who looks for a hung pod and ends it."""
    client.pods()
    client.plugins()
    client.faults.set("delay-register", seconds=1)
    client.faults.clear("delay-register")


@contextlib.contextmanager
def _admitted(
    client: MockKubeletClient,
    pool: ThreadPoolExecutor,
    pods: int,
    hangs: MockKubelet | None = None,
) -> Iterator[None]:
    """Admit pods during a ``with`` block. The pods of the kubelet ``hangs`` hang until the block
    ends."""
    uids = [f"pod-{number}" for number in range(pods)]
    admissions = [
        pool.submit(client.admit, pod_manifest(uid, {RESOURCE: 1}, uid=uid)) for uid in uids
    ]
    try:
        if hangs is None:
            for admission in admissions:
                admission.result()
        else:
            hangs.wait_for(lambda: len(hangs.calls.unanswered()) == pods, timeout=60.0)
        yield
    finally:
        if hangs is not None:
            hangs.faults.clear("delay-call")
        for admission in admissions:
            admission.result()
        client.terminate(*uids)
