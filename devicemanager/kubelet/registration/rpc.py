"""Making calls on a plugin: each is recorded, and grpc's errors stop here.

Inwards goes ``RpcError`` with the status as Go prints it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError

from devicemanager.core.api.codes import go_name
from devicemanager.core.errors import InjectedError, RpcError
from devicemanager.events.calls.log import CallInProgress, CallRecorder
from devicemanager.kubelet.registration.fault_injection import PluginFaults

__all__ = ["Calls", "rpc_error", "translated"]

T = TypeVar("T")

_GRPC_ERRORS = (grpc.RpcError, grpc.FutureCancelledError, ValueError)
_GIVEN_UP = RpcError("Canceled", "the kubelet gave the call up")


def rpc_error(error: grpc.RpcError) -> RpcError:
    """The status that a failed call carries, as Go prints it."""
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and "Deadline Exceeded" in details:
        details = "context deadline exceeded"  # ours, not the plugin's: as Go's library says it
    return RpcError(go_name(code.name), details)


def translated(error: grpc.RpcError | grpc.FutureCancelledError | ValueError) -> RpcError:
    """What grpc raises for a call that failed, one on a closed channel among it."""
    if isinstance(error, grpc.RpcError):
        return rpc_error(error)
    # grpc raises ValueError for a call on a channel that was closed.
    return RpcError("Canceled", "grpc: the client connection is closing")


class Calls:
    """Calls on one channel. Messages go in and out as bytes, as the record keeps them.

    Without a tap nothing is recorded.
    """

    def __init__(
        self, channel: grpc.Channel, tap: CallRecorder | None, faults: PluginFaults | None = None
    ) -> None:
        self._channel = channel
        self._tap = tap
        self._faults = faults
        self._methods: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {}

    def make(
        self, path: str, request: bytes, timeout: float | None, read: Callable[[bytes], T]
    ) -> T:
        """Make a call and wait for its answer, with ``timeout`` None for ever. ``path`` is the
        method's, ``read`` makes the answer of its bytes. Raises ``RpcError``."""
        method = self._method(path)
        call = self.begin(path, request)
        try:
            if self._faults is None or not self._faults.registry.armed:
                response = method(request, timeout=timeout)
            else:
                with self._faults.around(_name(path), call, self._channel.close):
                    response = method(request, timeout=timeout)
        except _GRPC_ERRORS as error:
            raise _failed(call, translated(error)) from error
        except InjectedError as error:
            raise _failed(call, error) from None
        except BaseException:
            _failed(call, _GIVEN_UP)
            raise
        return _answer(response, read, call)

    async def wait_for(
        self, path: str, request: bytes, timeout: float | None, read: Callable[[bytes], T]
    ) -> T:
        """The same on the running event loop, without faults; a task that is cancelled cancels
        the call."""
        method = self._method(path)
        call = self.begin(path, request)
        future = None
        try:
            future = method.future(request, timeout=timeout)
            response = await _result_of(future)
        except _GRPC_ERRORS as error:
            raise _failed(call, translated(error)) from error
        except BaseException:
            _failed(call, _GIVEN_UP)
            raise
        finally:
            if future is not None:
                future.cancel()
        return _answer(response, read, call)

    def begin(self, path: str, request: bytes) -> CallInProgress | None:
        """Record the beginning of a call that somebody else makes."""
        return None if self._tap is None else self._tap.begin(_name(path), request)

    def _method(self, path: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        method = self._methods.get(path)
        if method is None:
            method = self._methods[path] = self._channel.unary_unary(path)
        return method


@cache
def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _answer(response: bytes, read: Callable[[bytes], T], call: CallInProgress | None) -> T:
    try:
        answer = read(response)
    except (DecodeError, UnicodeDecodeError) as error:
        failed = RpcError("Internal", "Exception deserializing response!")
        raise _failed(call, failed, response) from error
    if call is not None:
        call.answered(response)
    return answer


def _failed(
    call: CallInProgress | None, error: RpcError, response: bytes | None = None
) -> RpcError:
    if call is not None:
        call.failed(error.code, error.description, response)
    return error


async def _result_of(call: grpc.Future[bytes]) -> bytes:
    """Wait for a call's end on the running event loop. Raises what the call does."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def finish(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(wake)

    call.add_done_callback(finish)
    await done
    return call.result()
