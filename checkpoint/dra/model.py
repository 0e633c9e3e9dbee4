"""Contents of ``dra_manager_state`` as Python values. None stands for Go's nil.

``DeviceLike``, ``DriverLike`` and ``ClaimLike`` are interfaces (``typing.Protocol``). They have the
fields of ``Device``, ``DriverState`` and ``ClaimState``. Objects of any class with these fields can
be written to the file, without converting them first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs


@attrs.frozen
class Device:
    """A prepared device (``Device``, pkg/kubelet/cm/dra/state/checkpoint.go)."""

    pool: str
    device: str
    share_id: str | None = None
    """ID of the claim's share of the device (since v1.35); None for a whole device."""
    requests: tuple[str, ...] | None = None
    """Names of the claim's requests to which the device is allocated; None or empty means all."""
    cdi: tuple[str, ...] | None = None
    """CDI device names."""


@attrs.frozen
class DriverState:
    """State of one driver for a claim: the devices that the driver has prepared."""

    devices: tuple[Device, ...] | None = None
    """Prepared devices; None before the driver's first response."""
    skips: tuple[str, ...] = ()
    """``skipNodeOperations`` (since v1.37): RPCs that the kubelet does not send to the driver,
    because the devices do not need them."""


@attrs.frozen
class ClaimState:
    """A claim that is prepared for pods of the node (``ClaimInfoState``)."""

    namespace: str
    name: str
    uid: str
    pods: frozenset[str] = frozenset()
    """UIDs of the pods for which the claim is prepared."""
    drivers: Mapping[str, DriverState] = attrs.field(factory=dict)


@attrs.frozen
class State:
    """Contents of ``dra_manager_state`` without the checksum."""

    claims: tuple[ClaimState, ...] | None = None
    """Prepared claims; None in the file of a kubelet that has never prepared a claim."""


class DeviceLike(Protocol):
    """Interface of objects that have the fields of ``Device``."""

    @property
    def pool(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def share_id(self) -> str | None: ...
    @property
    def requests(self) -> Sequence[str] | None: ...
    @property
    def cdi(self) -> Sequence[str] | None: ...


class DriverLike(Protocol):
    """Interface of objects that have the fields of ``DriverState``."""

    @property
    def devices(self) -> Sequence[DeviceLike] | None: ...
    @property
    def skips(self) -> Sequence[str]: ...


class ClaimLike(Protocol):
    """Interface of objects that have the fields of ``ClaimState``."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def pods(self) -> Collection[str]: ...
    @property
    def drivers(self) -> Mapping[str, DriverLike]: ...
