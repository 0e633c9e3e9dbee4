"""Planted bugs in the start of a kubelet, its directories and its output."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

from tools.harness.planted import on_undo, planted, replace, set_to


@planted("a link is followed")
def _links() -> None:
    from devicemanager.kubelet import directories

    set_to(directories, "_FLAGS", directories._FLAGS & ~os.O_NOFOLLOW)


@planted("any directory is used")
def _writable() -> None:
    from devicemanager.kubelet import directories

    without = type("Stat", (), {**vars(stat), "S_IWOTH": 0})
    set_to(directories, "stat", without)


@planted("leftovers stay")
def _leftovers() -> None:
    from podresources import sockets

    replace(sockets.is_private_name, lambda name: False)


@planted("the mode follows the umask")
def _mode() -> None:
    replace(Path.chmod, lambda self, mode, follow_symlinks=True: None)


@planted("the error does not name descriptors")
def _descriptors() -> None:
    from devicemanager.core.errors import StartError
    from devicemanager.kubelet import lifecycle, limits

    # Without the check, later errors name the descriptors, too.
    def check() -> None:
        try:
            limits.check_descriptors()
        except StartError:
            raise StartError("the kubelet cannot start") from None

    set_to(lifecycle, "check_descriptors", check)


@planted("too many descriptors are needed")
def _too_many() -> None:
    from devicemanager.kubelet import limits

    set_to(limits, "_DESCRIPTORS", 64)


@planted("memory is not checked")
def _memory() -> None:
    from devicemanager.kubelet import lifecycle

    set_to(lifecycle, "check_address_space", lambda: None)


@planted("output blocks the kubelet")
def _output() -> None:
    from devicemanager.cli import standard_output

    def put(self: Any, text: str) -> None:
        self._write(text.encode())

    replace(standard_output.OutputQueue.put, put)


@planted("a child stops its parent")
def _fork() -> None:
    from devicemanager.kubelet import directories

    set_to(directories, "os", _AnyProcess())


class _AnyProcess:
    """The module ``os`` with one process ID for all processes."""

    def __getattr__(self, name: str) -> Any:
        return (lambda: 1) if name == "getpid" else getattr(os, name)


@planted("files are removed")
def _removed() -> None:
    from devicemanager.kubelet.directories import OwnedDirectory

    set_to(OwnedDirectory, "sockets", OwnedDirectory.files)


@planted("threads have large stacks")
def _stacks() -> None:
    import threading

    on_undo(partial(threading.stack_size, threading.stack_size(256 << 20)))
