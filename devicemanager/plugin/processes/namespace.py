"""A private view of the file system: directories that appear under other paths.

For plugins whose paths are hard-coded. The mounts are seen by this process and what it
starts, and by nobody else; they go with the last of them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

__all__ = ["Bind", "NamespaceError", "enter", "enter_user", "node_binds"]

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
_MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000

_SWITCHES = (
    ("kernel.unprivileged_userns_clone", "0"),
    ("user.max_user_namespaces", "0"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
)
"""The sysctls that keep an ordinary user from making a user namespace, and at which value."""

_BASIC_NODES = ("full", "null", "ptmx", "pts", "random", "shm", "stdin", "stdout", "stderr", "fd")
_MORE_NODES = ("tty", "urandom", "zero")


class NamespaceError(Exception):
    """The private view cannot be made; one line that says why and what to do."""


@attrs.frozen
class Bind:
    """``source`` is seen at ``target``, which need not exist."""

    source: Path
    target: Path
    keep: tuple[str, ...] = ()
    """Entries of the real ``target`` that stay visible where ``source`` has none."""


def node_binds(
    root: Path, *, dev: Path | None = None, sys: Path | None = None, cdi: Path | None = None
) -> tuple[Bind, ...]:
    """What a plugin needs in order to find ``root`` where a node has its kubelet's directory.

    ``dev`` and ``sys`` stand in for ``/dev`` and ``/sys``; the common nodes such as
    ``/dev/null`` stay. ``cdi`` is seen at ``/etc/cdi`` and ``/var/run/cdi``.
    """
    binds = [Bind(root, Path("/var/lib/kubelet"))]
    if dev is not None:
        binds.append(Bind(dev, Path("/dev"), _BASIC_NODES + _MORE_NODES))
    if sys is not None:
        binds.append(Bind(sys, Path("/sys")))
    if cdi is not None:
        binds += [Bind(cdi, Path("/etc/cdi")), Bind(cdi, Path("/var/run/cdi"))]
    return tuple(binds)


def enter(binds: Sequence[Bind]) -> None:
    """Give the calling process a private view with these directories.

    Must be called from a process with one thread. Raises NamespaceError.
    """
    _unshare()
    try:
        _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
        # Opened all before the first is bound, which may cover the path of another.
        sources = [_open_directory(bind.source) for bind in binds]
        for bind, source in zip(binds, sources, strict=True):
            _bind_at(Path(f"/proc/self/fd/{source}"), bind)
            os.close(source)
    except OSError as error:
        raise NamespaceError(f"cannot make private mounts: {error}") from error


def _open_directory(path: Path) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NamespaceError(f"{path}: not a directory that can be shown: {error}") from error


def _unshare() -> None:
    """A mount namespace of our own; where that needs privileges, inside a user namespace."""
    if os.geteuid() == 0:
        try:
            return _call("unshare", _CLONE_NEWNS)
        except PermissionError:
            pass  # root of a container without CAP_SYS_ADMIN
    _unshare_user(_CLONE_NEWNS)


def enter_user() -> None:
    """Give the calling process a user namespace of its own, in which it is who it was.

    Must be called from a process with one thread. Raises NamespaceError.
    """
    _unshare_user(0)


def _unshare_user(besides: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    try:
        _call("unshare", _CLONE_NEWUSER | besides)
    except OSError as error:
        raise NamespaceError(_rejection(error)) from error
    # The same user inside as outside: files stay whose they are.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _rejection(error: OSError) -> str:
    for name, value in _SWITCHES:
        path = Path("/proc/sys", *name.split("."))
        try:
            if path.read_text().strip() == value:
                return (
                    f"the kernel lets no ordinary user make a namespace: {name} is {value}; "
                    "have it changed, or run this as root"
                )
        except OSError:
            continue
    return (
        f"the kernel rejects a user namespace ({os.strerror(error.errno or 0)}): run this as root"
    )


def _bind_at(source: Path, bind: Bind) -> None:
    target = Path(os.path.realpath(bind.target))
    if bind.keep:
        _mirror(target, [(source, None), (target, bind.keep)])
    elif target.is_dir():
        _mount(str(source), str(target), None, _MS_BIND | _MS_REC)
    else:
        there = _existing_ancestor(target)
        inside = target.relative_to(there)
        _mirror(there, [(there, None)], make=inside)
        _mount(str(source), str(target), None, _MS_BIND | _MS_REC)


def _existing_ancestor(path: Path) -> Path:
    for parent in path.parents:
        if parent.is_dir():
            return parent
        if parent.exists():
            raise NamespaceError(f"{path} cannot be shown: {parent} is not a directory")
    raise AssertionError("the root directory exists")


def _mirror(
    target: Path,
    layers: Sequence[tuple[Path, tuple[str, ...] | None]],
    make: Path | None = None,
) -> None:
    """Cover ``target`` with a directory in memory that has the entries of all layers, the
    first layer's first: of each those that are named, None for all."""
    stage = Path(tempfile.mkdtemp(prefix="dm-mounts-"))
    try:
        _mount("tmpfs", str(stage), "tmpfs", 0, b"mode=0755")
        for layer, names in layers:
            entries = sorted(path.name for path in layer.iterdir())
            for name in entries if names is None else names:
                _show(layer / name, stage / name)
        if make is not None:
            (stage / make).mkdir(parents=True)
        _mount(str(stage), str(target), None, _MS_MOVE)
    finally:
        stage.rmdir()


def _show(source: Path, target: Path) -> None:
    try:
        mode = source.lstat().st_mode
    except OSError:
        return
    if target.is_symlink() or target.exists():
        return
    if stat.S_ISLNK(mode):
        target.symlink_to(source.readlink())
        return
    if stat.S_ISDIR(mode):
        target.mkdir()
    else:
        target.touch()
    _mount(str(source), str(target), None, _MS_BIND | _MS_REC)


def _mount(source: str, target: str, kind: str | None, flags: int, data: bytes = b"") -> None:
    _call(
        "mount",
        source.encode(),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data or None,
    )


def _call(name: str, *args: object) -> None:
    function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*args) != 0:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number), name)
