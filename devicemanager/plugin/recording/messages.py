"""Messages of the recorded methods as data, those of unknown methods included."""

from __future__ import annotations

import base64
from typing import Any

from devicemanager.events.calls import rendering

__all__ = ["LIST_AND_WATCH", "REGISTER", "is_known", "request_data", "response_data"]

REGISTER = "Register"
LIST_AND_WATCH = "ListAndWatch"


def is_known(rpc: str) -> bool:
    """Whether the API has such a method."""
    return rpc in rendering.RPCS


def request_data(rpc: str, request: bytes) -> dict[str, Any]:
    """A request as data; see ``RecordedCall.request``."""
    return rendering.request_data(rpc, request) if is_known(rpc) else _undecodable(request)


def response_data(rpc: str, response: bytes) -> dict[str, Any]:
    """A response as data; see ``RecordedCall.response``."""
    return rendering.response_data(rpc, response) if is_known(rpc) else _undecodable(response)


def _undecodable(content: bytes) -> dict[str, Any]:
    return {"undecodable": base64.b64encode(content).decode()}
