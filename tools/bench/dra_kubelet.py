"""Benchmark the preparation of a ResourceClaim by a DRA driver."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc

import checkpoint.dra
from checkpoint.dra import ClaimState, Device, DriverState, State
from devicemanager.core.pods import Pod
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.objects.manifests import parse
from podresources.sockets import CHANNEL_OPTIONS, target
from protos import dra_v1, dra_v1_grpc
from tools.bench.clock import timed
from tools.bench.model import Case, Measurement, Scale

_DRIVER: Final = "gpu.example.com"
_BASELINE: Final = "NodePrepareResources + 2 durable writes"
_HELD: Final = (10, 1000)
"""Numbers of claims that the node holds already."""


def cases(scale: Scale) -> list[Case]:
    """Return a case for each number of claims that the node holds already."""
    return [Case(f"dra-prepare-{held}", partial(_prepare, held, scale.samples)) for held in _HELD]


def _prepare(held: int, samples: int) -> list[Measurement]:
    """Measure the preparation of one claim with one driver."""
    taken, baseline = [], []
    with tempfile.TemporaryDirectory(prefix="dm-") as directory:
        root = Path(directory)
        (root / checkpoint.dra.STATE_NAME).write_bytes(checkpoint.dra.dumps(_state(held)))
        with (
            MockKubelet(root) as kubelet,
            SimulatedDriver(_DRIVER, root=root, claims=lambda _, name: _claim(name)) as driver,
        ):
            kubelet.wait_for_event("driver-connected", after=0)
            store = checkpoint.dra.StateStore(root / "cdi")
            channel = grpc.insecure_channel(target(driver.sockets.service_socket), CHANNEL_OPTIONS)
            raw = partial(_raw, dra_v1_grpc.DRAPluginStub(channel), store, kubelet)
            manager = kubelet._life.serving().dra.manager()
            for number in range(samples + 1):
                pod = _pod(f"c{number}")
                kubelet.resource_claims.apply(_reserved(f"c{number}"))
                taken.append(timed(partial(manager.prepare, pod)))
                baseline.append(timed(partial(raw, f"raw{number}")))
                manager.unprepare(pod)
            channel.close()
    # The first sample creates the methods of the channel.
    name = f"prepare one ResourceClaim, {held} others on the node"
    return [
        Measurement(name, taken[1:], against=_BASELINE, baseline=baseline[1:], at_most_ratio=1.3)
    ]


def _raw(stub: Any, store: checkpoint.dra.StateStore, kubelet: MockKubelet, name: str) -> None:
    claim = dra_v1.Claim(namespace="default", name=name, uid=f"uid-{name}")
    stub.NodePrepareResources(dra_v1.NodePrepareResourcesRequest(claims=[claim]), timeout=45)
    data = kubelet.dra_state_path.read_bytes()
    for _ in range(2):
        store.write(data)


def _state(held: int) -> State:
    return State(
        tuple(
            ClaimState(
                "default",
                f"held{number:04}",
                f"uid-held{number}",
                frozenset((f"pod-{number}",)),
                {_DRIVER: DriverState((Device("mock", "gpu-0", cdi=(f"k8s.gpu/c={number}",)),))},
            )
            for number in range(held)
        )
    )


def _pod(name: str) -> Pod:
    return parse(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "uid": f"pod-{name}"},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [{"name": "main", "image": "bench"}],
            },
        }
    )


def _reserved(name: str) -> dict[str, Any]:
    claim = _claim(name)
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": f"pod-{name}"}]
    return claim


def _claim(name: str) -> dict[str, Any]:
    result = {"driver": _DRIVER, "pool": "mock", "device": "gpu-0", "request": "gpu"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
