"""Select gRPC's I/O engine for a command that runs a kubelet in its process."""

from __future__ import annotations

import os
from typing import Final

from devicemanager.io.own_packages import loaded

_VARIABLE: Final = "GRPC_EXPERIMENTS"
_WITHOUT_ENGINE: Final = "-event_engine_client,-event_engine_listener"


def use_calling_threads() -> None:
    """Import gRPC so that the calling threads do its I/O, without gRPC's event engine.

    With the engine, each call wakes two other threads. This function disables the engine: it sets
    ``GRPC_EXPERIMENTS`` during the import, because gRPC reads the variable only then. Afterwards it
    removes the variable, so that programs that the command starts do not inherit it. If the user
    has set the variable, or if gRPC is already imported, it does nothing.
    """
    if _VARIABLE in os.environ or loaded("grpc") is not None:
        return
    os.environ[_VARIABLE] = _WITHOUT_ENGINE
    try:
        import grpc  # noqa: F401
    finally:
        del os.environ[_VARIABLE]
