"""Benchmark PodResources List, compared with a minimal gRPC server in the same process."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from podresources import sockets
from tools.bench.client import LIST, NOTHING, SAME
from tools.bench.clock import now, timed
from tools.bench.environment import Helper, admit, node, pod
from tools.bench.model import Case, Measurement, Scale

# The kubelet's default limit of 100 calls per second would dominate the results.
_WITHOUT_LIMIT: Final = Settings(pod_resources_qps=None)
_CLIENT: Final = "tools.bench.client"
_CLIENTS: Final = 4


def cases(scale: Scale) -> list[Case]:
    """Return the cases: List at each size, after changes, and from several clients."""
    sized = [
        Case(f"list-{devices}x{pods}", partial(_list, devices, pods, scale.samples))
        for devices, pods in scale.sizes
    ]
    return [
        *sized,
        Case("list-changed", partial(_changed, scale.pods, scale.samples)),
        Case("list-clients", partial(_clients, scale.pods, scale.samples)),
    ]


@contextlib.contextmanager
def _bare_server(socket: Path, same: bytes) -> Iterator[None]:
    """Run a gRPC server that responds with constant bytes, during a ``with`` block."""
    answers = {NOTHING: b"", SAME: same}

    class Handlers(grpc.GenericRpcHandler):
        def service(
            self, handler_call_details: grpc.HandlerCallDetails
        ) -> grpc.RpcMethodHandler[bytes, bytes]:
            answer = answers[handler_call_details.method]
            return grpc.unary_unary_rpc_method_handler(lambda _, __: answer)

    server = grpc.server(ThreadPoolExecutor(4), handlers=[Handlers()])
    server.add_insecure_port(sockets.target(socket))
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()


@contextlib.contextmanager
def _filled(devices: int, pods: int) -> Iterator[tuple[MockKubelet, Helper, int]]:
    """Run a kubelet with pods, a bare server, and a client of both.

    Yield the kubelet, the client, and the size of the List response in bytes.
    """
    with contextlib.ExitStack() as stack:
        kubelet, _ = stack.enter_context(node(devices, settings=_WITHOUT_LIMIT))
        admit(kubelet, *map(pod, range(pods)))
        answer = _answer(kubelet.pod_resources_socket)
        bare = kubelet.root / "bare.sock"
        stack.enter_context(_bare_server(bare, answer))
        client = stack.enter_context(Helper(_CLIENT, kubelet.pod_resources_socket, bare))
        yield kubelet, client, len(answer)


def _answer(socket: Path) -> bytes:
    with grpc.insecure_channel(sockets.target(socket)) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(LIST)
        return call(b"")


def _list(devices: int, pods: int, samples: int) -> list[Measurement]:
    with _filled(devices, pods) as (_, client, size):
        listed, nothing, same = json.loads(client.ask(str(samples)))
    name = f"List: {devices} devices, {pods} pods, {size} bytes"
    return [
        Measurement(
            name,
            listed,
            against="empty call + the same bytes",
            baseline=same,
            at_most_ratio=1.2,
        ),
        Measurement(f"{name} (as above)", listed, against="empty call", baseline=nothing),
    ]


def _changed(pods: int, samples: int) -> list[Measurement]:
    """Measure List after admitting or terminating a pod.

    A pod is also admitted or terminated before calls of the bare server, because an admission
    leaves CPU caches cold.
    """
    listed: list[float] = []
    same: list[float] = []
    with _filled(pods, pods) as (kubelet, client, _):
        one = pod(pods // 2)
        changes = partial(kubelet.terminate, one.uid), partial(admit, kubelet, one)
        for _turn in range(-(-samples // len(changes))):
            for method, taken in (("list", listed), ("same", same)):
                for change in changes:
                    change()
                    ((took,),) = json.loads(client.ask(f"1 {method}"))
                    taken.append(took)
    name = f"List after a change: {pods} devices and pods"
    against = "empty call + the same bytes"
    return [Measurement(name, listed, against=against, baseline=same, at_most_ratio=1.5)]


def _clients(pods: int, samples: int) -> list[Measurement]:
    """Call List continuously from several clients while pods are admitted and terminated."""
    admitted: list[float] = []
    with contextlib.ExitStack() as stack:
        kubelet, _ = stack.enter_context(node(pods, settings=_WITHOUT_LIMIT))
        admit(kubelet, *map(pod, range(pods // 2)))
        clients = [
            stack.enter_context(Helper(_CLIENT, kubelet.pod_resources_socket))
            for _ in range(_CLIENTS)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(_CLIENTS))
        begin = now()
        calls_done = [pool.submit(client.ask, str(samples)) for client in clients]
        for number in itertools.cycle(range(pods // 2, pods)):
            if all(each.done() for each in calls_done):
                break
            admitted.append(timed(partial(admit, kubelet, pod(number))))
            kubelet.terminate(pod(number).uid)
        whole = (now() - begin) * 1000
    name = f"List from {_CLIENTS} clients while pods come and go, per call"
    calls = _CLIENTS * samples
    return [
        Measurement(name, [whole / calls], at_most=1.0, rate="calls"),
        Measurement(f"admission meanwhile: {pods} devices", admitted, rate="pods"),
    ]
