"""Disconnecting clients of one socket, and no others."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from podresources import Allocatable, ContainerDevices, MemorySource, accepted, server
from podresources.accepted import Readers, disconnect, disconnect_unread
from podresources.backlog import Backlog
from tests.timing import Clock
from tools.attack import http2


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
        assert disconnect(directory / "a") == 1
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
        disconnect(directory / "a")
        attempt = subprocess.run([sys.executable, "-IS", "-c", TAKE, path], capture_output=True)
    assert b"BlockingIOError" in attempt.stderr


# -- clients that do not read ----------------------------------------------------------------


def fill(each: socket.socket) -> None:
    """Send until the client's socket is full."""
    each.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            each.send(bytes(1 << 16))


def read(client: socket.socket) -> bool:
    """Read all bytes. Return True if the server has disconnected."""
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while client.recv(1 << 16):
            pass
        return True
    return False


def test_clients_that_do_not_read_are_disconnected(directory: Path) -> None:
    with (
        listening(directory / "a") as one,
        listening(directory / "b") as other,
        connected(one) as (unread, full),
        connected(one) as (quiet, _),
        connected(other) as (far, near),
    ):
        fill(full)
        fill(near)
        waits: list[float] = []
        assert disconnect_unread(directory / "a", 2.0, waits.append) == 1
        assert sum(waits) == pytest.approx(2.0)
        assert read(unread) and not read(quiet) and not read(far)


def test_clients_that_read_meanwhile_stay(directory: Path) -> None:
    with listening(directory / "a") as one, connected(one) as (client, full):
        fill(full)
        assert disconnect_unread(directory / "a", 1.0, lambda _: read(client)) == 0
        assert not read(client)


def test_new_connection_with_the_number_of_an_old_one_stays(directory: Path) -> None:
    with (
        listening(directory / "a") as one,
        connected(one) as (_, old),
        connected(one) as (client, new),
    ):
        fill(old)

        def replace(seconds: float) -> None:
            fill(new)
            os.dup2(new.fileno(), old.fileno())

        assert disconnect_unread(directory / "a", 1.0, replace) == 0
        assert not read(client)


def is_disconnected(client: socket.socket, seconds: float) -> bool:
    """True if the server disconnects within ``seconds``. Nothing is read."""
    poller = select.poll()
    poller.register(client, select.POLLRDHUP)
    return bool(poller.poll(seconds * 1000))


def test_every_1024_calls_but_once_a_second_clients_are_searched(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Path] = []
    monkeypatch.setattr(accepted, "disconnect_unread", lambda bound, *_: found.append(bound))
    clock = Clock()
    readers = Readers(directory / "a", clock)

    def calls(count: int) -> int:
        for _ in range(count):
            readers.count_call()
        if readers._thread is not None:
            readers._thread.join()
        return len(found)

    assert calls(1023) == 0
    assert calls(1) == 1
    assert calls(1024) == 1  # a second has not passed
    clock.now = 1.0
    assert calls(1) == 2
    clock.now = 2.0
    assert calls(1023) == 2
    readers.stop()
    assert calls(1) == 2
    assert found == [directory / "a"] * 2


def test_stop_ends_a_search(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepted, "PATIENCE", 1e6)
    with listening(directory / "a") as one, connected(one) as (_, full):
        fill(full)
        readers = Readers(directory / "a", lambda: 0.0)
        for _ in range(1024):
            readers.count_call()
        thread = readers._thread
        assert thread is not None and thread.is_alive()
        readers.stop()
        assert not thread.is_alive()


def test_search_without_descriptors_has_no_effect(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(accepted, "disconnect_unread", fails)
    assert Readers(directory / "a").disconnect() == 0


def test_calls_of_unknown_methods_count(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[None] = []
    readers = Readers(Path("/none"))
    monkeypatch.setattr(readers, "count_call", lambda: counted.append(None))
    handler = readers.handler(grpc.method_handlers_generic_handler("a.B", {}))
    assert handler.service(SimpleNamespace(method="/a.B/None")) is None
    assert len(counted) == 1


def test_server_disconnects_client_whose_responses_are_dropped(
    serve: Callable[..., object], socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC stores the responses of cancelled calls until their client has disconnected."""
    monkeypatch.setattr(server, "Backlog", partial(Backlog, limit_bytes=1 << 20, patience=0.0))
    monkeypatch.setattr(accepted, "PATIENCE", 0.1)
    devices = ContainerDevices("vendor.com/gpu", tuple(f"{n:0100}" for n in range(6000)))
    serve(MemorySource((), Allocatable((devices,))))
    method = "/v1.PodResourcesLister/GetAllocatableResources"
    first = http2.PREFACE + http2.widest_window() + http2.call(1, method)
    streams = count(3, 2)
    with http2.connect(socket_path, first) as unread:
        # The second response of more than half a MiB does not fit beside the first.
        while not is_disconnected(unread, 0.0):
            with http2.connect(socket_path, first) as reader:
                http2.wait_for_end(reader)
            # If the socket was not full yet, only the call was cancelled.
            with contextlib.suppress(OSError):
                unread.sendall(http2.call(next(streams), method))
