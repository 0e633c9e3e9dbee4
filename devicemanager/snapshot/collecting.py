"""Collect a snapshot from a node. A part that cannot be read does not affect the other parts."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import attrs

from checkpoint import CHECKPOINT_NAME
from devicemanager.core.errors import DeviceManagerError
from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.kubelet.host.numa import SYSFS_NODES, from_host
from devicemanager.objects.manifests.errors import ManifestError
from devicemanager.snapshot import layout
from devicemanager.snapshot.kubeletconfig import merged_settings
from devicemanager.snapshot.listeners import listener_of, sockets_in, text_of
from devicemanager.snapshot.model import (
    KubeletConfig,
    Listening,
    LoggedPod,
    Part,
    PodDirectories,
    Snapshot,
    SnapshotError,
    SocketSeen,
)
from devicemanager.snapshot.places import Places
from devicemanager.snapshot.writing import TIME
from podresources import Allocatable, Pod, PodResourcesClient, PodResourcesError, SocketNotFound

__all__ = ["collect"]

T = TypeVar("T")

# Far more pods than on any real node. The limit is needed because other programs can fill the
# directory.
_MOST_PODS: Final = 20_000
# Kubelets limit the rate of PodResources calls, and the calls of other clients on the node count,
# too.
_RATE_LIMIT_ATTEMPTS: Final = 8
_CHECKPOINT_ATTEMPTS: Final = 3


def collect(places: Places, now: Callable[[], float] = time.time) -> Snapshot:
    """Collect a snapshot: read everything that is readable on a node. ``now`` returns seconds since
    the epoch.

    The node is not changed: files are read, two PodResources methods are called, and a connection
    to each socket is opened and closed. Raises SnapshotError if nothing can be read.
    """
    reader = _Reader()
    checkpoint, pods = _checkpoint_and_pods(reader, places)
    snapshot = Snapshot(
        taken=time.strftime(TIME, time.gmtime(now())),
        tool=version("kubelet-devicemanager"),
        node=_host_name(places.host),
        root=text_of(places.root),
        pods=pods,
        allocatable=reader.get(layout.ALLOCATABLE, places.pod_resources, _allocatable),
        checkpoint=checkpoint,
        cpu_state=reader.get(layout.CPU_STATE, places.root / layout.CPU_STATE, _file),
        memory_state=reader.get(layout.MEMORY_STATE, places.root / layout.MEMORY_STATE, _file),
        dra_state=reader.get(layout.DRA_STATE, places.root / layout.DRA_STATE, _file),
        dra_health=reader.get(layout.DRA_HEALTH, places.root / layout.DRA_HEALTH, _file),
        sockets=reader.get(layout.SOCKETS, places.plugin_dir, lambda _: _sockets(places)),
        config=_config(reader, places),
        directories=_directories(reader, places),
    )
    # Checked before the NUMA nodes: any Linux machine has those, with or without a kubelet.
    if not reader.has_read:
        reason = next((part.problem for part in reader.parts if not part.absent), None)
        raise SnapshotError(
            f"no files of a kubelet found in {places.root} and {places.plugin_dir}"
            + (f" ({reason})" if reason else "")
            + ": use --root for the kubelet's directory, or --host for the file system of the node"
        )
    numa = reader.get(layout.NUMA, places.host / SYSFS_NODES, lambda _: from_host(places.host))
    return attrs.evolve(snapshot, numa=numa, parts=tuple(reader.parts))


class _Reader:
    """Reader of the parts of a snapshot. It records which parts could not be read, and why."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.has_read = False

    def forget(self, *names: str) -> None:
        """Remove the records of the parts with these names."""
        self.parts = [part for part in self.parts if part.name not in names]

    def get(self, name: str, path: Path, read: Callable[[Path], T]) -> T | None:
        """Return the result of ``read`` for ``path``; None if it fails. Record, as part ``name``,
        whether it could be read."""
        source = text_of(path)
        try:
            value = read(path)
        # A missing file is often normal, for example without the static CPU manager policy.
        # Therefore it is not reported as a problem, unlike a missing permission.
        except (FileNotFoundError, NotADirectoryError, SocketNotFound):
            self.parts.append(Part(name, source, "no such file", absent=True))
        except (OSError, FileRejected, PodResourcesError, DeviceManagerError) as error:
            self.parts.append(Part(name, source, _reason(error)))
        else:
            self.parts.append(Part(name, source))
            self.has_read = True
            return value
        return None


