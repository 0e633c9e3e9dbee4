"""Calls to plugins: records of abandoned calls, and conversion of gRPC errors."""

import asyncio
from concurrent.futures import Future

import grpc
import pytest

from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import EventStream
from devicemanager.kubelet.registration.connection import Calls, from_grpc
from devicemanager.kubelet.registration.server import MAX_FILE_NAME, endpoint_problem

PATH = "/v1beta1.DevicePlugin/Allocate"


class Interrupted:
    """A channel on which every call is interrupted; it also serves as its own methods."""

    def unary_unary(self, path):
        return self

    def __call__(self, request, timeout):
        raise KeyboardInterrupt

    future = __call__


def recorded(use):
    log = CallLog(EventStream(), 10, 1000)
    with pytest.raises(KeyboardInterrupt):
        use(Calls(Interrupted(), log.recorder("v.com/r", "p.sock")))
    (call,) = log()
    return call.rpc, call.request_bytes, call.code, call.message


ABANDONED = ("Allocate", b"q", "Canceled", "the kubelet abandoned the call")


def test_interrupted_call_is_recorded_as_abandoned():
    assert recorded(lambda calls: calls.make(PATH, b"q", None, bytes)) == ABANDONED
    wait = lambda calls: asyncio.run(calls.wait_for(PATH, b"q", None, bytes))  # noqa: E731
    assert recorded(wait) == ABANDONED


class Silent:
    """A channel on which no call gets a response; it also serves as its own methods."""

    def unary_unary(self, path):
        return self

    def future(self, request, timeout):
        self.call = Future()
        return self.call


def test_cancelling_the_task_cancels_the_call():
    silent = Silent()

    async def give_up():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await Calls(silent, None).wait_for(PATH, b"q", None, bytes)

    asyncio.run(give_up())
    assert silent.call.cancelled()


def test_grpc_exceptions_are_converted_to_statuses():
    closed = from_grpc(ValueError("Cannot invoke RPC on closed channel!"))
    assert (closed.code, closed.description) == (
        "Canceled",
        "grpc: the client connection is closing",
    )
    unknown = from_grpc(grpc.RpcError("odd"))
    assert (unknown.code, unknown.description) == ("Unknown", "odd")


def test_endpoint_name_is_limited_to_255_bytes():
    assert MAX_FILE_NAME == 255
    assert endpoint_problem("x" * 255) is None
    assert endpoint_problem("é" * 128) == "endpoint name too long: 256 bytes, limit 255"
