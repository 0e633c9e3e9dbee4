"""Convert pods and containers to NRI messages, and apply the changes that plugins request.

This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import attrs

from devicemanager.core.pods import Pod
from devicemanager.core.runoptions import DeviceSpec, Mount, RunOptions
from protos import nri_v1alpha1 as nri

__all__ = ["adjust", "adjusted_options", "container_message", "pod_message", "shown"]

_T = TypeVar("_T")
_REMOVED = "-"
"""First character of a key or a path in an adjustment that removes an entry."""


def pod_message(pod: Pod, sandbox: str) -> nri.PodSandbox:
    """Return the NRI message that describes a pod. ``sandbox`` is the ID of the pod's sandbox."""
    return nri.PodSandbox(id=sandbox, name=pod.name, uid=pod.uid, namespace=pod.namespace)


def container_message(
    name: str, container_id: str, sandbox: str, config: Mapping[str, Any]
) -> nri.Container:
    """Return the NRI message that describes a container.

    ``sandbox`` is the ID of the pod's sandbox. ``config`` is the part of the container's OCI
    configuration that results from its device settings.
    """
    linux = nri.LinuxContainer(
        devices=[_device_message(each) for each in config.get("linux", {}).get("devices", ())]
    )
    return nri.Container(
        id=container_id,
        pod_sandbox_id=sandbox,
        name=name,
        annotations=config.get("annotations", {}),
        env=config.get("process", {}).get("env", ()),
        mounts=[_mount_message(each) for each in config.get("mounts", ())],
        linux=linux,
    )


def _device_message(device: Mapping[str, Any]) -> nri.LinuxDevice:
    names = ("path", "type", "major", "minor")
    return nri.LinuxDevice(**{name: device[name] for name in names if name in device})


def _mount_message(mount: Mapping[str, Any]) -> nri.Mount:
    names = ("destination", "type", "source", "options")
    return nri.Mount(**{name: mount[name] for name in names if mount.get(name)})


def adjust(container: nri.Container, change: nri.ContainerAdjustment) -> None:
    """Apply a plugin's adjustment (``change``) to ``container``, the message of a new container."""
    _put(container.env, [f"{each.key}={each.value}" for each in change.env], _name)
    _put(container.mounts, change.mounts, lambda each: each.destination)
    _put(container.linux.devices, change.linux.devices, lambda each: each.path)
    for key, value in change.annotations.items():
        container.annotations.pop(key.removeprefix(_REMOVED), None)
        if not key.startswith(_REMOVED):
            container.annotations[key] = value
    container.CDI_devices.extend(change.CDI_devices)
    # Merged, not replaced: a plugin sets only some of the fields. The others keep the values of
    # the plugins before it.
    container.linux.resources.MergeFrom(change.linux.resources)


def _name(entry: str) -> str:
    return entry.partition("=")[0]


def _put(entries: Any, changes: Collection[_T], key: Callable[[_T], str]) -> None:
    """Add the changes to the entries. A change replaces the entry with the same key; a change with
    the key ``-KEY`` removes the entry ``KEY``."""
    gone = {key(each).removeprefix(_REMOVED) for each in changes}
    kept = [each for each in entries if key(each) not in gone]
    new = [each for each in changes if not key(each).startswith(_REMOVED)]
    # Changed in place, because a repeated field of a message cannot be assigned.
    del entries[:]
    entries.extend([*kept, *new])


def adjusted_options(options: RunOptions, change: nri.ContainerAdjustment) -> RunOptions:
    """Apply the adjustment of a plugin to a container's settings, and return the new settings.

    Two parts of the adjustment are left out: resources such as CPUs, and mounts whose source is not
    a path.
    """
    env = {each.key: each.value for each in change.env}
    paths = [
        _mount(each)
        for each in change.mounts
        # A removal needs no source: it has only the path that it removes.
        if each.source.startswith("/") or each.destination.startswith(_REMOVED)
    ]
    # The plugin's entries come last: they replace entries with the same path in the container.
    mounts = {each.container_path: each for each in (*options.mounts, *paths)}
    nodes = [_device(each) for each in change.linux.devices]
    devices = {each.container_path: each for each in (*options.devices, *nodes)}
    names = (*options.cdi_devices, *(each.name for each in change.CDI_devices))
    return attrs.evolve(
        options,
        envs=_without_removed({**options.envs, **env}),
        annotations=_without_removed({**options.annotations, **change.annotations}),
        mounts=tuple(_without_removed(mounts).values()),
        devices=tuple(_without_removed(devices).values()),
        cdi_devices=names,
    )


def _mount(mount: nri.Mount) -> Mount:
    return Mount(
        container_path=mount.destination,
        host_path=mount.source,
        read_only="ro" in mount.options,
    )


def _device(device: nri.LinuxDevice) -> DeviceSpec:
    # The message has neither a path on the host nor cgroup permissions.
    return DeviceSpec(container_path=device.path, host_path=device.path, permissions="rwm")


def _without_removed(entries: Mapping[str, _T]) -> dict[str, _T]:
    removed = {key for key in entries if key.startswith(_REMOVED)}
    gone = removed | {key.removeprefix(_REMOVED) for key in removed}
    return {key: value for key, value in entries.items() if key not in gone}


def shown(change: nri.ContainerAdjustment) -> str:
    """Return an adjustment as text, such as ``cpus 0-3, env GPU``; empty if it changes nothing."""
    groups = {
        "env": [each.key for each in change.env],
        "mount": [each.destination for each in change.mounts],
        "device": [each.path for each in change.linux.devices],
        "annotation": list(change.annotations),
        "CDI device": [each.name for each in change.CDI_devices],
    }
    parts = [f"{kind} {name}" for kind, names in groups.items() for name in sorted(names)]
    return ", ".join([*resources_shown(change.linux.resources), *parts])


def resources_shown(resources: nri.LinuxResources) -> list[str]:
    """Return the CPUs, NUMA nodes and memory limit in ``resources`` as texts, such as ``cpus 0-3``.

    Values that are empty or 0 are omitted.
    """
    cpu = resources.cpu
    values = {"cpus": cpu.cpus, "mems": cpu.mems, "memory": resources.memory.limit.value}
    return [f"{name} {value}" for name, value in values.items() if value]
