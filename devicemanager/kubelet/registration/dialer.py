"""Waiting until somebody serves gRPC on a plugin's socket, without a thread that waits.

gRPC can wait for a connection by itself, but only with a thread for each channel. So a
socket is tried by hand first: connect, send the beginning of an HTTP/2 connection, and see
whether the other side sends its own. Only then is there a channel.
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
"""Seconds that an attempt waits for an answer; they double with each that gets none."""
_FIRST_ATTEMPTS, _LATER_ATTEMPTS = 256, 128
"""How many sockets are held open at a time, by plugins that are new and by silent ones."""
_RESERVE = 64
"""File descriptors that are left alone, for the checkpoint and for admissions."""

_CREDENTIALS = struct.Struct("3i")


class DialError(EndpointError):
    """Nobody served the plugin's socket in time. The text says what was found there."""


class Dialer:
    """Waits for sockets to be served. Its methods run on one event loop.

    The number of sockets held open at a time is bounded. Those that stay silent queue apart
    from the new ones: a plugin that answers is never behind a thousand that do not.
    """

    def __init__(self) -> None:
        self._first = asyncio.Semaphore(_FIRST_ATTEMPTS)
        self._later = asyncio.Semaphore(_LATER_ATTEMPTS)

    async def dial(self, path: Path, seconds: float) -> int:
        """Wait until the socket is served; returns the server's process id, 0 if unknown.

        Raises DialError after ``seconds``, and not before: the kubelet's dialing goes on
        until then whatever is in the way (``grpc.WithBlock``, v1.32).
        """
        try:
            sockets.check_path(path)
        except SocketPathError as error:
            await asyncio.sleep(seconds)
            raise DialError(str(error)) from error
        attempt = Attempt(path)
        try:
            async with asyncio.timeout(seconds):
                return await self._repeat(attempt)
        except TimeoutError:
            raise DialError(attempt.found) from None

    async def _repeat(self, attempt: Attempt) -> int:
        wait = _FIRST_WAIT
        while True:
            async with self._later if attempt.was_silent else self._first:
                if await attempt.run():
                    return attempt.pid
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


def leaves_enough(descriptor: int, limit: int) -> bool:
    """Whether a process that may have ``limit`` descriptors keeps its reserve beside this one:
    64, or a quarter of few."""
    return descriptor < limit - min(_RESERVE, limit // 4)


class Attempt:
    """Attempts to reach one socket, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._patience = _FIRST_PATIENCE
        self.found = f"nobody has answered on {path}"
        """What the last attempt found, for people."""
        self.pid = 0

    @property
    def was_silent(self) -> bool:
        return self._patience > _FIRST_PATIENCE

    async def run(self) -> bool:
        """Try once; whether gRPC is served there."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                return self._may_open(peer) and self._connect(peer) and await self._greet(peer)
        except OSError as error:
            self.found = f"{self._path}: {error.strerror or error}"
            return False

    def _may_open(self, peer: socket.socket) -> bool:
        """Whether descriptors are left: the kernel always gives the lowest number."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if leaves_enough(peer.fileno(), limit):
            return True
        self.found = (
            f"{self._path}: not connected, since nearly all of {limit} file descriptors are in "
            "use: raise the limit (ulimit -n), or run fewer plugins"
        )
        return False

    def _connect(self, peer: socket.socket) -> bool:
        peer.setblocking(False)
        code = peer.connect_ex(str(self._path))
        if code:
            is_other = self._path.exists() and not self._path.is_socket()
            reason = "it is not a socket" if is_other else os.strerror(code)
            self.found = f"{self._path}: {reason}"
        return not code

    async def _greet(self, peer: socket.socket) -> bool:
        self.pid, _, _ = _CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        loop = asyncio.get_running_loop()
        answer = b""
        try:
            async with asyncio.timeout(self._patience):
                await loop.sock_sendall(peer, sockets.PREFACE)
                while len(answer) < sockets.FRAME_HEAD:
                    more = await loop.sock_recv(peer, sockets.FRAME_HEAD - len(answer))
                    if not more:
                        self.found = f"{self._path}: the connection was closed at once"
                        return False
                    answer += more
        except TimeoutError:
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
            self.found = f"{self._path}: it takes connections and says nothing"
            return False
        self.found = f"{self._path}: it does not speak HTTP/2"
        return sockets.is_settings(answer)
