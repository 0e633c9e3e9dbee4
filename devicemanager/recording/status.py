"""Status codes by the names that Go gives them, as the kubelet's logs and events do."""

from __future__ import annotations

import grpc

__all__ = ["code_of", "go_name"]


def go_name(code: grpc.StatusCode) -> str:
    """``DeadlineExceeded``, ``Canceled``."""
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    if code is grpc.StatusCode.OK:
        return "OK"
    return "".join(part.capitalize() for part in code.name.split("_"))


_CODES = {go_name(code): code for code in grpc.StatusCode}


def code_of(name: str) -> grpc.StatusCode:
    """The code of a name; UNKNOWN for one that there is not."""
    return _CODES.get(name, grpc.StatusCode.UNKNOWN)
