"""The connection to one instance of a driver: calls, health streams, connection state.

Each instance has one gRPC channel, which is open from the registration to the deregistration of the
instance. When the connection breaks, the channel reconnects, as in the kubelet
(pkg/kubelet/cm/dra/plugin/dra_plugin.go, v1.36). A call on a broken connection fails at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
from grpc.experimental import ChannelOptions

from devicemanager.core.dra.drivers import Instance
from devicemanager.core.dra.effects import CALL_TIMEOUT, Answer, CallDriver, Operation
from devicemanager.core.dra.model import PreparedDevice, PrepareResult, UnprepareResult
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import ResourceName
from devicemanager.events.calls.call import OK
from devicemanager.events.calls.log import CallLog
from devicemanager.faults.registry import FaultRegistry
from devicemanager.kubelet.registration.connection import Calls, from_grpc
from devicemanager.kubelet.registration.fault_injection import PluginFaults
from devicemanager.kubelet.settings import Settings
from podresources.sockets import CHANNEL_OPTIONS, target
from protos import dra_v1, dra_v1_grpc, dra_v1beta1_grpc, drahealth_v1_grpc, drahealth_v1alpha1_grpc

__all__ = ["DriverConnection"]

_RECONNECT_PAUSE = 0.05
"""Pause before reconnecting, in seconds.

