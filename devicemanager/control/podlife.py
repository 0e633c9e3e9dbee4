"""Containers that end and pods that are deleted: shapes, handlers, and the client's part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from devicemanager.control.shapes import schema
from devicemanager.core.ids import ContainerName
from devicemanager.core.podstatus import containers as statuses
from devicemanager.core.podstatus.containers import Running, Terminated, Waiting

if TYPE_CHECKING:
    from devicemanager.control.operation import Request
    from devicemanager.kubelet.mock import MockKubelet

__all__ = [
    "ContainerState",
    "ContainerStatus",
    "ContainerStatusList",
    "Delete",
    "ExitContainer",
    "RemotePodLife",
    "container_statuses",
    "delete",
    "exit_container",
]

_Grace = Annotated[float, Meta(le=1e9)]


# -- what is asked ---------------------------------------------------------------------


class Delete(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How long the containers of a pod have to end."""

    grace_period: Annotated[
        _Grace | None,
        Meta(description="seconds, 1 at least; null: the pod's terminationGracePeriodSeconds"),
    ] = None


class ExitContainer(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How a container ends."""

    exit_code: int = 0
    reason: Annotated[
        str, Meta(description="such as OOMKilled; empty: Completed for exit code 0, else Error")
    ] = ""


# -- what is answered ------------------------------------------------------------------


class ContainerState(Struct, kw_only=True, frozen=True):
    """One of the three; the others are null. Times are seconds since the epoch, and null if an
    earlier kubelet started the container."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None

    def __post_init__(self) -> None:
        if len(self.given()) != 1:
            raise ValueError("Expected waiting, running or terminated")

    def given(self) -> list[statuses.State]:
        """The state, as the only one of a list."""
        states = (self.waiting, self.running, self.terminated)
        return [state for state in states if state is not None]


class ContainerStatus(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("container-status")
):
    """The status of one container, as the Kubernetes API has it."""

    name: str
    state: ContainerState
    last_termination: Annotated[Terminated | None, Meta(description="how it ended the time before")]
    restart_count: int


class ContainerStatusList(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("container-statuses")
):
    """The statuses of a pod's containers, init containers first."""

    items: list[ContainerStatus]


def _shape(status: statuses.ContainerStatus) -> ContainerStatus:
    state = status.state
    return ContainerStatus(
        name=status.name,
        state=ContainerState(
            waiting=state if isinstance(state, Waiting) else None,
            running=state if isinstance(state, Running) else None,
            terminated=state if isinstance(state, Terminated) else None,
        ),
        last_termination=status.last_termination,
        restart_count=status.restart_count,
    )


def _status(shape: ContainerStatus) -> statuses.ContainerStatus:
    (state,) = shape.state.given()
    return statuses.ContainerStatus(
        ContainerName(shape.name), state, shape.last_termination, shape.restart_count
    )


# -- handlers --------------------------------------------------------------------------


def exit_container(kubelet: MockKubelet, request: Request) -> ContainerStatus:
    asked: ExitContainer = request.body
    uid, container = request.path["uid"], request.path["container"]
    return _shape(kubelet.exit_container(uid, container, asked.exit_code, reason=asked.reason))


def delete(kubelet: MockKubelet, request: Request) -> None:
    kubelet.delete(request.path["uid"], request.body.grace_period)


def container_statuses(kubelet: MockKubelet, request: Request) -> ContainerStatusList:
    found = kubelet.container_statuses(request.path["uid"])
    return ContainerStatusList(items=[_shape(each) for each in found.values()])


# -- the client ------------------------------------------------------------------------


class RemotePodLife:
    """Containers that end, and pods that are deleted; see ``PodLife``."""

    if TYPE_CHECKING:

        def ask(self, name: str, *path: str, body: object = None) -> Any: ...

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> statuses.ContainerStatus:
        body = ExitContainer(exit_code=exit_code, reason=reason)
        return _status(self.ask("exitContainer", uid, container, body=body))

    def delete(self, uid: str, grace_period: float | None = None) -> None:
        self.ask("deletePodGracefully", uid, body=Delete(grace_period=grace_period))

    def container_statuses(self, uid: str) -> dict[str, statuses.ContainerStatus]:
        found: ContainerStatusList = self.ask("getContainerStatuses", uid)
        return {each.name: _status(each) for each in found.items}
