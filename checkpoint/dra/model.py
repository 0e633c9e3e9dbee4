"""Contents of the file as Python values. None stands for Go's nil.

The protocols have the same fields as the classes. So a kubelet can write its own claim objects
without converting them.
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
    """Share ID of the device (since v1.35)."""
    requests: tuple[str, ...] | None = None
    """Names of the claim's requests to which the device is allocated; None or empty means all."""
    cdi: tuple[str, ...] | None = None
    """CDI device names."""


@attrs.frozen
class DriverState:
    """State of one driver for a claim: the devices that it has prepared."""

    devices: tuple[Device, ...] | None = None
    """Prepared devices; None before the driver's first response."""
    skips: tuple[str, ...] = ()
    """``skipNodeOperations`` (since v1.37): calls of the driver that the devices do not need."""


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
    """A device with the fields of ``Device``."""

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
    """A driver's state with the fields of ``DriverState``."""

    @property
    def devices(self) -> Sequence[DeviceLike] | None: ...
    @property
    def skips(self) -> Sequence[str]: ...


class ClaimLike(Protocol):
    """A claim with the fields of ``ClaimState``."""

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
