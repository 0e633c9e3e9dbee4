"""Cutting connections to one socket, and no others."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from devicemanager.kubelet.registration.fault_injection import drop_connections


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield server


@contextlib.contextmanager
def connected(server: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            yield client, accepted


def test_only_connections_of_the_socket_are_cut(directory: Path) -> None:
    with (
        listening(directory / "a") as cut,
        listening(directory / "b") as other,
        connected(cut) as (client, _),
        connected(other) as (far, near),
    ):
        assert drop_connections(directory / "a") == 1
        assert client.recv(1) == b""
        near.sendall(b"x")
        assert far.recv(1) == b"x"
        # The socket keeps listening, and later connections stay.
        with connected(cut) as (later, accepted):
            accepted.sendall(b"y")
            assert later.recv(1) == b"y"


TAKE = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'wb'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_file_locks_of_the_process_stay(directory: Path) -> None:
    """A process loses all locks of a file when it closes any descriptor of it.

    For example those of a test's database.
    """
    path = directory / "database"
    with path.open("wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        drop_connections(directory / "a")
        attempt = subprocess.run([sys.executable, "-IS", "-c", TAKE, path], capture_output=True)
    assert b"BlockingIOError" in attempt.stderr