def _checkpoint_and_pods(
    reader: _Reader, places: Places
) -> tuple[bytes | None, tuple[Pod, ...] | None]:
    """Return the checkpoint and the pods of PodResources, read without a change in between.

    Rules compare the two, so a change in between would look like a fault. If the checkpoint has
    changed during the List call, both are read again. The third attempt is the last: its result is
    returned even after a change.
    """
    path = places.plugin_dir / CHECKPOINT_NAME
    for _ in range(_CHECKPOINT_ATTEMPTS):
        reader.forget(layout.POD_RESOURCES, layout.CHECKPOINT)
        before = None
        # Only for the comparison: the read after the List call becomes the part of the snapshot.
        with contextlib.suppress(OSError, FileRejected):
            before = _file(path)
        pods = reader.get(layout.POD_RESOURCES, places.pod_resources, _listed)
        checkpoint = reader.get(layout.CHECKPOINT, path, _file)
        # Without a checkpoint, rules have nothing to compare, so do not repeat the calls.
        if checkpoint is None or checkpoint == before:
            break
    return checkpoint, pods


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = " ".join(str(error).split())
    return f"it is {text}" if isinstance(error, FileRejected) else text


def _host_name(host: Path) -> str:
    # The kernel knows the name of the local machine even if there is no /etc/hostname.
    if host == Path("/"):
        return platform.node()
    try:
        return read_regular(host / "etc/hostname", 1 << 10).decode(errors="replace").strip()
    except (OSError, FileRejected):
        return "unknown"


def _file(path: Path) -> bytes:
    return read_regular(path, layout.MAX_FILE)


def _listed(socket: Path) -> tuple[Pod, ...]:
    _check_reachable(socket)
    with PodResourcesClient(socket, rate_limit_attempts=_RATE_LIMIT_ATTEMPTS) as client:
        return tuple(sorted(client.list(), key=lambda pod: (pod.namespace, pod.name)))


def _check_reachable(socket: Path) -> None:
    # Checked before the call: gRPC's messages about an unusable socket are long and unclear.
    seen = listener_of(socket)
    if seen.state is not Listening.LISTENING and socket.exists():
        raise SnapshotError(seen.problem or "no process is listening")


def _allocatable(socket: Path) -> Allocatable:
    _check_reachable(socket)
    with PodResourcesClient(socket, rate_limit_attempts=_RATE_LIMIT_ATTEMPTS) as client:
        return client.get_allocatable()


def _sockets(places: Places) -> tuple[SocketSeen, ...]:
    seen = list(sockets_in(places.plugin_dir))
    for directory in (places.registry, places.pod_resources.parent):
        with contextlib.suppress(OSError):  # these directories are optional
            seen += sockets_in(directory)
    return tuple(seen)


def _config(reader: _Reader, places: Places) -> KubeletConfig | None:
    path = places.config
    # If there is no file, the flags of the running kubelet are still useful.
    settings = None if path is None else reader.get(layout.CONFIG, path, _settings(places))
    if settings is None and not places.flags:
        return None
    source = None if path is None or settings is None else text_of(path)
    return KubeletConfig(source, settings or {}, dict(places.flags), places.pid)


def _settings(places: Places) -> Callable[[Path], dict[str, object]]:
    def read(path: Path) -> dict[str, object]:
        try:
            return merged_settings(path, places.config_dir)
        except ManifestError as error:
            raise SnapshotError(str(error)) from error

    return read


def _directories(reader: _Reader, places: Places) -> PodDirectories | None:
    # On disk, only the names of log directories contain both the name and the UID of a pod.
    uids = reader.get(layout.PODS, places.pods, _names)
    try:
        logged = tuple(filter(None, map(_logged, _names(places.logs))))
    except OSError:
        logged = ()
    return PodDirectories(uids, logged) if uids is not None or logged else None


def _names(directory: Path) -> tuple[str, ...]:
    with os.scandir(directory) as entries:
        return tuple(sorted(text_of(entry.name) for entry in islice(entries, _MOST_PODS)))


def _logged(name: str) -> LoggedPod | None:
    # The format is that of BuildPodLogsDirectory (kuberuntime/helpers.go, v1.36). Namespace, name
    # and UID cannot contain "_".
    parts = name.split("_")
    return LoggedPod(*parts) if len(parts) == 3 and all(parts) else None
