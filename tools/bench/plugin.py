"""Run the plugin of the benchmarks, a minimal plugin in a separate process.

The plugin responds to each call with constant bytes and does not decode requests. A slower plugin
would add the same time to the mock kubelet and to the baseline, and so hide differences.

Each line on stdin is a command. The output line is the command's start time. ``register`` registers
all sockets. ``STREAM REPEATS`` sends the last device list of a ListAndWatch stream again REPEATS
times, followed by a list in which the health of one device has changed. Stream 0 is the stream that
was opened first.
"""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.bench.clock import now

RESOURCE: Final = "bench.example.com/device"
_DEVICE: Final = dp.DeviceSpec(
    container_path="/dev/bench0", host_path="/dev/bench0", permissions="rw"
)
CONTAINER_RESPONSE: Final = dp.ContainerAllocateResponse(
    envs={"BENCH_VISIBLE_DEVICES": "device-00000"}, devices=[_DEVICE]
)
"""Response of the plugin for each container."""
_ANSWER: Final = dp.AllocateResponse(container_responses=[CONTAINER_RESPONSE]).SerializeToString()
_STREAMS: Final = 4


def resource_name(number: int) -> str:
    """Return the resource name of the plugin's socket with this number."""
    return RESOURCE if not number else f"{RESOURCE}-{number}"


def socket_name(number: int) -> str:
    """Return the file name of the plugin's socket with this number."""
    return f"bench-{number}.sock"


def device_list(devices: int, nodes: int, ill: int | None = None) -> bytes:
    """Return an encoded ListAndWatchResponse with devices spread evenly over ``nodes`` NUMA nodes.

    If ``nodes`` is 0, the devices have no topology. Device number ``ill`` is unhealthy.
    """
    share = -(-devices // max(nodes, 1))
    message = dp.ListAndWatchResponse()
    for number in range(devices):
        health = "Unhealthy" if number == ill else "Healthy"
        device = message.devices.add(ID=f"device-{number:05}", health=health)
        if nodes:
            device.topology.nodes.add(ID=number // share)
    return message.SerializeToString()


class _Stream:
    """Device lists to send on one ListAndWatch stream."""

    def __init__(self, last: bytes, other: bytes) -> None:
        self._last, self._other = last, other
        self._requests: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._start_times: queue.SimpleQueue[float] = queue.SimpleQueue()

    def messages(self) -> Iterator[bytes]:
        yield self._last
        while True:
            repeats = self._requests.get()
            # Measured in this thread after it woke up, so that the time to wake it does not count.
            begin = now()
            for _ in range(repeats):
                yield self._last
            self._last, self._other = self._other, self._last
            yield self._last
            self._start_times.put(begin)

    def change(self, repeats: int) -> float:
        self._requests.put(repeats)
        return self._start_times.get()


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, devices: int, nodes: int) -> None:
        self._lists = device_list(devices, nodes), device_list(devices, nodes, ill=devices // 2)
        self.streams: list[_Stream] = []

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        match handler_call_details.method:
            case dp_grpc.LIST_AND_WATCH:
                return grpc.unary_stream_rpc_method_handler(self._list)
            case dp_grpc.ALLOCATE:
                return grpc.unary_unary_rpc_method_handler(lambda _, __: _ANSWER)
            case dp_grpc.GET_DEVICE_PLUGIN_OPTIONS:
                return grpc.unary_unary_rpc_method_handler(lambda _, __: b"")
        return None

    def _list(self, _: bytes, __: grpc.ServicerContext) -> Iterator[bytes]:
        stream = _Stream(*self._lists)
        self.streams.append(stream)
        return stream.messages()


def _register(directory: Path, number: int) -> None:
    # Open a connection per registration, like real plugins.
    request = dp.RegisterRequest(
        version="v1beta1", endpoint=socket_name(number), resource_name=resource_name(number)
    )
    with grpc.insecure_channel(sockets.target(directory / "kubelet.sock")) as channel:
        register = dp_grpc.RegistrationStub(channel).Register
        while True:
            try:
                register(request, timeout=30)
            except grpc.RpcError as error:
                # The kubelet refuses calls of a process that already has many calls in progress.
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                time.sleep(0.01)
            else:
                return


def _register_all(directory: Path, sockets: int) -> float:
    begin = now()
    with ThreadPoolExecutor(sockets) as pool:
        list(pool.map(lambda number: _register(directory, number), range(sockets)))
    return begin


def main(arguments: Sequence[str]) -> None:
    """Serve until stdin is closed. The arguments are ``DIRECTORY DEVICES NODES SOCKETS``."""
    directory, (devices, nodes, count) = Path(arguments[0]), map(int, arguments[1:])
    handler = _Handler(devices, nodes)
    server = grpc.server(ThreadPoolExecutor(count + _STREAMS), handlers=[handler])
    for number in range(count):
        server.add_insecure_port(sockets.target(directory / socket_name(number)))
    server.start()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "register":
            begin = _register_all(directory, count)
        else:
            stream, repeats = map(int, line.split())
            begin = handler.streams[stream].change(repeats)
        print(begin, flush=True)
    # Skip the shutdown: open streams would block it.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
