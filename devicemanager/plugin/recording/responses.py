"""Find the recorded response to a request, or the most similar recorded request.

Device IDs are compared as sets, because a kubelet sends them in any order. A request that was
recorded several times gets the recorded responses in turn, then always the last response.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import attrs
from google.protobuf.message import DecodeError

from devicemanager.plugin.recording.calls import RecordedCall, request_data
from protos import deviceplugin_v1beta1 as dp

__all__ = ["Miss", "RecordedResponses"]

_SHOWN = 16

Key = tuple[object, ...]


@attrs.frozen
class Miss:
    """Request that was not recorded, with the most similar recorded request."""

    rpc: str
    """Name of the method, such as ``Allocate``."""
    request_bytes: bytes = attrs.field(repr=False)
    nearest_bytes: bytes | None = attrs.field(repr=False)
    """The most similar recorded request, serialized; None if the method was never called."""

    @property
    def request(self) -> dict[str, Any]:
        """Decoded request, with the field names of the .proto file."""
        return request_data(self.rpc, self.request_bytes)

    @property
    def nearest(self) -> dict[str, Any] | None:
        """The most similar recorded request, decoded; None if the method was never called."""
        if self.nearest_bytes is None:
            return None
        return request_data(self.rpc, self.nearest_bytes)

    def __str__(self) -> str:
        text = f"{self.rpc}{_shown(self.rpc, self.request_bytes)} was not recorded"
        if self.nearest_bytes is None:
            return f"{text}; no {self.rpc} was recorded"
        return f"{text}; most similar: {self.rpc}{_shown(self.rpc, self.nearest_bytes)}"


class RecordedResponses:
    """Recorded calls of one resource's plugin, by request. Thread-safe."""

    def __init__(self, calls: Iterable[RecordedCall]) -> None:
        # Guards the queues of calls. `take` removes calls, except the last one of a queue.
        self._lock = threading.Lock()
        self._calls: defaultdict[tuple[str, Key], list[RecordedCall]] = defaultdict(list)
        for call in calls:
            self._calls[call.rpc, _key(call.rpc, call.request_bytes)].append(call)

    def take(self, rpc: str, request: bytes) -> RecordedCall | None:
        """Return the next recorded call with this request; None if the request was not recorded."""
        with self._lock:
            queue = self._calls.get((rpc, _key(rpc, request)))
            if queue is None:
                return None
            # Keep the last call, because a request can be made more often than it was recorded.
            return queue.pop(0) if len(queue) > 1 else queue[0]

    def miss(self, rpc: str, request: bytes) -> Miss:
        """Return a ``Miss`` for a request that was not recorded."""
        requested = _terms(rpc, request)
        # Needs no lock, because `take` leaves at least one call in every queue.
        recorded = [calls[0] for (name, _), calls in self._calls.items() if name == rpc]
        # The request with the fewest differing IDs and numbers is the most useful hint.
        nearest = min(
            recorded,
            key=lambda call: len(requested ^ _terms(rpc, call.request_bytes)),
            default=None,
        )
        return Miss(rpc, request, None if nearest is None else nearest.request_bytes)


def _key(rpc: str, request: bytes) -> Key:
    try:
        match rpc:
            case "Allocate":
                # Containers are not sorted: the response has one entry for each, in this order.
                allocate = dp.AllocateRequest.FromString(request)
                return tuple(tuple(sorted(c.devices_ids)) for c in allocate.container_requests)
            case "GetPreferredAllocation":
                preferred = dp.PreferredAllocationRequest.FromString(request)
                return tuple(
                    (
                        tuple(sorted(c.available_deviceIDs)),
                        tuple(sorted(c.must_include_deviceIDs)),
                        c.allocation_size,
                    )
                    for c in preferred.container_requests
                )
            case "PreStartContainer":
                return tuple(sorted(dp.PreStartContainerRequest.FromString(request).devices_ids))
    except DecodeError:
        pass
    # Other methods, and requests that cannot be decoded, are compared byte by byte.
    return (request,)


def _terms(rpc: str, request: bytes) -> frozenset[str]:
    """Return the terms of a request. Two requests are similar if few of their terms differ.

    A term is a device ID or a number, with its field and the index of its container.
    """
    return frozenset(
        f"{index} {field} {value}"
        for index, container in enumerate(_containers(rpc, request))
        for field, values in container.items()
        for value in (values if isinstance(values, list) else [values])
    )


def _shown(rpc: str, request: bytes) -> str:
    return f" of {'; '.join(map(_container, _containers(rpc, request))) or 'nothing'}"


def _containers(rpc: str, request: bytes) -> list[dict[str, Any]]:
    data = request_data(rpc, request)
    return list(data.get("container_requests", [data]))


def _container(requested: dict[str, Any]) -> str:
    text = _ids([*requested.get("devices_ids", ()), *requested.get("available_deviceIDs", ())])
    if "allocation_size" in requested:
        text = f"{requested['allocation_size']} of {text}"
    if must := requested.get("must_include_deviceIDs"):
        text += f" with {_ids(must)}"
    return text


def _ids(ids: list[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"{', '.join(sorted(ids)[:_SHOWN])}{more}" or "nothing"
