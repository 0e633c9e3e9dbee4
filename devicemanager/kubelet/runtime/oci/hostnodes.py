"""Read device nodes of the host: their types and numbers."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import attrs

__all__ = ["HostNode", "HostNodes", "read_nodes"]


_MOST_ENTRIES = 10_000


@attrs.frozen
class HostNode:
    """A device node of the host.

    ``type`` is ``c`` (character device), ``b`` (block device) or ``p`` (FIFO, without numbers).
    """

    type: str
    major: int = 0
    minor: int = 0
    mode: int = 0o666
    uid: int = 0
    gid: int = 0


HostNodes: TypeAlias = Callable[[str], Mapping[str, HostNode]]
"""Function that returns a mapping of the device nodes at or below a host path. Its keys are paths
relative to the host path; the key "" is the host path itself."""


def read_nodes(host_path: str) -> Mapping[str, HostNode]:
    """Return the device node at a host path, or all device nodes below a directory, by path.

    The keys are paths relative to ``host_path``; the key "" is ``host_path`` itself. Files of other
    types are left out. ``host_path`` can be a symbolic link, but links below a directory are not
    followed. Raises ``OSError`` if ``host_path`` does not exist, or if more than 10,000 files and
    directories are below it.
    """
    # stat, not lstat: /dev has links such as /dev/cdrom, and a runtime follows them.
    status = Path(host_path).stat()
    if not stat.S_ISDIR(status.st_mode):
        node = _node(status)
        return {"": node} if node else {}
    return dict(sorted(_below(Path(host_path))))


def _below(directory: Path) -> list[tuple[str, HostNode]]:
    nodes = []
    seen = 0
    for parent, directories, files in os.walk(directory):
        seen += len(directories) + len(files)
        # Checked during the walk, which would take minutes for a plugin that names /.
        if seen > _MOST_ENTRIES:
            raise OSError(
                errno.E2BIG, f"not a device directory: more than {_MOST_ENTRIES} files below it"
            )
        for file in files:
            path = Path(parent, file)
            try:
                node = _node(path.lstat())
            # A device can be removed from the host during the walk.
            except OSError:
                continue
            if node:
                nodes.append((str(path.relative_to(directory)), node))
    return nodes


def _node(status: os.stat_result) -> HostNode | None:
    mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
    # A FIFO has no device numbers and needs no rule of the device cgroup.
    if stat.S_ISFIFO(status.st_mode):
        return HostNode("p", 0, 0, mode, *owner)
    kind = {stat.S_IFCHR: "c", stat.S_IFBLK: "b"}.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return None
    return HostNode(kind, os.major(status.st_rdev), os.minor(status.st_rdev), mode, *owner)
