"""``PodInfo``, the description of a pod that all interfaces show.

``kubelet.pods()``, the control API, ``devicemanager ctl``, the views and the live page all
show a ``PodInfo``. The OpenAPI document and the types of the Go package are generated from its
fields and their docstrings. To add a field, add a line here and a value in ``pod_info``; tests
fail if the field is missing elsewhere.
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
"""Devices of a pod's claims: container name → claim name → devices, each as ``pool/device``."""

_SCHEMA: Final = "devicemanager.pod/v1"
_State = Literal["waiting", "running", "terminated", "unknown"]
# Listed here, instead of using the class names, because these words are part of the JSON form.
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


# Without slots: CPython sorts the names of slots, but JSON must have the fields in this order.
@attrs.frozen(kw_only=True, slots=False)
class ContainerInfo:
    """A container of a pod: its requests, its state and its devices."""

    name: str
    """Name of the container, unique within the pod."""
    kind: ContainerKind = ContainerKind.APP
    """``app``, ``init`` (an init container that runs to completion), or ``sidecar`` (an init
    container with restartPolicy Always)."""
    limits: Mapping[str, int] = attrs.field(factory=dict)
    """Resource limits by resource: number of devices, milli-CPUs or bytes."""
    requests: Mapping[str, int] = attrs.field(factory=dict)
    """Resource requests by resource, in the same units as ``limits``."""
    restartable: bool = False
    """True for an init container with restartPolicy Always."""
    claims: tuple[str, ...] = ()
    """Names of the pod's resource claims that the container uses."""
    running: bool = False
    """True if the container's state is ``running``."""
    finished: bool = False
    """True for an init container that has run to completion."""
    state: _State = "unknown"
    """State of the container; ``unknown`` if the pod was read from PodResources, which does not
    report states."""
    reason: str = ""
    """Reason why the container is waiting or has terminated, such as OOMKilled."""
    message: str = ""
    """Details about the reason, for people; can be empty."""
    exit_code: int | None = None
    """Exit code of a terminated container; null in other states."""
    restart_count: int = 0
    """How often the container was restarted."""
    devices: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Sorted IDs of the allocated devices, by resource."""
    claim_devices: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Devices allocated to the container's resource claims, as pool/device, by claim."""
    cdi_devices: tuple[str, ...] = ()
    """CDI devices that a started container got for its ResourceClaims, from DRA drivers."""

    @property
    def wanted_devices(self) -> dict[str, int]:
        """Number of requested devices by extended resource, from the limits."""
        return {
            name: count for name, count in self.limits.items() if is_extended_resource_name(name)
        }


@attrs.frozen(kw_only=True, slots=False)
class PodInfo:
    """Snapshot of a pod that the kubelet knows, with its containers and their devices."""

    # Not a constructor argument: only readers of the JSON form need it.
    schema: Literal["devicemanager.pod/v1"] = attrs.field(default=_SCHEMA, init=False, repr=False)
    """Name and version of the JSON format of this object."""
    uid: str
    """``metadata.uid``; or ``namespace/name`` if the pod was read from PodResources, which does not
    report UIDs."""
    name: str
    """``metadata.name``."""
    namespace: str
    """``metadata.namespace``."""
    phase: Phase = Phase.UNKNOWN
    """Phase of the pod; ``Unknown`` if the pod was read from PodResources, which does not report
    phases."""
    reason: str = ""
    """Reason why the pod was rejected or has failed; otherwise empty."""
    message: str = ""
    """Details about the reason, as in ``status.message``."""
    admitted: bool = False
    """True if the pod was admitted, even if it has ended since."""
    deleting: bool = False
    """True from the request to delete the pod until its containers have terminated."""
    start_time: float | None = None
    """When this kubelet first saw the pod, in seconds since the epoch; null if an earlier kubelet
    saw it first."""
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    """``spec.restartPolicy``."""
    containers: tuple[ContainerInfo, ...] = ()
    """App containers, in the order of the manifest."""
    init_containers: tuple[ContainerInfo, ...] = ()
    """Init containers and sidecars, in the order of the manifest."""
    resource_claims: Mapping[str, str | None] = attrs.field(factory=dict)
    """Names of the ResourceClaim objects, by the names that the pod uses for them; null for a claim
    that is created from a template."""
    devices: Mapping[str, Mapping[str, tuple[str, ...]]] = attrs.field(
        factory=dict, init=False, repr=False
    )
    """IDs of the allocated devices by container and resource; containers without devices are
    omitted."""

    def __attrs_post_init__(self) -> None:
        # The field repeats data of the containers for readers of the JSON. It is set here, because
        # msgspec supports no defaults that depend on other fields.
        found = {each.name: each.devices for each in self.all_containers if each.devices}
        object.__setattr__(self, "devices", found)

    @property
    def title(self) -> str:
        """The pod's ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_active(self) -> bool:
        """True if the phase is neither Succeeded nor Failed."""
        return not self.phase.is_terminal

    @property
    def all_containers(self) -> Iterator[ContainerInfo]:
        """All containers in the order of their start: init containers first."""
        return chain(self.init_containers, self.containers)

    @property
    def running(self) -> frozenset[str]:
        """Names of the running containers."""
        return frozenset([each.name for each in self.all_containers if each.running])


def pod_info(record: PodRecord, held: AllocatedByContainer, claims: PodClaims) -> PodInfo:
    """Create the description of a pod from its record.

    ``held`` are the pod's allocated devices, ``claims`` the devices of its resource claims. Must
    be called with the pod store's lock held, because other threads change the record.
    """
    pod = record.pod

    # Mappings of the ledger and the manifest are copied: a description must not change later.
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
    # A container that was never started has a status, too: waiting.
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
        cdi_devices=record.cdi_devices.get(container.name, ()),
    )
