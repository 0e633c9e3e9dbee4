"""What a snapshot holds: a node as somebody found it who may read and nothing else."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from devicemanager.kubelet.host.numa import NumaMachine
from podresources.values import Allocatable, Pod

__all__ = [
    "KubeletConfig",
    "Listening",
    "LoggedPod",
    "Part",
    "PodDirectories",
    "Snapshot",
    "SocketSeen",
]


@attrs.frozen
class Part:
    """One thing that was looked for on the node."""

    name: str
    """Its file in the archive (``layout``)."""
    source: str
    """Where it was looked for."""
    problem: str | None = None
    """Why it is not in the snapshot, one line; None if it is."""
    absent: bool = False
    """Whether the problem is that there is no such file, which may be as it should."""


class Listening(enum.StrEnum):
    """Whether somebody listens on a socket."""

    LISTENING = "listening"
    DEAD = "dead"
    """Nobody: whoever made the socket has gone, or has closed it."""
    UNKNOWN = "unknown"
    """It could not be tried, for want of permission as a rule."""


@attrs.frozen
class SocketSeen:
    """A socket in one of the directories in which plugins put theirs."""

    path: str
    state: Listening
    pid: int | None = None
    """The process that listens; None where the kernel does not tell, or where it is in a
    namespace that cannot be seen from here."""
    process: str | None = None
    """That process's name."""
    problem: str | None = None
    """Why the state is unknown."""

    @property
    def name(self) -> str:
        """The socket's file name."""
        return self.path.rpartition("/")[2]


@attrs.frozen
class KubeletConfig:
    """The part of a kubelet's configuration that decides about devices and alignment."""

    source: str | None = None
    """The configuration file; None if none was found."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """Fields of ``KubeletConfiguration``, as they stand in the file."""
    flags: Mapping[str, str] = attrs.field(factory=dict)
    """Flags of the running kubelet, without the dashes; they win."""
    pid: int | None = None
    """The running kubelet; None if none was looked for or seen."""


@attrs.frozen
class LoggedPod:
    """A pod that has, or had, a directory for the logs of its containers."""

    namespace: str
    name: str
    uid: str


@attrs.frozen
class PodDirectories:
    """The pods that the node's directories name."""

    uids: tuple[str, ...] | None = None
    """Of each pod that the kubelet knows or has not cleaned up; None if that was not to be
    read."""
    logged: tuple[LoggedPod, ...] = ()


@attrs.frozen
class Snapshot:
    """Everything that was read; what could not be read is None, and its part says why."""

    taken: str
    """When, in UTC, as ``2026-01-31T12:00:00Z``."""
    tool: str
    """The version of what took it."""
    node: str
    """The machine's host name."""
    root: str
    """The kubelet's directory."""
    parts: tuple[Part, ...] = ()
    pods: tuple[Pod, ...] | None = None
    """What PodResources List answered."""
    allocatable: Allocatable | None = None
    """What PodResources GetAllocatableResources answered."""
    checkpoint: bytes | None = None
    """The contents of ``kubelet_internal_checkpoint``."""
    cpu_state: bytes | None = None
    """The contents of ``cpu_manager_state``."""
    memory_state: bytes | None = None
    """The contents of ``memory_manager_state``."""
    sockets: tuple[SocketSeen, ...] | None = None
    numa: NumaMachine | None = None
    config: KubeletConfig | None = None
    directories: PodDirectories | None = None

    def part(self, name: str) -> Part | None:
        """The part of that name; None if nobody looked for it."""
        return next((part for part in self.parts if part.name == name), None)
