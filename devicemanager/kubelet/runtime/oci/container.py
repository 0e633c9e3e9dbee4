"""Collect the edits of one container, and convert them to an OCI configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from devicemanager.core.printable import printable
from devicemanager.core.runoptions import Conflict, DeviceSpec, Mount
from devicemanager.kubelet.runtime.cdi.values import (
    CdiDeviceNode,
    CdiHook,
    CdiMount,
    ContainerEdits,
)
from devicemanager.kubelet.runtime.oci.checks import (
    OciError,
    check_annotation,
    check_env,
    check_interface,
    container_path,
    host_path,
    shown,
)
from devicemanager.kubelet.runtime.oci.hostnodes import HostNode, HostNodes

PLUGINS = "device plugins"
"""Name of the source of all settings from device plugins, in conflicts and errors."""


class ContainerConfig:
    """Collector of the settings of one container. The last source of a setting has precedence."""

    def __init__(self, nodes: HostNodes) -> None:
        self._nodes = nodes
        self.conflicts: list[Conflict] = []
        self.annotations: dict[str, str] = {}
        self._envs = Latest[str]("env", self.conflicts)
        self._mounts = Latest[dict[str, Any]]("mount", self.conflicts)
        self._devices = Latest[tuple[dict[str, Any], str]]("device", self.conflicts)
        self._interfaces = Latest[tuple[str, str]]("network interface", self.conflicts)
        self._hooks: dict[str, list[dict[str, Any]]] = {}
        self._gids: dict[int, None] = {}
        self._intel_rdt: dict[str, Any] = {}

    def annotate(self, source: str, key: str, value: str) -> None:
        check_annotation(source, key)
        self.annotations[key] = value

    def env(self, source: str, name: str, value: str) -> None:
        check_env(source, name, value)
        self._envs.put(source, name, value, f"{name}={value}")

    def bind(self, source: str, mount: Mount) -> None:
        """Add a bind mount with the options ``rbind`` and ``rprivate``, as CRI runtimes do."""
        access = "ro" if mount.read_only else "rw"
        edit = CdiMount(
            host_path=host_path(source, "a mount", mount.host_path),
            container_path=mount.container_path,
            options=("rbind", "rprivate", access),
        )
        self.mount(source, edit)

    def mount(self, source: str, mount: CdiMount) -> None:
        destination = container_path(source, "a mount", mount.container_path)
        value: dict[str, Any] = {
            "destination": destination,
            "type": mount.type,
            "source": mount.host_path,
        }
        if mount.options:
            value["options"] = list(mount.options)
        self._mounts.put(source, destination, mount.host_path, value)

    def device(self, device: DeviceSpec) -> None:
        """Add a device node, or all device nodes below a directory.

        A path without device nodes, such as a path in sysfs, is added as a mount.
        """
        permissions = device.permissions
        inside = container_path(PLUGINS, "a device", device.container_path)
        outside = host_path(PLUGINS, "a device", device.host_path)
        if not permissions or set(permissions) - set("rwm"):
            raise OciError(
                f"device {printable(inside)}: invalid permissions {shown(permissions)}: "
                "use some of r, w and m"
            )
        nodes = self._read(inside, outside)
        # For a directory such as /dev/snd, every device node below it is added.
        for below, node in nodes.items():
            path, source = (f"{p}/{below}" if below else p for p in (inside, outside))
            value = _oci_device(path, node)
            self._devices.put(PLUGINS, path, source, (value, permissions))
        # Container runtimes mount a regular file or a directory without device nodes.
        if not nodes:
            self.bind(
                PLUGINS,
                Mount(
                    container_path=inside,
                    host_path=outside,
                    read_only="w" not in permissions,
                ),
            )

    def _read(self, device: str, path: str) -> Mapping[str, HostNode]:
        try:
            return self._nodes(path)
        except OSError as error:
            what = f"device {printable(device)}: {printable(path)} on the host"
            raise OciError(f"{what}: {error.strerror or error}") from error

    def interface(self, source: str, host_name: str, name: str) -> None:
        check_interface(source, host_name)
        check_interface(source, name)
        self._interfaces.put(source, host_name, name, (host_name, name))
        # Two interfaces cannot have the same name in the container.
        self._interfaces.drop_other_keys(source, host_name, name)

    def edit(self, source: str, edits: ContainerEdits) -> None:
        """Apply the edits of a CDI device; ``source`` is its name, for conflicts and errors."""
        for env in edits.env:
            name, _, value = env.partition("=")
            self.env(source, name, value)
        for node in edits.device_nodes:
            device = self._cdi_device(source, node)
            self._devices.put(source, device["path"], node.host_path, (device, node.permissions))
        for mount in edits.mounts:
            self.mount(source, mount)
        for interface in edits.net_devices:
            self.interface(source, interface.host_interface_name, interface.name)
        for hook in edits.hooks:
            self._hooks.setdefault(hook.name, []).append(_oci_hook(hook))
        self._gids.update(dict.fromkeys(edits.additional_gids))
        self._intel_rdt.update(edits.intel_rdt or {})

    def _cdi_device(self, source: str, edit: CdiDeviceNode) -> dict[str, Any]:
        # The CDI file has all fields: the host does not need to have the device node.
        if edit.type == "p" or (edit.type and edit.major is not None):
            node = HostNode(edit.type, edit.major or 0, edit.minor or 0)
        else:
            outside = host_path(source, "a device", edit.host_path)
            actual = self._read(f"{edit.path} of {source}", outside).get("")
            if actual is None or edit.type not in (None, actual.type):
                wanted = f" of type {edit.type}" if edit.type else ""
                raise OciError(
                    f"{source}: {edit.host_path} on the host is not a device node{wanted}"
                )
            node = actual
        # Unlike for a plugin's device, only the numbers of a CDI device come from the host.
        own = {"fileMode": edit.file_mode, "uid": edit.uid, "gid": edit.gid}
        inside = container_path(source, "a device", edit.path)
        device = {**_oci_device(inside, node), **own}
        return {key: value for key, value in device.items() if value is not None}

    def config(self) -> dict[str, Any]:
        granted = [value for value in self._devices.values() if value[0]["type"] != "p"]
        # A runtime mounts first, and creates no device node at a path that exists. It allows
        # access to the device in any case.
        self._devices.drop_shadowed(self._mounts)
        interfaces = {host: {"name": name} for host, name in self._interfaces.values()}
        # Parent directories come first; otherwise they would hide the mounts below them.
        mounts = sorted(self._mounts.values(), key=lambda m: str(m["destination"]).count("/"))
        return _pruned(
            {
                "process": {
                    "env": self._envs.values(),
                    "user": {"additionalGids": list(self._gids)},
                },
                "mounts": mounts,
                "hooks": self._hooks,
                "annotations": self.annotations,
                "linux": {
                    "devices": [device for device, _ in self._devices.values()],
                    "resources": {"devices": [_rule(*value) for value in granted]},
                    "netDevices": interfaces,
                    "intelRdt": self._intel_rdt,
                },
            }
        )


def _oci_device(path: str, node: HostNode) -> dict[str, Any]:
    numbers = {} if node.type == "p" else {"major": node.major, "minor": node.minor}
    owner = {"fileMode": node.mode, "uid": node.uid, "gid": node.gid}
    return {"path": path, "type": node.type, **numbers, **owner}


def _rule(device: Mapping[str, Any], access: str) -> dict[str, Any]:
    # The device cgroup has no type for unbuffered character devices.
    kind = "c" if device["type"] == "u" else device["type"]
    numbers = {"major": device["major"], "minor": device["minor"]}
    return {"allow": True, "type": kind, **numbers, "access": access}


def _oci_hook(hook: CdiHook) -> dict[str, Any]:
    given = {"args": list(hook.args), "env": list(hook.env), "timeout": hook.timeout}
    return {"path": hook.path, **{key: value for key, value in given.items() if value}}


def _pruned(config: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the configuration without empty fields, at any depth."""
    pruned = {k: _pruned(v) if isinstance(v, dict) else v for k, v in config.items()}
    return {key: value for key, value in pruned.items() if value not in ({}, [])}


