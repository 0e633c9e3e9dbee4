"""Floods of files in the directories that the kubelet watches."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from functools import partial
from pathlib import Path

from tools.attack.beside import beside
from tools.attack.model import Attack, Target

_SECONDS = 6.0


def attacks() -> list[Attack]:
    """Where sockets are looked for, and where plugins put theirs."""
    return [
        beside(
            "watcher-flood",
            "files, directories, links and sockets come and go in plugins_registry",
            lambda target: _flood(target.registry),
        ),
        beside(
            "plugins-flood",
            "files, directories, links and sockets come and go in device-plugins",
            lambda target: _flood(target.plugin_dir),
        ),
        beside(
            "watcher-deep",
            "5,000 directories within each other's in plugins_registry",
            partial(_nested, count=5000),
        ),
    ]


def _flood(directory: Path) -> None:
    end = time.monotonic() + _SECONDS
    number = 0
    while time.monotonic() < end:
        number += 1
        name = directory / f"flood-{number % 3000}"
        with contextlib.suppress(OSError):
            _MAKE[number % len(_MAKE)](name)
        if number % 3000 == 0:
            _clear(directory)
    _clear(directory)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))


def _link(path: Path) -> None:
    path.symlink_to(path.name)


_MAKE = (Path.touch, Path.mkdir, os.mkfifo, _link, _socket)


def _clear(directory: Path) -> None:
    for path in directory.glob("flood-*"):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _nested(target: Target, count: int) -> None:
    top = target.registry / "flood-deep"
    for number in range(count):
        directory = top / f"{number % 100}" / f"{number}"
        directory.mkdir(parents=True, exist_ok=True)
        _socket(directory / "s")
    time.sleep(2)
    shutil.rmtree(top)
