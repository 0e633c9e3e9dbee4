"""Record the file operations of this process on one directory. They are recorded below the code
under test."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tools.harness.model import Devices
from tools.power.disk import (
    Create,
    Flush,
    FlushDirectory,
    Mark,
    Operation,
    Remove,
    Rename,
    Truncate,
    Write,
)

_WRITING = os.O_WRONLY | os.O_RDWR


class Recording:
    """Recorded file operations, in order. ``mark`` is thread-safe."""

    def __init__(self, directory: Path) -> None:
        self.start = {
            path.name: path.read_bytes() for path in directory.iterdir() if _is_file(path)
        }
        """Contents of the files at the start, by name. They count as flushed."""
        self.operations: list[Operation] = []
        self._directory = os.path.realpath(directory)
        # Guards all fields. It is held during an operation, so that the recorded order is the real
        # one.
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        # The numbers are the same as in Disk.of.
        self._names = {name: -number for number, name in enumerate(sorted(self.start), 1)}
        self._files: dict[int, int] = {}
        self._directories: set[int] = set()
        self._real = {name: getattr(os, name) for name in _RECORDED}

    def mark(self, what: str, uid: str, devices: Devices = frozenset()) -> None:
        """Record that the kubelet has confirmed an allocation or termination."""
        with self._lock:
            self.operations.append(Mark(what, uid, devices))

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function of the module ``os``, and record the operation if it succeeds."""
        with self._lock:
            # Check whether the file exists before the operation creates it.
            existed = name == "open" and os.path.lexists(self._path(args[0], kwargs.get("dir_fd")))
            result = self._real[name](*args, **kwargs)
            getattr(self, f"_{name}")(result, existed, *args, **kwargs)
            return result

    def _path(self, path: Any, dir_fd: int | None = None) -> str:
        text = os.fsdecode(path) if not isinstance(path, int) else f"/proc/self/fd/{path}"
        base = Path(f"/proc/self/fd/{dir_fd}").readlink() if dir_fd is not None else Path()
        return str(base / text)

    def _name(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the file name within the directory; None if the path is elsewhere."""
        head, name = os.path.split(self._path(path, dir_fd))
        return name if os.path.realpath(head) == self._directory else None

    def _open(
        self, descriptor: int, existed: bool, path: Any, flags: int, *_: Any, **options: Any
    ) -> None:
        name = self._name(path, options.get("dir_fd"))
        if os.path.realpath(self._path(path, options.get("dir_fd"))) == self._directory:
            self._directories.add(descriptor)
        elif name is not None and flags & _WRITING:
            if not existed:
                self._names[name] = next(self._numbers)
                self.operations.append(Create(name, self._names[name]))
            if (number := self._names.get(name)) is not None:
                self._files[descriptor] = number
                if existed and flags & os.O_TRUNC:
                    self.operations.append(Truncate(number))

    def _close(self, _: None, __: bool, descriptor: int) -> None:
        self._files.pop(descriptor, None)
        self._directories.discard(descriptor)

    def _write(self, count: int, _: bool, descriptor: int, data: Any) -> None:
        if (number := self._files.get(descriptor)) is not None:
            self.operations.append(Write(number, bytes(data)[:count]))

    def _writev(self, count: int, _: bool, descriptor: int, pieces: Any) -> None:
        self._write(count, _, descriptor, b"".join(pieces))

    def _fsync(self, _: None, __: bool, descriptor: int) -> None:
        if (number := self._files.get(descriptor)) is not None:
            self.operations.append(Flush(number))
        elif descriptor in self._directories:
            self.operations.append(FlushDirectory())

    def _rename(self, _: None, __: bool, old: Any, new: Any, **options: Any) -> None:
        before = self._name(old, options.get("src_dir_fd"))
        after = self._name(new, options.get("dst_dir_fd"))
        if before is not None and after is not None and before in self._names:
            self._names[after] = self._names.pop(before)
            self.operations.append(Rename(before, after))

    def _unlink(self, _: None, __: bool, path: Any, **options: Any) -> None:
        name = self._name(path, options.get("dir_fd"))
        if name is not None and self._names.pop(name, None) is not None:
            self.operations.append(Remove(name))

    _fdatasync, _replace, _remove = _fsync, _rename, _unlink


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


_RECORDED = (
    *("open", "close", "write", "writev", "fsync", "fdatasync"),
    *("rename", "replace", "unlink", "remove"),
)


@contextmanager
def recording(directory: Path) -> Iterator[Recording]:
    """Record the operations of this process on an existing directory during a ``with`` block."""
    # Replace the functions of ``os``, so that the code under test cannot bypass the recording.
    found = Recording(directory)

    def recorded(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: found.call(name, *args, **kwargs)

    with ExitStack() as stack:
        for name in _RECORDED:
            stack.enter_context(mock.patch.object(os, name, recorded(name)))
        yield found