_T = TypeVar("_T")


class Latest(Generic[_T]):
    """Table of the settings of one kind, such as mounts. It keeps the last value for each key.

    Each value has a source and a text, which the reports of conflicts show. If a new value replaces
    a value with a different text, a conflict is appended to ``conflicts``.
    """

    def __init__(self, kind: str, conflicts: list[Conflict]) -> None:
        self._kind = kind
        self._conflicts = conflicts
        self._entries: dict[str, tuple[str, str, _T]] = {}
        # The key of each text, so that the time is linear in the number of values.
        self._keys: dict[str, str] = {}

    def put(self, source: str, key: str, text: str, value: _T) -> None:
        if key in self._entries:
            self._drop(key, Conflict(self._kind, key, source, text, *self._entries[key][:2]))
        self._entries[key] = (source, text, value)

    def drop_other_keys(self, source: str, key: str, text: str) -> None:
        """Drop an entry with the text ``text`` if its key is not ``key``.

        For example, two host interfaces (keys) cannot have the same name in the container (text).
        """
        other = self._keys.get(text, key)
        # The other key may have a new text by now.
        if other != key and other in self._entries and self._entries[other][1] == text:
            loser = self._entries[other][0]
            self._drop(other, Conflict(self._kind, text, source, key, loser, other))
        self._keys[text] = key

    def drop_shadowed(self, winners: Latest[Any]) -> None:
        """Drop every key that is also in the table ``winners``, whose values have precedence.

        If the values of a key have different texts in the two tables, append a conflict to
        ``conflicts``.
        """
        for key in sorted(self._entries.keys() & winners._entries.keys()):
            winner, text, _ = winners._entries[key]
            self._drop(key, Conflict(self._kind, key, winner, text, *self._entries[key][:2]))

    def _drop(self, key: str, conflict: Conflict) -> None:
        del self._entries[key]
        if conflict.kept_value != conflict.dropped_value:
            self._conflicts.append(conflict)

    def values(self) -> list[_T]:
        return [value for _, _, value in self._entries.values()]