Without this pause, a driver that closes every connection immediately would keep a thread busy.
"""

_POLL_SECONDS = 0.2
"""Timeout of one wait for a change of the channel's state, in seconds. After ``close``, the thread
ends within this time."""
_IDLE, _READY = (
    each.value[0] for each in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.READY)
)

# The kubelet has only gRPC's limit of 4 MiB for a whole response. It stores the devices of all
# claims in one file, which it writes for each pod, so one such response would delay all pods. A
# claim has at most 32 devices (``AllocationResultsMaxSize``, k8s.io/api/resource/v1).
_MAX_BYTES = 256 << 10
"""Maximum size of a response, in bytes per requested claim."""
_MAX_DEVICES = 1024
"""Maximum number of devices per claim in a response."""

# All versions have the same messages and field numbers. Only v1 has the fields share_id and
# permanent_error.
_PATHS: Mapping[tuple[str, Operation], str] = {
    ("v1", Operation.PREPARE): dra_v1_grpc.NODE_PREPARE_RESOURCES,
    ("v1", Operation.UNPREPARE): dra_v1_grpc.NODE_UNPREPARE_RESOURCES,
    ("v1beta1", Operation.PREPARE): dra_v1beta1_grpc.NODE_PREPARE_RESOURCES,
    ("v1beta1", Operation.UNPREPARE): dra_v1beta1_grpc.NODE_UNPREPARE_RESOURCES,
    ("v1alpha4", Operation.PREPARE): "/v1alpha3.Node/NodePrepareResources",
    ("v1alpha4", Operation.UNPREPARE): "/v1alpha3.Node/NodeUnprepareResources",
}
_HEALTH_PATHS: Mapping[str, str] = {
    "v1": drahealth_v1_grpc.NODE_WATCH_RESOURCES,
    "v1alpha1": drahealth_v1alpha1_grpc.NODE_WATCH_RESOURCES,
}


class DriverConnection:
    """Connection to one registered instance of a driver, from ``start`` to ``close``."""

    def __init__(
        self,
        instance: Instance,
        settings: Settings,
        calls: CallLog,
        faults: FaultRegistry,
        on_change: Callable[[bool], None],
    ) -> None:
        """``on_change`` is called with True when the connection is made, and with False when it is
        lost."""
        self._on_change = on_change
        self._closed = threading.Event()
        self._connected = False
        path = Path(instance.endpoint)
        recorder = calls.recorder(instance.driver, instance.endpoint)
        self._recorder = recorder
        self._channel = grpc.insecure_channel(target(path), _options(settings))
        self._calls = Calls(
            self._channel,
            recorder,
            PluginFaults(faults, ResourceName(instance.driver), instance.endpoint),
        )

    def start(self) -> None:
        """Connect in the background."""
        threading.Thread(target=self._watch, name="driver-connection", daemon=True).start()

    def _watch(self) -> None:
        """Report when the connection is made or lost, until it is closed."""
        for state in self._states():
            is_ready = state == _READY
            if is_ready is not self._connected and not self._closed.is_set():
                self._connected = is_ready
                self._on_change(is_ready)

    def _states(self) -> Iterator[int]:
        """Yield the state of the channel at least every ``_POLL_SECONDS``, until it is closed."""
        # Not ``Channel.subscribe``: its thread ends with an exception if the channel is closed
        # between two polls.
        channel = cast(Any, self._channel)._channel
        with contextlib.suppress(ValueError):  # the channel was closed
            state = channel.check_connectivity_state(True)
            while not self._closed.is_set():
                yield state
                channel.watch_connectivity_state(state, time.time() + _POLL_SECONDS)
                state = channel.check_connectivity_state(False)
                if state == _IDLE and not self._closed.wait(_RECONNECT_PAUSE):
                    # gRPC does not leave this state by itself. It follows a broken connection, and
                    # 30 minutes without calls.
                    channel.check_connectivity_state(True)

    def call(self, effect: CallDriver) -> Answer:
        """Call NodePrepareResources or NodeUnprepareResources.

        ``effect`` names the driver instance, the method and the claims.

        Returns a mapping from each claim's UID to the driver's result for the claim.

        Raises RpcError if the call fails.
        """
        request = dra_v1.NodePrepareResourcesRequest(
            claims=[
                dra_v1.Claim(namespace=each.namespace, uid=each.uid, name=each.name)
                for each in effect.claims
            ]
        )
        path = _PATHS[effect.service, effect.operation]
        is_prepare = effect.operation is Operation.PREPARE
        decode = partial(_prepared, effect.service) if is_prepare else _unprepared
        read = partial(_limited, decode, _MAX_BYTES * len(effect.claims))
        return self._calls.make(path, request.SerializeToString(), CALL_TIMEOUT, read)

    def watch_health(self, service: str) -> Iterator[bytes]:
        """Open the health stream, and yield each message as bytes.

        The iteration stops when the driver ends the stream without an error. Raises RpcError if the
        stream fails.
        """
        path = _HEALTH_PATHS[service]
        call = self._calls.begin(path, b"")
        end = OK, ""
        try:
            method: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(path)
            stream = method(b"")
            for message in stream:
                if call is not None:
                    call.received_message(message)
                yield message
        except (grpc.RpcError, ValueError) as error:
            failed = from_grpc(error)
            end = failed.code, failed.description
            raise failed from error
        finally:
            if call is not None:
                call.failed(*end)

    def close(self) -> None:
        """Close the connection: calls in flight fail with Canceled, and health streams end."""
        self._closed.set()
        self._channel.close()


def _options(settings: Settings) -> list[tuple[str, int | str]]:
    return [
        *CHANNEL_OPTIONS,
        # The thread that waits for health reports also reads them.
        (ChannelOptions.SingleThreadedUnaryStream, 1),
        ("grpc.max_receive_message_length", settings.max_list_bytes),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]


def _limited(decode: Callable[[bytes], Answer], limit: int, data: bytes) -> Answer:
    """Decode a response. Raises RpcError if it has more than ``limit`` bytes."""
    if len(data) > limit:
        text = f"the response has {len(data)} bytes: the limit is {limit}"
        raise RpcError("ResourceExhausted", text)
    return decode(data)


def _prepared(service: str, data: bytes) -> Mapping[str, PrepareResult]:
    answer = dra_v1.NodePrepareResourcesResponse.FromString(data)
    return {uid: _result(entry, service) for uid, entry in answer.claims.items()}


def _result(entry: Any, service: str) -> PrepareResult:
    if len(entry.devices) > _MAX_DEVICES:
        text = f"the response has {len(entry.devices)} devices: the limit is {_MAX_DEVICES}"
        return PrepareResult(error=entry.error or text)
    devices = tuple([_device(each, service) for each in entry.devices])
    return PrepareResult(devices, entry.error, service == "v1" and entry.permanent_error)


def _device(device: Any, service: str) -> PreparedDevice:
    has_share = service == "v1" and device.HasField("share_id")
    return PreparedDevice(
        device.pool_name,
        device.device_name,
        device.share_id if has_share else None,
        # In Go, an empty list is nil.
        tuple(device.request_names) or None,
        tuple(device.cdi_device_ids) or None,
    )


def _unprepared(data: bytes) -> Mapping[str, UnprepareResult]:
    answer = dra_v1.NodeUnprepareResourcesResponse.FromString(data)
    return {uid: UnprepareResult(entry.error) for uid, entry in answer.claims.items()}
