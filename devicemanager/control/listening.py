"""Sockets to serve HTTP on, and the token that a request over TCP has to show."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
from pathlib import Path
from typing import Final

from devicemanager.control.access import TcpAddress
from devicemanager.core.errors import StartError
from podresources import sockets
from podresources.errors import PodResourcesError

__all__ = ["BACKLOG", "listen_tcp", "listen_unix", "new_token"]

BACKLOG: Final = 1024
_MODE: Final = 0o600


def listen_unix(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    """A socket that only its owner may connect to; it goes with the stack. Raises StartError."""
    try:
        sockets.prepare(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stack.callback(listener.close)
        with sockets.published(path, mode=_MODE) as private:
            listener.bind(str(private))
            private.chmod(_MODE)  # before anybody can connect
            listener.listen(BACKLOG)
            identity = sockets.FileIdentity.of(private)
    except (OSError, PodResourcesError) as error:
        raise StartError(_text(error)) from error
    stack.callback(sockets.remove_if_same, path, identity)
    return listener


def listen_tcp(address: TcpAddress, stack: contextlib.ExitStack) -> socket.socket:
    """A listener on that address; it goes with the stack. Raises StartError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (address.host, address.port), family=family, backlog=BACKLOG
        )
    except OSError as error:
        raise StartError(f"cannot listen on {address}: {_reason(error)}") from error
    stack.callback(listener.close)
    return listener


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program does: choose another port (0: any that is free)"
    return os.strerror(error.errno) if error.errno else str(error)


def new_token(path: Path, stack: contextlib.ExitStack) -> str:
    """A new token, in a file of its own that only its owner may read; the file goes with the
    stack. Raises StartError."""
    token = secrets.token_urlsafe(32)
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with open(descriptor, "w") as file:  # noqa: PTH123  # a descriptor
            stack.callback(path.unlink, missing_ok=True)
            file.write(token + "\n")
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}") from error
    return token


def _text(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
