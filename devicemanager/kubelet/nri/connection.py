"""A connection between a runtime and a plugin, on which both sides make calls."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from devicemanager.kubelet.nri.frames import (
    PLUGIN,
    REQUEST,
    RESPONSE,
    RUNTIME,
    Decoder,
    FrameError,
    Message,
    encode,
)
from protos import nri_v1alpha1 as nri
from protos import ttrpc

__all__ = ["CallFailed", "Connection", "Disconnected", "Handlers"]

Handlers = Mapping[str, Callable[[Any], Any]]
"""Mapping from the name of an RPC method to the function that serves calls of this method.

The function gets the request message and returns the response message. If it raises ValueError, the
call fails with the text of the error."""

_INVALID_ARGUMENT, _UNIMPLEMENTED, _UNKNOWN = 3, 12, 2  # status codes of gRPC
_CHUNK = 1 << 16
_SEND_TIMEOUT = struct.pack("@ll", 2, 0)  # seconds, microseconds
_CHANNELS = {"Plugin": PLUGIN, "Runtime": RUNTIME}


class CallFailed(Exception):
    """Error that the other side returned as the response to a call."""


class Disconnected(Exception):
    """Error of a call that got no response in time, or whose connection ended."""


class Connection:
    """One side of a connection between a runtime and a plugin. Thread-safe.

    ``serves`` is the name of the service on this side, and ``calls`` is the name of the service on
    the other side. A runtime serves ``Runtime`` and calls ``Plugin``. ``handlers`` serve the calls
    from the other side. A call of a method without a handler fails as unimplemented.
    """

    def __init__(
        self, connected: socket.socket, handlers: Handlers, *, serves: str, calls: str
    ) -> None:
        self._socket = connected
        # Without it, a peer that does not read would block a call without end.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        self._handlers = handlers
        self._served = nri.DESCRIPTOR.services_by_name[serves]
        self._called = nri.DESCRIPTOR.services_by_name[calls]
        # Guards writes to the socket.
        self._sending = threading.Lock()
        # Guards the fields below.
        self._lock = threading.Lock()
        # The numbers that a client chooses are odd.
        self._streams = itertools.count(1, 2)
        self._pending: dict[int, Future[bytes]] = {}
        self._closed = False

    def call(self, method: str, request: Any, seconds: float) -> Any:
        """Make a call, and return the response message.

        Raises CallFailed if the other side responds with an error. Raises Disconnected if the
        connection ends, or after ``seconds`` without a response.
        """
        described = self._called.methods_by_name[method]
        payload = ttrpc.Request(
            service=self._called.full_name,
            method=method,
            payload=request.SerializeToString(),
            timeout_nano=int(seconds * 1e9),
        ).SerializeToString()
        with self._lock:
            if self._closed:
                raise Disconnected("the connection has ended")
            stream = next(self._streams)
            pending = self._pending[stream] = Future[bytes]()
        try:
            self._send(Message(_CHANNELS[self._called.name], stream, REQUEST, payload))
            return _result(described, pending.result(seconds))
        except DecodeError as error:
            raise CallFailed(f"invalid response: {error}") from None
        except (TimeoutError, OSError) as error:
            raise Disconnected(str(error) or f"no response within {seconds:g} s") from None
        finally:
            with self._lock:
                self._pending.pop(stream, None)

    def serve(self) -> None:
        """Read and answer messages until the connection ends. Call this on a separate thread."""
        decoder = Decoder()
        with contextlib.suppress(OSError, FrameError):
            while data := self._socket.recv(_CHUNK):
                for message in decoder.feed(data):
                    self._handle(message)
        self.close()

    def _handle(self, message: Message) -> None:
        if message.kind == REQUEST:
            response = self._response(message.payload).SerializeToString()
            self._send(Message(message.channel, message.stream, RESPONSE, response))
            return
        with self._lock:
            pending = self._pending.pop(message.stream, None)
        if pending is not None:
            pending.set_result(message.payload)

    def _response(self, payload: bytes) -> ttrpc.Response:
        try:
            request = ttrpc.Request.FromString(payload)
            described = self._served.methods_by_name.get(request.method)
            function = self._handlers.get(request.method)
            if described is None or function is None or request.service != self._served.full_name:
                return _failure(_UNIMPLEMENTED, f"unknown method {request.method}")
            given = GetMessageClass(described.input_type).FromString(request.payload)
            return ttrpc.Response(payload=function(given).SerializeToString())
        except DecodeError as error:
            return _failure(_INVALID_ARGUMENT, str(error))
        except ValueError as error:
            return _failure(_UNKNOWN, str(error))

    def _send(self, message: Message) -> None:
        with self._sending:
            self._socket.sendall(encode(message))

    def close(self) -> None:
        """End the connection and all calls in progress. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # Taken over, so that no other thread ends these calls, too.
            pending, self._pending = self._pending, {}
        # Ends a read on another thread, which ``close`` alone does not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in pending.values():
            each.set_exception(ConnectionResetError("the connection has ended"))


def _result(method: MethodDescriptor, payload: bytes) -> Any:
    response = ttrpc.Response.FromString(payload)
    if response.status.code:
        raise CallFailed(response.status.message)
    return GetMessageClass(method.output_type).FromString(response.payload)


def _failure(code: int, text: str) -> ttrpc.Response:
    return ttrpc.Response(status=ttrpc.Status(code=code, message=text))
