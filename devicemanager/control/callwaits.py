"""Waiting for a call between kubelet and plugin: shape, handler, and the client's part."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from devicemanager.control import convert, shapes
from devicemanager.control.shapes import Seconds
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.matching import Mark
from devicemanager.kubelet.arguments import check_seconds

if TYPE_CHECKING:
    from devicemanager.control.operation import Request
    from devicemanager.kubelet.mock import MockKubelet

__all__ = ["CallWait", "RemoteCallWaits", "wait_for_call"]

_Part = Annotated[dict[str, Any] | None, Meta(description="it has at least this")]


class CallWait(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Until the next call that matches has ended."""

    resource: str | None = None
    rpc: Annotated[str | None, Meta(description="the method, such as Allocate")] = None
    plugin: Annotated[str | None, Meta(description="of this endpoint")] = None
    device_ids: Annotated[
        list[str] | None, Meta(description="that asks for exactly these devices")
    ] = None
    request: _Part = None
    response: _Part = None
    code: Annotated[str | None, Meta(description="with this status code, such as OK")] = None
    since: Annotated[
        Mark | None,
        Meta(description="later than this: latest_event and latest_call of the node; null: now"),
    ] = None
    bytes: Annotated[bool, Meta(description="with the messages as they were, in base64")] = False
    timeout: Seconds = 10.0


def wait_for_call(kubelet: MockKubelet, request: Request) -> shapes.Call:
    wanted: CallWait = request.body
    found = kubelet.wait_for_call(
        wanted.resource,
        rpc=wanted.rpc,
        plugin=wanted.plugin,
        device_ids=wanted.device_ids,
        request=wanted.request,
        response=wanted.response,
        code=wanted.code,
        since=wanted.since,
        timeout=request.timeout,
    )
    return convert.call(found, with_bytes=wanted.bytes)


class RemoteCallWaits:
    """See ``KubeletWaits``."""

    if TYPE_CHECKING:

        def ask(self, name: str, *, body: object = None, timeout: float = 0.0) -> Any: ...

    def wait_for_call(
        self,
        resource: str | None = None,
        *,
        rpc: str | None = None,
        plugin: str | None = None,
        device_ids: Collection[str] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        code: str | None = None,
        where: Callable[[Call], bool] | None = None,
        since: Mark | None = None,
        timeout: float = 10.0,
    ) -> Call:
        from devicemanager.events.calls.matching import CallFilter

        # Whatever is no criterion is rejected here, as it is there.
        wanted = CallFilter(resource, rpc, plugin, device_ids, request, response, code)
        check_seconds(timeout)
        end = time.monotonic() + timeout
        while True:
            body = CallWait(
                resource=resource,
                rpc=rpc,
                plugin=plugin,
                device_ids=None if wanted.device_ids is None else sorted(wanted.device_ids),
                request=None if request is None else dict(request),
                response=None if response is None else dict(response),
                code=code,
                since=since,
                bytes=True,
                timeout=timeout,
            )
            call = convert.call_from(self.ask("waitForCall", body=body, timeout=timeout))
            # A function is of this process.
            if where is None or where(call):
                return call
            since, timeout = Mark(call.after_event, call.number), max(0.0, end - time.monotonic())
