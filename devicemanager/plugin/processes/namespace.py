"""Private mounts for plugins with hard-coded paths: directories mounted at other paths.

Only this process and its descendants see the mounts, which disappear when the last of these
processes exits.

Mounting needs CAP_SYS_ADMIN. Without root, the process gets this capability in a new user
namespace, in which its user ID does not change.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from devicemanager.plugin.processes.mount_points import is_mount_point, lacking

__all__ = [
    "Bind",
    "NamespaceError",
    "enter",
    "enter_container",
    "enter_user",
    "mount",
    "node_binds",
    "replace_directory",
    "set_read_only",
]

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWPID = 0x2000_0000
_CLONE_NEWUSER = 0x1000_0000
_MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000

_MNT_DETACH = 2

_ROOT = Path("/")
_MOST_LINKS = 40  # as in Linux

_SWITCHES = (
    ("kernel.unprivileged_userns_clone", "0"),
    ("user.max_user_namespaces", "0"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
)
"""Sysctls that can prevent user namespaces without root, with the value that prevents them."""

_BASIC_NODES = ("full", "null", "ptmx", "pts", "random", "shm", "stdin", "stdout", "stderr", "fd")
_MORE_NODES = ("tty", "urandom", "zero")


class NamespaceError(Exception):
    """Failure to create private mounts. The text is one line with the reason and the fix."""


class Bind(NamedTuple):
    """Bind mount of the file or directory ``source`` at ``target``.

    For a directory, ``target`` need not exist. For a file, ``target`` must be an existing file.
    With the target ``/``, ``source`` becomes the root directory, and the targets of all other
    mounts are below it.
    """

    source: Path
    target: Path
    keep: tuple[str, ...] = ()
    """Names of files and directories in ``target`` that stay visible if ``source`` lacks them.

    Without this field, the mount would hide them. They are mounted on the empty entries that
    ``mount_points`` has created in ``source``. If ``mount_points`` could not create all entries,
    processes see a copy of ``source``, without later changes.
    """


def node_binds(
    root: Path, *, dev: Path | None = None, sys: Path | None = None, cdi: Path | None = None
) -> tuple[Bind, ...]:
    """Return mounts that show a mock kubelet's directory ``root`` at ``/var/lib/kubelet``.

    ``dev`` and ``sys`` are mounted at ``/dev`` and ``/sys``; common device nodes such as
    ``/dev/null`` stay visible. ``cdi`` is mounted at ``/etc/cdi`` and ``/var/run/cdi``.
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
    """Move the calling process to a private mount namespace, and mount ``binds`` there.

    The process must have a single thread. Raises NamespaceError if the move or a mount fails.
    """
    _unshare()
    try:
        # Otherwise the mounts would propagate back to the host's namespace.
        mount("none", "/", None, _MS_REC | _MS_PRIVATE)
        # Open all sources first: a mount can hide the path of a later source.
        sources = [_open_source(bind.source) for bind in binds]
        root = next((each.source for each in binds if each.target == _ROOT), _ROOT)
        for bind, source in zip(binds, sources, strict=True):
            if bind.target != _ROOT:
                _bind_at(Path(f"/proc/self/fd/{source}"), resolved(root, bind.target), bind.keep)
            os.close(source)
        if root != _ROOT:
            os.chroot(root)
            os.chdir("/")
    except OSError as error:
        raise NamespaceError(f"cannot create private mounts: {error}") from error


def _open_source(path: Path) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise NamespaceError(f"cannot mount {path}: {error}") from error


def _unshare() -> None:
    """Enter a new mount namespace; without CAP_SYS_ADMIN, also enter a new user namespace."""
    if os.geteuid() == 0:
        try:
            return _call("unshare", _CLONE_NEWNS)
        except PermissionError:
            pass  # root in a container without CAP_SYS_ADMIN
    _unshare_user(_CLONE_NEWNS)


def enter_user() -> None:
    """Move the calling process to a new user namespace with the same user and group.

    The process must have a single thread. Raises NamespaceError if the move fails.
    """
    _unshare_user(0)


def enter_container() -> None:
    """Move the calling process to new user and mount namespaces, in which it is root.

    The next child of the process is process 1 of a new PID namespace. On files of the host, root in
    the new namespaces has only the permissions of the calling user. The process must have a single
    thread. Raises NamespaceError if the move fails.
    """
    _unshare_user(_CLONE_NEWNS | _CLONE_NEWPID, as_root=True)
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def _unshare_user(further_flags: int, *, as_root: bool = False) -> None:
    uid, gid = os.geteuid(), os.getegid()
    try:
        _call("unshare", _CLONE_NEWUSER | further_flags)
        # The kernel requires `deny` before an unprivileged process can write gid_map. By default,
        # user and group are mapped to themselves, so the owners of files do not change. Root
        # without CAP_SETFCAP cannot write uid_map.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{0 if as_root else uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{0 if as_root else gid} {gid} 1")
    except OSError as error:
        raise NamespaceError(_rejection(error, uid)) from error


