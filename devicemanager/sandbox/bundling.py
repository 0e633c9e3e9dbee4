"""The OCI configuration of a container that runs without root."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Bundle", "bundle"]

Config = dict[str, Any]

_ENV = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "TERM=xterm")
_MOUNT_TYPES = ("", "bind", "none", "tmpfs")


@attrs.frozen
class Bundle:
    """OCI configuration of a container that runs without root, and notes on its restrictions."""

    config: Config
    """Contents of ``config.json`` in an OCI bundle."""
    notes: tuple[str, ...] = ()
    """Mounts, device nodes and other settings that are left out or restricted, one line each."""


def bundle(fragment: Mapping[str, Any], command: Sequence[str], rootfs: Path = Path("/")) -> Bundle:
    """Return the configuration of a container that runs a command.

    ``fragment`` is the part of an OCI configuration that ``kubelet.runtime.oci`` renders.
    ``rootfs`` is mounted read-only. Device nodes become bind mounts of the host's device nodes,
    because only root can create device nodes.
    """
    notes: list[str] = []
    mounts = [*_mounts(fragment, notes), *_devices(fragment, notes)]
    notes += _left_out(fragment)
    env = {text.partition("=")[0]: text for text in _ENV}
    # The fragment's variables replace defaults of the same name.
    env |= {text.partition("=")[0]: text for text in fragment.get("process", {}).get("env", ())}
    config: Config = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(command),
            "env": list(env.values()),
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": str(rootfs), "readonly": True},
        "mounts": mounts,
        "annotations": dict(fragment.get("annotations", {})),
        # The other namespaces are those of the process that starts the runtime.
        "linux": {"namespaces": [{"type": "mount"}]},
    }
    if hooks := fragment.get("hooks"):
        config["hooks"] = hooks
    return Bundle(config, tuple(notes))


def _mounts(fragment: Mapping[str, Any], notes: list[str]) -> Iterator[dict[str, Any]]:
    for mount in fragment.get("mounts", ()):
        kind = mount.get("type") or ""
        if kind not in _MOUNT_TYPES:
            notes.append(f"mount {mount['destination']} is left out: only root can mount {kind}")
        elif kind != "tmpfs" and (problem := _problem(Path(mount["source"]))):
            notes.append(f"mount {mount['destination']} is left out: {mount['source']} {problem}")
        else:
            yield _mount(mount, kind)


def _problem(source: Path) -> str:
    """Return why the source of a mount cannot be used; empty if it can."""
    try:
        source.stat()
    except PermissionError:
        return f"is not accessible to user {os.getuid()}"
    except OSError:
        return "is missing"
    return ""


def _mount(mount: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if kind == "tmpfs":
        return dict(mount)
    options = list(mount.get("options", ()))
    # The OCI specification recognizes a bind mount by this option, not by its type.
    if not {"bind", "rbind"} & set(options):
        options.append("rbind")
    return {**mount, "type": "bind", "options": options}


def _devices(fragment: Mapping[str, Any], notes: list[str]) -> Iterator[dict[str, Any]]:
    for device in fragment.get("linux", {}).get("devices", ()):
        path = device["path"]
        # A named pipe has no device number by which the host's node could be found.
        if device["type"] == "p":
            notes.append(f"device node {path} is left out: it is a named pipe")
            continue
        source = _host_node(device)
        if source is None:
            notes.append(f"device node {path} is left out: only root can create it")
            continue
        if not os.access(source, os.R_OK | os.W_OK):
            mode = stat.filemode(source.stat().st_mode)
            notes.append(f"device node {path} is {mode}: user {os.getuid()} cannot open it")
        yield {
            "destination": path,
            "type": "bind",
            "source": str(source),
            "options": ["bind", "rw", "nosuid"],
        }


def _host_node(device: Mapping[str, Any]) -> Path | None:
    """Return the path of a host device node with the type, major and minor number of ``device``.

    Return None if there is none.
    """
    # The host usually has the node at the same path, so a search of /dev is rarely necessary.
    same = Path(device["path"])
    return next((each for each in (same, *_nodes(Path("/dev"))) if _is_node(each, device)), None)


def _nodes(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory):
        yield from (Path(parent, name) for name in names)


def _is_node(path: Path, device: Mapping[str, Any]) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    # `u`, an unbuffered device, is another name for a character device.
    kinds = {"c": stat.S_ISCHR, "u": stat.S_ISCHR, "b": stat.S_ISBLK}
    wanted = os.makedev(device.get("major", 0), device.get("minor", 0))
    return kinds[device["type"]](found.st_mode) and found.st_rdev == wanted


def _left_out(fragment: Mapping[str, Any]) -> Iterator[str]:
    for name in fragment.get("linux", {}).get("netDevices", {}):
        yield f"network interface {name} is left out: only root can move it"
    if fragment.get("linux", {}).get("intelRdt"):
        yield "intelRdt is left out: only root can set it"
    for gid in fragment.get("process", {}).get("user", {}).get("additionalGids", ()):
        # A process keeps its own groups when it enters a user namespace.
        if gid not in os.getgroups():
            yield f"group {gid} is left out: only root can join it"
