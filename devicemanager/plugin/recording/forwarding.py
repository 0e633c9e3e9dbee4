"""Answering a call by making it elsewhere, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from devicemanager.core.api.codes import go_name
from devicemanager.plugin.recording.calls import OK, EndedBy
from devicemanager.plugin.recording.writer import CallInProgress
from podresources import sockets

__all__ = ["CHANNEL_OPTIONS", "SERVER_OPTIONS", "Handlers", "forward"]

CHANNEL_OPTIONS = (
    *sockets.CHANNEL_OPTIONS,
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)
SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)

_OF_GRPC = ("user-agent", "grpc-", "content-type", "te", ":")
"""What metadata begins with that gRPC makes itself on each connection."""

_LONGEST_TIMEOUT = 365 * 86400.0

Answer = Callable[[str, bytes, grpc.ServicerContext], Iterator[bytes]]
"""Answers a call: the method's path, the request, the call's context."""


class Handlers(grpc.GenericRpcHandler):
    """Gives every method to one function.

    On the wire a single answer is a stream of one, so unary methods and streams of answers
    are served alike.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        def behaviour(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._answer(method, request, context)

        return grpc.unary_stream_rpc_method_handler(behaviour)


def forward(
    channel: grpc.Channel,
    method: str,
    request: bytes,
    context: grpc.ServicerContext,
    call: CallInProgress | None,
    answerer: Callable[[], EndedBy],
    asker: EndedBy,
) -> Iterator[bytes]:
    """Make the call on ``channel``: messages, metadata, deadline, cancellation and status
    pass through. ``call`` takes it all down; ``asker`` is who gave up if the answer did not
    end it, and ``answerer`` is asked who did if it has."""
    over = False

    def ended(code: str, message: str, ended_by: EndedBy) -> None:
        nonlocal over
        if not over and call is not None:
            call.ended(code, message, ended_by)
        over = True

    timeout = _timeout(context)
    metadata = _without_grpcs(context.invocation_metadata() or ())
    try:
        make: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(method)
        answers = make(request, timeout=timeout, metadata=metadata)
    except ValueError:  # what grpc raises on a channel that is closed
        ended("Unavailable", "the connection was closed", EndedBy.RECORDER)
        context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was closed")

    def cancel() -> None:
        answers.cancel()

    if not context.add_callback(cancel):
        cancel()
    try:
        first = True
        for answer in answers:
            if call is not None:
                call.received(answer)
            if first and (initial := _without_grpcs(answers.initial_metadata() or ())):
                context.send_initial_metadata(initial)
            first = False
            yield answer
    except grpc.RpcError as error:
        code, details = error.code(), error.details() or ""
        timed_out = code is grpc.StatusCode.DEADLINE_EXCEEDED and timeout is not None
        gave_up = timed_out or not context.is_active()
        ended(go_name(code.name), details, asker if gave_up else answerer())
        context.set_trailing_metadata(_without_grpcs(answers.trailing_metadata() or ()))
        context.abort(code, details)
    else:
        ended(OK, "", answerer())
        context.set_trailing_metadata(_without_grpcs(answers.trailing_metadata() or ()))
    finally:
        # The asker went away while an answer was on its way to it.
        cancel()
        ended("Canceled", "", asker)


def _timeout(context: grpc.ServicerContext) -> float | None:
    left = context.time_remaining()
    # Without a deadline grpc gives the seconds until the end of its clock.
    return None if left is None or left > _LONGEST_TIMEOUT else left


def _without_grpcs(metadata: Sequence[Any]) -> tuple[tuple[str, str | bytes], ...]:
    kept = ((key, value) for key, value in metadata)
    return tuple(
        (key, value)
        for key, value in kept
        if key == "grpc-status-details-bin" or not key.startswith(_OF_GRPC)
    )
