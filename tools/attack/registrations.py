"""Attack registration: plugins that never respond, too many plugins, hostile names and
directories."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc

from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.attack import http2
from tools.attack.beside import beside
from tools.attack.files import stale_socket
from tools.attack.model import Limits, Target
from tools.attack.plugins import LIMIT, HostilePlugin, channel, device, register, storm

_BAD = 1000
_MANY = 990
_WATCHED = 200
_SECONDS = 20.0
_PATIENCE = 90.0
"""Seconds after which no more resources are registered."""
_DESCRIPTORS_PER_CALL = 3
_PER_PROCESS = 100
"""Default value of ``Settings.max_registrations_per_process``."""
_WAITING = Limits(threads=100, descriptors=_BAD * _DESCRIPTORS_PER_CALL)


# -- no response -----------------------------------------------------------------------


def _requests(endpoints: Iterable[str]) -> Iterator[dp.RegisterRequest]:
    for number, endpoint in enumerate(endpoints):
        yield dp.RegisterRequest(
            version="v1beta1", endpoint=endpoint, resource_name=f"bad.example.com/r{number}"
        )


@beside("register-no-socket", f"{_BAD} plugins without a socket", _WAITING)
def _absent(target: Target) -> None:
    storm(target, _requests(f"absent-{number}.sock" for number in range(_BAD)), _SECONDS)


@beside("register-fifo", f"{_BAD} plugins whose socket is a FIFO", _WAITING)
def _fifo(target: Target) -> None:
    names = [f"fifo-{number}" for number in range(_BAD)]
    for name in names:
        os.mkfifo(target.plugin_dir / name)
    storm(target, _requests(names), _SECONDS)


@beside("register-silent", f"{_BAD} plugins that accept connections and send nothing", _WAITING)
def _silent(target: Target) -> None:
    with silence(target.plugin_dir / "silent.sock"):
        storm(target, _requests(["silent.sock"] * _BAD), _SECONDS)


@beside(
    "register-no-options",
    f"{_BAD} registrations of a plugin that never returns its options",
    Limits(threads=_PER_PROCESS + 50, descriptors=_BAD * _DESCRIPTORS_PER_CALL),
)
def _no_options(target: Target) -> None:
    never = threading.Event()

    def options() -> bytes:
        never.wait()
        return b""

    path = target.plugin_dir / "no-options.sock"
    with HostilePlugin(path, lambda: iter(()), options=options, workers=2 * _BAD):
        storm(target, _requests([path.name] * _BAD), _SECONDS)


@contextmanager
def silence(path: Path) -> Iterator[None]:
    """Listen on a socket during a ``with`` block, accept every connection, and send nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(4096)
        threading.Thread(target=_accept, args=(listening,), daemon=True).start()
        yield


def _accept(listening: socket.socket) -> None:
    # Stored in a list: without a reference, Python would close the connections.
    accepted = []
    with contextlib.suppress(OSError):
        while True:
            accepted.append(listening.accept())


@beside(
    "watcher-silent",
    f"{_WATCHED} silent sockets in plugins_registry, where the good plugin registers, too",
    Limits(descriptors=_WATCHED + 100),
    comes="announce",
)
def _watched(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(_WATCHED):
            stack.enter_context(silence(target.registry / f"silent-{number}.sock"))
        time.sleep(_SECONDS)


# -- too many --------------------------------------------------------------------------


@beside(
    "register-990",
    f"one plugin registers {_MANY} resources",
    Limits(threads=_MANY // 2, descriptors=2 * _MANY),
)
@beside(
    "register-990-few-descriptors",
    f"one plugin registers {_MANY} resources, the kubelet has 128 descriptors, 20 registrations "
    "a process",
    descriptors=128,
    settings={"max_registrations_per_process": 20},
)
def _many(target: Target) -> None:
    path = target.plugin_dir / "many.sock"
    # A kubelet without free descriptors answers no call, so that each one would take its timeout.
    end = time.monotonic() + _PATIENCE

    def one(number: int) -> None:
        with contextlib.suppress(grpc.RpcError):
            if time.monotonic() < end:
                register(target, path.name, f"many.example.com/r{number}")

    with HostilePlugin(path, lambda: iter([device(b"d")]), workers=2000):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(_MANY)))
        time.sleep(3)


