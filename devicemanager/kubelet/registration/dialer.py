"""Wait until gRPC is served on a plugin's socket, without a thread per plugin.

Theory of operation. A plugin can call Register before it serves its own socket, so the kubelet
dials until a deadline. gRPC can wait for a connection, but needs a thread for each channel. So
the dialer tests the socket itself: connect, send the HTTP/2 preface, and check that the
response is a SETTINGS frame. Only then does the caller open a channel. Each attempt ends in
one of four ways:

1. The socket does not exist or refuses the connection: try again after a wait, which doubles.
2. The server closes the connection, or does not speak HTTP/2: the same.
3. The server accepts and stays silent: the same, and the next attempt waits longer for it.
4. The server sends SETTINGS: done. The socket's credentials name its process.

Silent sockets hold a file descriptor during each attempt, so attempts are limited by two
semaphores: one for new sockets, one for silent ones. A plugin that answers never queues behind
a thousand that do not. An attempt that would use the last file descriptors of the process is
skipped.

The result never depends on the cause: the kubelet reports its deadline in any case
(``grpc.WithBlock``, v1.32). ``DialError`` has the cause, for the kubelet's event.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
from pathlib import Path

from devicemanager.core.errors import EndpointError
from podresources import sockets
from podresources.errors import SocketPathError

_FIRST_WAIT, _LONGEST_WAIT = 0.005, 1.0
"""Seconds between attempts; they double."""
_FIRST_PATIENCE, _LONGEST_PATIENCE = 0.2, 5.0
"""Seconds that an attempt waits for a response; they double after each attempt without one."""
_FIRST_ATTEMPTS, _LATER_ATTEMPTS = 256, 128
"""Maximum number of concurrent attempts, for new sockets and for silent ones."""
_RESERVE = 64
"""File descriptors that dialing leaves free, for the checkpoint and for admissions."""

_CREDENTIALS = struct.Struct("3i")


class DialError(EndpointError):
    """The plugin's socket was not served in time. The text says why."""


class Dialer:
    """Dialer that waits for sockets to be served. Its methods must run on one event loop."""

    def __init__(self) -> None:
        self._first = asyncio.Semaphore(_FIRST_ATTEMPTS)
        self._later = asyncio.Semaphore(_LATER_ATTEMPTS)

    async def dial(self, path: Path, seconds: float) -> int:
        """Wait until the socket is served; return the server's process ID, or 0 if unknown.

        Raises DialError after ``seconds``, never earlier: the kubelet's dialing continues until
        then for any problem (``grpc.WithBlock``, v1.32).
        """
        try:
            sockets.check_path(path)
        except SocketPathError as error:
            # The kubelet fails at its deadline also for a path that can never work.
            await asyncio.sleep(seconds)
            raise DialError(str(error)) from error
        attempt = Attempt(path)
        try:
            async with asyncio.timeout(seconds):
                return await self._repeat(attempt)
        except TimeoutError:
            raise DialError(attempt.problem) from None

    async def _repeat(self, attempt: Attempt) -> int:
        wait = _FIRST_WAIT
        while True:
            # The semaphore is held only during an attempt, so that waiting plugins do not block
            # others.
            async with self._later if attempt.was_silent else self._first:
                if await attempt.run():
                    return attempt.pid
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


def leaves_enough(descriptor: int, limit: int) -> bool:
    """True if a process keeps enough free descriptors after it has opened this one.

    It keeps 64, or a quarter of a low ``limit``.
    """
    return descriptor < limit - min(_RESERVE, limit // 4)


class Attempt:
    """Attempts to reach one socket, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._patience = _FIRST_PATIENCE
        self.problem = f"no response on {path}"
        """Result of the last attempt, for people."""
        self.pid = 0

    @property
    def was_silent(self) -> bool:
        return self._patience > _FIRST_PATIENCE

    async def run(self) -> bool:
        """Try once. True if gRPC is served."""
        try:
            # A new socket per attempt: a failed connect leaves a unix socket in an undefined state.
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                return self._may_open(peer) and self._connect(peer) and await self._greet(peer)
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror or error}"
            return False

    def _may_open(self, peer: socket.socket) -> bool:
        """True if enough descriptors are free. The kernel always assigns the lowest number."""
        # Read each time: a test or the user can change the limit.
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if leaves_enough(peer.fileno(), limit):
            return True
        self.problem = (
            f"{self._path}: not connected, because nearly all of {limit} file descriptors are in "
            "use: raise the limit (ulimit -n), or run fewer plugins"
        )
        return False

    def _connect(self, peer: socket.socket) -> bool:
        # Connecting a unix socket never waits, except if the backlog is full: then it fails at
        # once.
        peer.setblocking(False)
        code = peer.connect_ex(str(self._path))
        if code:
            is_other = self._path.exists() and not self._path.is_socket()
            reason = "it is not a socket" if is_other else os.strerror(code)
            self.problem = f"{self._path}: {reason}"
        return not code

    async def _greet(self, peer: socket.socket) -> bool:
        # Read before the handshake: the process can close its end at any moment.
        self.pid, _, _ = _CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        loop = asyncio.get_running_loop()
        answer = b""
        try:
            async with asyncio.timeout(self._patience):
                await loop.sock_sendall(peer, sockets.PREFACE)
                while len(answer) < sockets.FRAME_HEAD:
                    # Only the frame's head: a server may send any amount of settings.
                    more = await loop.sock_recv(peer, sockets.FRAME_HEAD - len(answer))
                    if not more:
                        self.problem = f"{self._path}: the connection was closed at once"
                        return False
                    answer += more
        except TimeoutError:
            # Longer next time: the plugin may be slow to start, as a Python program is.
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
            self.problem = f"{self._path}: it accepts connections but does not respond"
            return False
        self.problem = f"{self._path}: it does not speak HTTP/2"
        return sockets.is_settings(answer)
