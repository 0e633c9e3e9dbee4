"""Wait until gRPC is served on a plugin's socket, without a thread per plugin.

Theory of operation. A plugin can call Register before it serves its own socket, so the kubelet
dials until a deadline. gRPC can wait for a connection, but needs a thread for each channel.
Therefore the dialer tests the socket itself: it connects, sends the HTTP/2 preface, and checks
that the response is a SETTINGS frame. The caller opens a channel only after that. An attempt has
one of four results:

1. The socket does not exist or refuses the connection: try again after a wait, which doubles.
2. The server closes the connection, or does not speak HTTP/2: try again after the wait.
3. The server accepts but sends nothing: try again after the wait, with a longer timeout.
4. The server sends SETTINGS: success. The socket's credentials contain the server's process ID.

An attempt with a silent server uses a file descriptor until its timeout, so two semaphores limit
the attempts: one for new sockets, one for silent servers. So even a thousand silent servers do not
delay a plugin that responds. An attempt that would use the last file descriptors of the process is
skipped.

The error for the plugin does not depend on the cause: the kubelet always reports its deadline
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
"""The first and the longest wait between two attempts to connect, in seconds. The wait doubles
after each attempt."""
_FIRST_PATIENCE, _LONGEST_PATIENCE = 0.2, 5.0
"""The first and the longest timeout of an attempt to connect, in seconds. The timeout doubles each
time the server does not respond."""
_FIRST_ATTEMPTS, _LATER_ATTEMPTS = 256, 128
"""Maximum numbers of concurrent attempts to connect: first for new sockets, then for sockets whose
server did not respond."""
_RESERVE = 64
"""File descriptors that dialing leaves free, for the checkpoint and for admissions."""

_CREDENTIALS = struct.Struct("3i")


class DialError(EndpointError):
    """Error for a plugin socket that was not served in time; its text has the cause."""


class Dialer:
    """Dialer of plugin sockets. All calls of ``dial`` must run on one event loop."""

    def __init__(self) -> None:
        self._first = asyncio.Semaphore(_FIRST_ATTEMPTS)
        self._later = asyncio.Semaphore(_LATER_ATTEMPTS)

    async def dial(self, path: Path, seconds: float) -> int:
        """Wait until gRPC is served on a socket. Return the server's process ID, or 0 if unknown.

        Raises DialError if gRPC is still not served after ``seconds``. The kubelet, too, retries
        after every error until its deadline (``grpc.WithBlock``, v1.32).
        """
        try:
            sockets.check_path(path)
        except SocketPathError as error:
            # The kubelet fails at its deadline even for a path that can never work.
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
    """True if enough file descriptors are free after ``descriptor`` was opened.

    ``limit`` is the number of file descriptors that the process can have. At least 64 of these, or
    a quarter if ``limit`` is below 256, must stay free.
    """
    return descriptor < limit - min(_RESERVE, limit // 4)


class Attempt:
    """Repeated attempts to connect to one socket, with a growing timeout."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._patience = _FIRST_PATIENCE
        self.problem = f"no response on {path}"
        """Error of the last failed attempt, as a readable text."""
        self.pid = 0

    @property
    def was_silent(self) -> bool:
        return self._patience > _FIRST_PATIENCE

    async def run(self) -> bool:
        """Make one attempt. Return True if gRPC is served on the socket."""
        try:
            # Every attempt has a new socket: a failed connect leaves it in an undefined state.
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                return self._may_open(peer) and self._connect(peer) and await self._greet(peer)
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror or error}"
            return False

    def _may_open(self, peer: socket.socket) -> bool:
        """True if enough file descriptors are free.

        The kernel assigns the lowest free number. A high number of ``peer`` therefore means that
        few descriptors are free.
        """
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
        # Connecting a unix socket without blocking succeeds or fails immediately, also if the
        # backlog is full.
        peer.setblocking(False)
        code = peer.connect_ex(str(self._path))
        if code:
            is_other = self._path.exists() and not self._path.is_socket()
            reason = "it is not a socket" if is_other else os.strerror(code)
            self.problem = f"{self._path}: {reason}"
        return not code

    async def _greet(self, peer: socket.socket) -> bool:
        # Read before the handshake, because the process can close its end at any moment.
        self.pid, _, _ = _CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        loop = asyncio.get_running_loop()
        answer = b""
        try:
            async with asyncio.timeout(self._patience):
                await loop.sock_sendall(peer, sockets.PREFACE)
                while len(answer) < sockets.FRAME_HEAD:
                    # Read only the frame's header: a server may send any amount of settings.
                    more = await loop.sock_recv(peer, sockets.FRAME_HEAD - len(answer))
                    if not more:
                        self.problem = f"{self._path}: the connection was closed at once"
                        return False
                    answer += more
        except TimeoutError:
            # Wait longer next time: the plugin may be slow to start, like a Python program.
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
            self.problem = f"{self._path}: it accepts connections but does not respond"
            return False
        self.problem = f"{self._path}: it does not speak HTTP/2"
        return sockets.is_settings(answer)