# -- names -----------------------------------------------------------------------------


def _names(target: Target, names: Iterable[str]) -> None:
    with channel(target) as connection:
        stub = dp_grpc.RegistrationStub(connection)
        for name in names:
            for request in (
                dp.RegisterRequest(version="v1beta1", endpoint="e.sock", resource_name=name),
                dp.RegisterRequest(version=name, endpoint="e.sock", resource_name="a.b/c"),
                dp.RegisterRequest(version="v1beta1", endpoint=name, resource_name="a.b/c"),
            ):
                with contextlib.suppress(grpc.RpcError):
                    stub.Register(request, timeout=_SECONDS)


class _Long:
    """Iterable of 66 different resource names of almost 4 MiB. Each name is created on demand,
    because together the names are large."""

    def __iter__(self) -> Iterator[str]:
        for number in range(66):
            yield f"{number:04}" + "x" * (LIMIT - 1024)


class _Control:
    """Iterable of resource names with 100 control characters."""

    def __iter__(self) -> Iterator[str]:
        for number in range(500):
            yield f"{number}" + "\x1b]0;\x07\r\n\x00\u202e\x9b" * 10


_long, _control = _Long(), _Control()


@beside(
    "register-gzip",
    "registrations of 60 MB, 0.06 MB after gzip",
)
def _gzip(target: Target) -> None:
    request = dp.RegisterRequest(version="v1beta1", resource_name="x" * 60_000_000)
    # Compressed before it connects: the kubelet closes idle connections after a few seconds.
    frames = http2.compressed(1, dp_grpc.REGISTER, request.SerializeToString())
    for _ in range(3):
        with http2.connect(target.registration, http2.PREFACE + http2.settings()) as connection:
            connection.settimeout(None)
            connection.sendall(frames)
            http2.wait_for_end(connection)


beside("names-4mb", "200 registrations with names of 4 MB", Limits(memory=200.0, kept=150.0))(
    partial(_names, names=_long)
)
beside("names-control", "names with control characters")(partial(_names, names=_control))


# -- directories -----------------------------------------------------------------------

_FLOOD_SECONDS = 6.0


def _flood(directory: Path) -> None:
    end = time.monotonic() + _FLOOD_SECONDS
    number = 0
    while time.monotonic() < end:
        number += 1
        name = directory / f"flood-{number % 3000}"
        with contextlib.suppress(OSError):
            _MAKE[number % len(_MAKE)](name)
        # Clear the directory, because later all names would already exist.
        if number % 3000 == 0:
            _clear(directory)
    _clear(directory)


def _link(path: Path) -> None:
    # The link leads to itself: the kubelet must not follow it.
    path.symlink_to(path.name)


_MAKE = (Path.touch, Path.mkdir, os.mkfifo, _link, stale_socket)


def _clear(directory: Path) -> None:
    for path in directory.glob("flood-*"):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _nested(target: Target, count: int) -> None:
    top = target.registry / "flood-deep"
    for number in range(count):
        directory = top / f"{number % 100}" / f"{number}"
        directory.mkdir(parents=True, exist_ok=True)
        stale_socket(directory / "s")
    time.sleep(2)
    shutil.rmtree(top)


beside(
    "watcher-deep",
    "5,000 nested directories in plugins_registry, where the good plugin registers, too",
    comes="announce",
)(partial(_nested, count=5000))
_FILES = "files, directories, links and sockets are created and removed in"
beside(
    "watcher-flood",
    f"{_FILES} plugins_registry, where the good plugin registers, too",
    comes="announce",
)(lambda target: _flood(target.registry))
beside("plugins-flood", f"{_FILES} device-plugins")(lambda target: _flood(target.plugin_dir))