def _rejection(error: OSError, uid: int) -> str:
    advice = "run this as root" if uid else "add CAP_SYS_ADMIN, or run this as another user"
    for name, value in _SWITCHES:
        path = Path("/proc/sys", *name.split("."))
        try:
            if path.read_text().strip() == value:
                return (
                    f"cannot create a user namespace, because the sysctl {name} is {value}: change "
                    f"it, or {advice}"
                )
        except OSError:
            continue
    return f"cannot create a user namespace ({os.strerror(error.errno or 0)}): {advice}"


def resolved(root: Path, path: Path) -> Path:
    """Return the host path of the file that a process sees at ``path`` if its root is ``root``.

    All links are followed, because a link cannot be a mount point. For example, /var/run is a link
    to /run on most systems. Absolute links are relative to ``root``. Raises OSError for a loop of
    links.
    """
    found, links = root, 0
    left = [each for each in reversed(path.parts) if each != path.anchor]
    while left:
        part = left.pop()
        if part == "..":
            found = found.parent if found != root else root
        elif not (step := found / part).is_symlink():
            found = step
        else:
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            to = step.readlink()
            found = root if to.is_absolute() else found
            left += [each for each in reversed(to.parts) if each != to.anchor]
    return found


def _bind_at(source: Path, target: Path, keep: tuple[str, ...]) -> None:
    if keep:
        _bind_keeping(source, target, keep)
    elif target.exists():
        mount(str(source), str(target), None, _MS_BIND | _MS_REC)
    else:
        # A mount point is missing: replace the closest existing directory by a copy with it.
        ancestor = _existing_ancestor(target)
        _mirror(ancestor, [(ancestor, None)], make=target.relative_to(ancestor))
        mount(str(source), str(target), None, _MS_BIND | _MS_REC)


def _bind_keeping(source: Path, target: Path, keep: tuple[str, ...]) -> None:
    """Mount ``source`` at ``target``, where the entries ``keep`` stay visible."""
    entries = {path.name for path in source.iterdir()}
    points = {name for name in entries.intersection(keep) if is_mount_point(source / name)}
    if lacking(source, target, keep):
        return _mirror(target, [(source, tuple(sorted(entries - points))), (target, keep)])
    # Open the originals first, because the mount at `target` hides them.
    originals = {name: os.open(target / name, os.O_PATH | os.O_CLOEXEC) for name in points}
    mount(str(source), str(target), None, _MS_BIND | _MS_REC)
    for name, original in originals.items():
        mount(f"/proc/self/fd/{original}", str(target / name), None, _MS_BIND | _MS_REC)
        os.close(original)
    return None


def _existing_ancestor(path: Path) -> Path:
    for parent in path.parents:
        if parent.is_dir():
            return parent
        if parent.exists():
            raise NamespaceError(f"cannot mount at {path}: {parent} is not a directory")
    raise AssertionError("unreachable: the root directory always exists")


def _mirror(
    target: Path,
    layers: Sequence[tuple[Path, tuple[str, ...] | None]],
    make: Path | None = None,
) -> None:
    """Mount an in-memory directory with the entries of all layers at ``target``.

    A layer is a directory and the names of its entries to show; None shows all. An entry of an
    earlier layer hides entries of the same name in later layers. ``make``: the path of an empty
    directory to add, relative to ``target``.
    """
    stage = Path(tempfile.mkdtemp(prefix="dm-mounts-"))
    try:
        mount("tmpfs", str(stage), "tmpfs", 0, b"mode=0755")
        try:
            for layer, names in layers:
                entries = sorted(path.name for path in layer.iterdir())
                for name in entries if names is None else names:
                    _show(layer / name, stage / name)
            if make is not None:
                (stage / make).mkdir(parents=True, exist_ok=True)
            # Move the mount only when it is complete, because `target` can be one of the layers.
            mount(str(stage), str(target), None, _MS_MOVE)
        except BaseException:
            _call("umount2", os.fsencode(stage), _MNT_DETACH)
            raise
    finally:
        # After the move, the stage is an empty directory.
        stage.rmdir()


def replace_directory(target: Path, make: Path) -> None:
    """Mount a copy of the directory ``target`` over ``target``. The copy has one more directory.

    ``make`` is the path of this empty directory, relative to ``target``. The copy is in memory.
    """
    _mirror(target, [(target, None)], make=make)


def set_read_only(path: str, read_only: bool, *, recursive: bool = False) -> None:
    """Make a mount read-only or writable. Raises OSError; needs Linux 5.12."""
    flag = ctypes.c_uint64 * 4
    values = flag(_RDONLY, 0, 0, 0) if read_only else flag(0, _RDONLY, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.sizeof(values)
    arguments = (_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, ctypes.byref(values), size)
    _call("syscall", *arguments)


_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _RDONLY = 442, -100, 0x8000, 1


def _show(source: Path, target: Path) -> None:
    try:
        mode = source.lstat().st_mode
    except OSError:
        return
    if target.is_symlink() or target.exists():
        return
    # A symbolic link cannot be mounted, but a copy has the same target.
    if stat.S_ISLNK(mode):
        target.symlink_to(source.readlink())
        return
    if stat.S_ISDIR(mode):
        target.mkdir()
    else:
        target.touch()
    mount(str(source), str(target), None, _MS_BIND | _MS_REC)


def mount(source: str, target: str, kind: str | None, flags: int, data: bytes = b"") -> None:
    """Call mount(2). Raises OSError."""
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
