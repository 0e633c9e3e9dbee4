"""The one description of a pod, for everything that shows pods.

``kubelet.pods()``, the control API, ``devicemanager ctl``, the views and the live page all
show a ``PodInfo``. Its fields and their docstrings also make the OpenAPI document and the
types of the Go package. A new field is a line here and a value in ``pod_info``; the tests
fail wherever it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import Final, Literal

import attrs

from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.ledger import AllocatedByContainer, AllocatedByResource
from devicemanager.core.pods import Container, RestartPolicy
from devicemanager.core.podstatus.containers import Running, Terminated, Waiting
from devicemanager.core.podstatus.phase import Phase
from devicemanager.kubelet.pods.records import PodRecord

__all__ = ["ContainerInfo", "ContainerKind", "PodClaims", "PodInfo", "pod_info"]

PodClaims = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Container to resource claim to devices."""

_SCHEMA: Final = "devicemanager.pod/v1"
_State = Literal["waiting", "running", "terminated", "unknown"]
# Named here and not after the classes: the words are part of the JSON form.
_STATES: Final[dict[type, _State]] = {
    Waiting: "waiting",
    Running: "running",
    Terminated: "terminated",
}


class ContainerKind(StrEnum):
    """The role of a container in its pod."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


# Without slots, because CPython sorts the names of slots and JSON shall have the fields in
# this order.
@attrs.frozen(kw_only=True, slots=False)
class ContainerInfo:
    """A container of a pod: its requests, its state and its devices."""

    name: str
    """Unique within the pod."""
    kind: ContainerKind = ContainerKind.APP
    """``init`` for an init container that runs to completion."""
    limits: Mapping[str, int] = attrs.field(factory=dict)
    """Resource to amount: devices, milli-CPUs or bytes."""
    requests: Mapping[str, int] = attrs.field(factory=dict)
    """In the units of the limits."""
    restartable: bool = False
    """True for an init container with restartPolicy Always."""
    claims: tuple[str, ...] = ()
    """Names of the pod's resource claims that the container uses."""
    running: bool = False
    """True if its state is ``running``."""
    finished: bool = False
    """True for an init container that has run to completion."""
    state: _State = "unknown"
    """``unknown`` if the source does not report it, such as PodResources."""
    reason: str = ""
    """Why the container waits or has terminated, such as OOMKilled."""
    message: str = ""
    """More about the reason, for people; may be empty."""
    exit_code: int | None = None
    """Null unless the container has terminated."""
    restart_count: int = 0
    """How often the container was started again."""
    devices: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Resource to IDs of the allocated devices, sorted."""
    claim_devices: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Resource claim to allocated devices, as pool/device."""

    @property
    def wanted_devices(self) -> dict[str, int]:
        """Extended resource to the number of devices in the limits."""
        return {
            name: count for name, count in self.limits.items() if is_extended_resource_name(name)
        }


@attrs.frozen(kw_only=True, slots=False)
class PodInfo:
    """A pod that the kubelet knows, with its containers and their devices.

    A snapshot: it does not change when the pod does.
    """

    # Not an argument: a reader of the JSON needs it, a program in Python does not.
    schema: Literal["devicemanager.pod/v1"] = attrs.field(default=_SCHEMA, init=False, repr=False)
    """Name and version of the JSON form."""
    uid: str
    """``metadata.uid``; from PodResources ``namespace/name``."""
    name: str
    """``metadata.name``."""
    namespace: str
    """``metadata.namespace``."""
    phase: Phase = Phase.UNKNOWN
    """``Unknown`` if the source does not report it, such as PodResources."""
    reason: str = ""
    """Why the pod was rejected or has failed; else empty."""
    message: str = ""
    """More about the reason, as in ``status.message``."""
    admitted: bool = False
    """True if the pod was admitted, now or earlier."""
    deleting: bool = False
    """True from the request to delete the pod until its containers have terminated."""
    start_time: float | None = None
    """When this kubelet first saw the pod, in seconds since the epoch; null for an earlier one."""
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    """``spec.restartPolicy``."""
    containers: tuple[ContainerInfo, ...] = ()
    """App containers, in the order of the manifest."""
    init_containers: tuple[ContainerInfo, ...] = ()
    """Init containers and sidecars, in the order of the manifest."""
    resource_claims: Mapping[str, str | None] = attrs.field(factory=dict)
    """Name in the pod to name of the claim; null for a claim made from a template."""
    devices: Mapping[str, Mapping[str, tuple[str, ...]]] = attrs.field(
        factory=dict, init=False, repr=False
    )
    """Container to resource to IDs of the allocated devices, without containers that have none."""

    def __attrs_post_init__(self) -> None:
        # A repetition for readers of the JSON; derived here, because msgspec supports no
        # defaults that depend on other fields.
        found = {each.name: each.devices for each in self.all_containers if each.devices}
        object.__setattr__(self, "devices", found)

    @property
    def title(self) -> str:
        """The pod's ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_active(self) -> bool:
        """True unless the pod has Succeeded or Failed."""
        return not self.phase.is_terminal

    @property
    def all_containers(self) -> Iterator[ContainerInfo]:
        """Init containers first, which is the order of their start."""
        return chain(self.init_containers, self.containers)

    @property
    def running(self) -> frozenset[str]:
        """Names of the containers that run."""
        return frozenset([each.name for each in self.all_containers if each.running])


def pod_info(record: PodRecord, held: AllocatedByContainer, claims: PodClaims) -> PodInfo:
    """Describe a pod.

    ``held`` are its allocated devices, ``claims`` those of its resource claims. Must be called
    with the lock of the pod's store held, because the record changes under it.
    """
    pod = record.pod

    # Copies, because the ledger's and the manifest's mappings belong to others.
    def described(containers: tuple[Container, ...], *, init: bool) -> tuple[ContainerInfo, ...]:
        return tuple(
            [
                _container_info(
                    each, init, record, held.get(each.name, {}), claims.get(each.name, {})
                )
                for each in containers
            ]
        )

    return PodInfo(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        phase=record.phase,
        reason=record.reason,
        message=record.message,
        admitted=record.admitted,
        # The grace period is set by the request to delete the pod.
        deleting=record.deletion_grace is not None,
        start_time=record.start_time,
        restart_policy=pod.restart_policy,
        containers=described(pod.containers, init=False),
        init_containers=described(pod.init_containers, init=True),
        resource_claims=dict(pod.resource_claims),
    )


def _container_info(
    container: Container,
    is_init: bool,
    record: PodRecord,
    held: AllocatedByResource,
    claims: Mapping[str, tuple[str, ...]],
) -> ContainerInfo:
    # A container that was never started has a status, too: it waits.
    status = record.status(container.name)
    state = status.state
    kind = ContainerKind.SIDECAR if container.restartable else ContainerKind.INIT
    return ContainerInfo(
        name=container.name,
        kind=kind if is_init else ContainerKind.APP,
        limits={str(name): amount for name, amount in container.limits.items()},
        requests={str(name): amount for name, amount in container.requests.items()},
        restartable=container.restartable,
        claims=container.claims,
        running=container.name in record.running,
        finished=container.name in record.finished,
        state=_STATES[type(state)],
        reason=state.reason if isinstance(state, Waiting | Terminated) else "",
        message=state.message if isinstance(state, Waiting) else "",
        exit_code=state.exit_code if isinstance(state, Terminated) else None,
        restart_count=status.restart_count,
        devices={str(name): tuple(sorted(held[name].ids)) for name in sorted(held)},
        claim_devices=dict(claims),
    )
