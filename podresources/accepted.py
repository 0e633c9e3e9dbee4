"""Find connections that a gRPC server has accepted on a unix socket, and disconnect them.

gRPC can end a call or a whole server, but not a single connection. Therefore this module duplicates
the descriptor of a connection, and shuts the duplicate down. To gRPC, the client has then
disconnected, so gRPC frees all memory for this client.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import grpc

_DESCRIPTORS: Final = Path("/proc/self/fd")
PATIENCE: Final = 1.0
"""Seconds after which a client that has not read its responses may be disconnected. A client on the
same machine needs less time, even for large responses."""
_LOOKS: Final = 10
"""Number of checks of a socket before its client is disconnected."""
_CALLS: Final = 1024
"""Minimum number of calls between two searches. gRPC needs about 7 KB for a call that has ended,
but whose client does not read."""


def disconnect(bound: Path) -> int:
    """Disconnect all clients of a socket, and return their number. The socket keeps listening.

    ``bound`` is the path to which the socket is bound.
    """
    with contextlib.ExitStack() as stack:
        # Find all connections before the first shutdown: a client may reconnect immediately, and
        # its new connection must stay.
        accepted = [stack.enter_context(each) for _, each in _accepted(bound)]
        for each in accepted:
            _shut_down(each)
        return len(accepted)


class Readers:
    """Watchdog of a gRPC server: disconnects clients that do not read responses. Thread-safe."""

    def __init__(self, bound: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.bound = bound
        """Path to which the server's socket was bound. Clients may connect to another path."""
        self._clock = clock
        self._calls = count(1)
        self._searched = 0  # number of the call that started the last search
        self._next = float("-inf")  # time of the next search
        self._stopped = threading.Event()
        # Guards the thread, of which there is at most one.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def handler(self, inner: grpc.GenericRpcHandler) -> grpc.GenericRpcHandler:
        """Return a handler that counts all calls, even of unknown methods, and passes them to
        ``inner``."""
        return _Counting(self, inner)

    def count_call(self) -> None:
        """Count a call. At most once per 1,024 calls and once per second, start a thread that
        disconnects clients that do not read their responses."""
        number = next(self._calls)
        if number - self._searched < _CALLS or self._clock() < self._next:
            return
        with self._lock:
            if number - self._searched < _CALLS:
                return  # another call was faster
            if self._stopped.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._searched, self._next = number, self._clock() + PATIENCE
            self._thread = threading.Thread(target=self.disconnect, name="readers", daemon=True)
            # RuntimeError: no thread can be started. A later search may have more luck.
            with contextlib.suppress(RuntimeError):
                self._thread.start()

    def disconnect(self) -> int:
        """Disconnect clients that have not read for a second. Return the number of these clients.

        Takes a second if a client's socket stays full.
        """
        try:
            return disconnect_unread(self.bound, PATIENCE, self._stopped.wait)
        except OSError:  # no descriptors are left
            return 0

    def stop(self) -> None:
        """End the search for clients that do not read, and wait for its thread."""
        self._stopped.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.join()


class _Counting(grpc.GenericRpcHandler):
    def __init__(self, readers: Readers, inner: grpc.GenericRpcHandler) -> None:
        self._readers, self._inner = readers, inner

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        self._readers.count_call()
        return self._inner.service(handler_call_details)


def disconnect_unread(bound: Path, seconds: float, wait: Callable[[float], object]) -> int:
    """Disconnect those clients of a socket that do not read their responses; return their number.

    ``bound`` is the path to which the socket is bound. The connections are checked several times
    during ``seconds``. A client is disconnected if its connection is full at every check. ``wait``
    is called with the seconds to wait between checks.
    """
    # Numbers, not duplicates: duplicates would need as many descriptors as all connections.
    full, poller = dict[int, int](), select.poll()
    for number, each in _accepted(bound):
        with each:
            full[number] = _inode(each)
            poller.register(number, select.POLLOUT)
    for _ in range(_LOOKS):
        # With a limit of 0, poll returns descriptors that are writable or closed.
        for number, _ in poller.poll(0):
            poller.unregister(number)
            del full[number]
        if not full:
            return 0
        wait(seconds / _LOOKS)
    disconnected = 0
    for number, each in _accepted(bound):
        with each:
            # Another connection may have the number of a closed one.
            if _inode(each) == full.get(number):
                _shut_down(each)
                disconnected += 1
    return disconnected


def _accepted(bound: Path) -> Iterator[tuple[int, socket.socket]]:
    """Yield the connections that were accepted on ``bound``: their descriptors, and duplicates that
    the caller must close."""
    found = set[int]()
    for entry in list(_DESCRIPTORS.iterdir()):
        number = int(entry.name)
        each = _socket(number)
        if each is None:
            continue
        # A duplicate can get the number with which the directory was read.
        if _is_connection(each, str(bound)) and (inode := _inode(each)) not in found:
            found.add(inode)
            yield number, each
        else:
            each.close()


def _inode(each: socket.socket) -> int:
    return os.fstat(each.fileno()).st_ino


def _socket(number: int) -> socket.socket | None:
    """Return a duplicate of a file descriptor if it is a socket; otherwise None.

    Returns None also if another thread closes the descriptor.
    """
    try:
        # Closing a duplicate of a file's descriptor would release the process's locks on that file.
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return None
        copy = os.dup(number)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


def _is_connection(each: socket.socket, bound: str) -> bool:
    # Accepted sockets have the name of the socket that accepted them.
    if each.family != socket.AF_UNIX or each.getsockname() != bound:
        return False
    return not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


def _shut_down(each: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the client has closed it already
        each.shutdown(socket.SHUT_RDWR)
