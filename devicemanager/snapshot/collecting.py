"""Reading a node: every part by itself, so that one which cannot be read costs no other."""

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
from devicemanager.kubelet.host.numa import SYSFS_NODES, NumaMachine, from_host
from devicemanager.objects.manifests.errors import ManifestError
from devicemanager.snapshot import layout
from devicemanager.snapshot.errors import SnapshotError
from devicemanager.snapshot.kubeletconfig import merged_settings
from devicemanager.snapshot.listeners import look, sockets_in, text_of
from devicemanager.snapshot.model import (
    KubeletConfig,
    Listening,
    LoggedPod,
    Part,
    PodDirectories,
    Snapshot,
    SocketSeen,
)
from devicemanager.snapshot.places import Places
from devicemanager.snapshot.writing import TIME
from podresources import Allocatable, Pod, PodResourcesClient, PodResourcesError, SocketNotFound

__all__ = ["collect"]

T = TypeVar("T")

_MOST_PODS: Final = 20_000
_ATTEMPTS: Final = 8
_TRIES: Final = 3


def collect(places: Places, now: Callable[[], float] = time.time) -> Snapshot:
    """Everything of a node that may be read. ``now`` is in seconds since the epoch.

    Nothing is changed there: files are read, two questions are put to PodResources, and each
    socket is connected to and left again. Raises SnapshotError if nothing at all can be read.
    """
    reader = _Reader()
    checkpoint, pods = _at_once(reader, places)
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
        sockets=reader.get(layout.SOCKETS, places.plugin_dir, lambda _: _sockets(places)),
        config=_config(reader, places),
        directories=_directories(reader, places),
    )
    if not reader.found:
        why = next((part.problem for part in reader.parts if not part.absent), None)
        raise SnapshotError(
            f"nothing of a kubelet can be read in {places.root} and {places.plugin_dir}"
            + (f" ({why})" if why else "")
            + ": give its directory with --root, or the machine's file system with --host"
        )
    numa = reader.get(layout.NUMA, places.host / SYSFS_NODES, lambda _: _numa(places))
    return attrs.evolve(snapshot, numa=numa, parts=tuple(reader.parts))


class _Reader:
    """Keeps for each part whether it could be read, and why not."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.found = False

    def forget(self, *names: str) -> None:
        """As if these had not been read."""
        self.parts = [part for part in self.parts if part.name not in names]

    def get(self, name: str, path: Path, read: Callable[[Path], T]) -> T | None:
        """What ``read`` makes of ``path``; None if it cannot."""
        source = text_of(path)
        try:
            value = read(path)
        except (FileNotFoundError, NotADirectoryError, SocketNotFound):
            self.parts.append(Part(name, source, "there is no such file", absent=True))
        except (OSError, FileRejected, PodResourcesError, DeviceManagerError) as error:
            self.parts.append(Part(name, source, _reason(error)))
        else:
            self.parts.append(Part(name, source))
            self.found = True
            return value
        return None


def _at_once(reader: _Reader, places: Places) -> tuple[bytes | None, tuple[Pod, ...] | None]:
    """The checkpoint and the pods of one moment: on a node where pods come and go they are
    read again until the file has not changed meanwhile."""
    path = places.plugin_dir / CHECKPOINT_NAME
    for _ in range(_TRIES):
        reader.forget(layout.POD_RESOURCES, layout.CHECKPOINT)
        before = _try_file(path)
        pods = reader.get(layout.POD_RESOURCES, places.pod_resources, _listed)
        checkpoint = reader.get(layout.CHECKPOINT, path, _file)
        if checkpoint is None or checkpoint == before:
            break
    return checkpoint, pods


def _try_file(path: Path) -> bytes | None:
    try:
        return _file(path)
    except (OSError, FileRejected):
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = " ".join(str(error).split())
    return f"it is {text}" if isinstance(error, FileRejected) else text


def _host_name(host: Path) -> str:
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
    with PodResourcesClient(socket, rate_limit_attempts=_ATTEMPTS) as client:
        return tuple(sorted(client.list(), key=lambda pod: (pod.namespace, pod.name)))


def _check_reachable(socket: Path) -> None:
    """gRPC's own words about a socket that it may not use are long and say less."""
    seen = look(socket)
    if seen.state is not Listening.LISTENING and socket.exists():
        raise SnapshotError(seen.problem or "nobody listens on it")


def _allocatable(socket: Path) -> Allocatable:
    _check_reachable(socket)
    with PodResourcesClient(socket, rate_limit_attempts=_ATTEMPTS) as client:
        return client.get_allocatable()


def _sockets(places: Places) -> tuple[SocketSeen, ...]:
    seen = list(sockets_in(places.plugin_dir))
    for directory in (places.registry, places.pod_resources.parent):
        with contextlib.suppress(OSError):  # what is not there is no part of its own
            seen += sockets_in(directory)
    return tuple(seen)


def _numa(places: Places) -> NumaMachine:
    return from_host(places.host)


def _config(reader: _Reader, places: Places) -> KubeletConfig | None:
    path = places.config
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
    # BuildPodLogsDirectory (kuberuntime/helpers.go, v1.36): neither part may have a "_".
    parts = name.split("_")
    return LoggedPod(*parts) if len(parts) == 3 and all(parts) else None
