"""Values of a snapshot: everything that could be read on a node."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.core.printable import printable
from devicemanager.kubelet.host.numa import NumaMachine
from podresources.values import Allocatable, Pod

__all__ = [
    "KubeletConfig",
    "Listening",
    "LoggedPod",
    "NumaMachine",
    "Part",
    "PodDirectories",
    "Snapshot",
    "SnapshotError",
    "SocketSeen",
]


class SnapshotError(RequestError):
    """Error for an invalid archive, or for a node on which nothing can be read. The text is one
    line."""

    def __init__(self, text: str) -> None:
        # One printable line, because the text can quote the contents of an untrusted file.
        super().__init__(printable(" ".join(text.split())))


@attrs.frozen
class Part:
    """Part of a snapshot, such as the checkpoint, and whether it could be read."""

    name: str
    """File name of the part in the archive (see ``layout``)."""
    source: str
    """Path that the part was read from."""
    problem: str | None = None
    """Reason why the part is missing in the snapshot, in one line; None if it was read."""
    absent: bool = False
    """True if the file does not exist, which may be normal."""


class Listening(enum.StrEnum):
    """Whether a process is listening on a socket."""

    LISTENING = "listening"
    """A process is listening on the socket."""
    DEAD = "dead"
    """The socket is stale: no process is listening on it."""
    UNKNOWN = "unknown"
    """The state is unknown: connecting failed, usually because of missing permission."""


@attrs.frozen
class SocketSeen:
    """Socket in a directory of the kubelet, with its state."""

    path: str
    state: Listening
    pid: int | None = None
    """ID of the process that listens. None if it is unknown, as for a process in another PID
    namespace."""
    process: str | None = None
    """Name of the process that listens."""
    problem: str | None = None
    """Reason why the state is unknown; None if the state is known."""

    @property
    def name(self) -> str:
        """File name of the socket, without its directory."""
        return self.path.rpartition("/")[2]


@attrs.frozen
class KubeletConfig:
    """Configuration of a kubelet: topology, CPU and memory manager, feature gates, and paths of the
    kubelet's files."""

    source: str | None = None
    """Path of the configuration file; None if no file was read."""
    # The values are not converted: rules interpret them as the kubelet does, and people read the
    # originals.
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """Fields of ``KubeletConfiguration`` with their values in the file and its drop-in files."""
    flags: Mapping[str, str] = attrs.field(factory=dict)
    """Flags of the running kubelet, without dashes. Flags override the file."""
    pid: int | None = None
    """Process ID of the running kubelet; None if no kubelet was found."""


@attrs.frozen
class LoggedPod:
    """Pod that has a directory for container logs. The pod may have been deleted since."""

    namespace: str
    name: str
    uid: str


@attrs.frozen
class PodDirectories:
    """Pods for which the node has a kubelet directory or a log directory."""

    uids: tuple[str, ...] | None = None
    """UIDs of the pods for which the kubelet has a directory. None if its directories could
    not be read."""
    logged: tuple[LoggedPod, ...] = ()
    """Pods that have a directory for container logs."""


@attrs.frozen
class Snapshot:
    """Everything that was read on a node. A part that could not be read is None, and ``parts`` has
    the reason."""

    taken: str
    """Time at which the snapshot was taken, in UTC, such as ``2026-01-31T12:00:00Z``."""
    tool: str
    """Version of devicemanager that took the snapshot."""
    node: str
    """Host name of the node."""
    root: str
    """Root directory of the kubelet, usually ``/var/lib/kubelet``."""
    parts: tuple[Part, ...] = ()
    pods: tuple[Pod, ...] | None = None
    """Response of PodResources List."""
    allocatable: Allocatable | None = None
    """Response of PodResources GetAllocatableResources."""
    checkpoint: bytes | None = None
    """Contents of ``kubelet_internal_checkpoint``."""
    cpu_state: bytes | None = None
    """Contents of ``cpu_manager_state``."""
    memory_state: bytes | None = None
    """Contents of ``memory_manager_state``."""
    dra_state: bytes | None = None
    """Contents of ``dra_manager_state``."""
    dra_health: bytes | None = None
    """Contents of ``dra_health_state``."""
    sockets: tuple[SocketSeen, ...] | None = None
    numa: NumaMachine | None = None
    config: KubeletConfig | None = None
    directories: PodDirectories | None = None

    def part(self, name: str) -> Part | None:
        """Return the part with this name; None if it was not collected."""
        return next((part for part in self.parts if part.name == name), None)
