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
    """An invalid archive, or a node on which nothing can be read. The text is one line."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(" ".join(text.split())))


@attrs.frozen
class Part:
    """One part of the node, read or not."""

    name: str
    """Its file in the archive (``layout``)."""
    source: str
    """Where it was read from."""
    problem: str | None = None
    """Why it is not in the snapshot, in one line; None if it is."""
    absent: bool = False
    """True if the problem is that the file does not exist, which may be normal."""


class Listening(enum.StrEnum):
    """State of a socket."""

    LISTENING = "listening"
    DEAD = "dead"
    """Stale: no process is listening."""
    UNKNOWN = "unknown"
    """The connection failed for another reason, usually missing permission."""


@attrs.frozen
class SocketSeen:
    """Socket in one of the directories for plugins."""

    path: str
    state: Listening
    pid: int | None = None
    """Process that listens; None if the kernel does not say, as for a process in another PID
    namespace."""
    process: str | None = None
    """Name of that process."""
    problem: str | None = None
    """Why the state is unknown."""

    @property
    def name(self) -> str:
        """File name of the socket."""
        return self.path.rpartition("/")[2]


@attrs.frozen
class KubeletConfig:
    """Part of a kubelet's configuration that concerns devices and alignment."""

    source: str | None = None
    """Configuration file; None if there is none."""
    # Not converted: rules interpret values as the kubelet does, and people read the originals.
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """Fields of ``KubeletConfiguration`` with the values in the file."""
    flags: Mapping[str, str] = attrs.field(factory=dict)
    """Flags of the running kubelet, without dashes; they override the file."""
    pid: int | None = None
    """Process of the running kubelet; None if there is none."""


@attrs.frozen
class LoggedPod:
    """Pod with a directory for container logs; the pod itself may be gone."""

    namespace: str
    name: str
    uid: str


@attrs.frozen
class PodDirectories:
    """Pods that the node's directories name."""

    uids: tuple[str, ...] | None = None
    """Pods that the kubelet knows or has not cleaned up; None if they could not be read."""
    logged: tuple[LoggedPod, ...] = ()


@attrs.frozen
class Snapshot:
    """Everything that was read. What could not be read is None, and its part says why."""

    taken: str
    """Time in UTC, such as ``2026-01-31T12:00:00Z``."""
    tool: str
    """Version of devicemanager that took the snapshot."""
    node: str
    """Host name."""
    root: str
    """Directory of the kubelet."""
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
    sockets: tuple[SocketSeen, ...] | None = None
    numa: NumaMachine | None = None
    config: KubeletConfig | None = None
    directories: PodDirectories | None = None

    def part(self, name: str) -> Part | None:
        """Return the part with this name; None if it was not collected."""
        return next((part for part in self.parts if part.name == name), None)
