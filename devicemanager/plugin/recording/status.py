"""Status codes by the names that Go gives them."""

from __future__ import annotations

import grpc

from devicemanager.core.api.codes import go_name

__all__ = ["code_of"]

_CODES = {go_name(code.name): code for code in grpc.StatusCode}


def code_of(name: str) -> grpc.StatusCode:
    """The code of a name; UNKNOWN for one that there is not."""
    return _CODES.get(name, grpc.StatusCode.UNKNOWN)
