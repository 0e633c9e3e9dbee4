"""The simulated driver.

NodePrepareResources reads the claim's allocation from ``claims``, writes a CDI file with one device
for each allocated device, and responds with the devices. It is idempotent: a repeated call returns
the same response and writes a missing CDI file again. Without ``claims``, a claim gets the next
free device.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import attrs
import grpc

from devicemanager.driver.simulated.cdi import CdiFiles
from devicemanager.driver.simulated.faults import DriverFaults
from devicemanager.driver.sockets import DriverSockets
from protos import (
    dra_v1,
    dra_v1_grpc,
    dra_v1beta1,
    dra_v1beta1_grpc,
    drahealth_v1_grpc,
    drahealth_v1alpha1,
    drahealth_v1alpha1_grpc,
)
from protos import drahealth_v1 as health_api

__all__ = ["DriverCall", "HasClaims", "SimulatedDriver"]

V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
HEALTH_V1, HEALTH_V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
SERVICES = (V1, V1BETA1, HEALTH_V1, HEALTH_V1ALPHA1)

_Report = health_api.NodeWatchResourcesResponse
_HEALTH = {
    "Unknown": health_api.HealthStatus.Value("UNKNOWN"),
    "Healthy": health_api.HealthStatus.Value("HEALTHY"),
    "Unhealthy": health_api.HealthStatus.Value("UNHEALTHY"),
}


class HasClaims(Protocol):
    """Mock kubelet, as far as the driver needs it."""

    @property
    def root(self) -> Path: ...

    def resource_claim(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a ResourceClaim as in the API (v1); None if it does not exist."""


ClaimSource = Callable[[str, str], Mapping[str, Any] | None]
"""Function that returns the ResourceClaim (v1) with a namespace and a name; None if it does not
exist."""


@attrs.frozen
class DriverCall:
    """A call that the driver received."""

    rpc: str
    version: str
    """``v1`` or ``v1beta1``."""
    claims: tuple[tuple[str, str, str], ...]
    """Namespace, name and UID of each claim."""


@attrs.frozen
class _Device:
    requests: tuple[str, ...]
    pool: str
    device: str
    cdi: tuple[str, ...]
    share_id: str | None


@attrs.define
class _Health:
    health: str = "Healthy"
    message: str = ""
    timeout: int = 0


class ClaimFailed(Exception):
    """Error of one claim, for its entry in the response."""


class SimulatedDriver:
    """Driver with virtual devices ``<prefix>-0``, ``<prefix>-1`` and so on. Thread-safe.

    ``start`` serves in the background; ``stop`` stops. A context manager: entering it starts,
    leaving it stops. A stopped driver can be started again and remembers prepared claims.

    ``prefix`` is the first part of the driver's name: the devices of ``gpu.example.com`` are
    ``gpu-0``, ``gpu-1`` and so on. ``pool`` is the name of their pool.
    """

    def __init__(
        self,
        name: str = "gpu.example.com",
        devices: int = 8,
        kubelet: HasClaims | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        claims: ClaimSource | None = None,
        services: Sequence[str] = SERVICES,
        pool: str = "mock",
        uid: str = "",
        cdi_dir: str | os.PathLike[str] | None = None,
        faults: DriverFaults | None = None,
    ) -> None:
        """``kubelet`` sets ``root``, its directory, and ``claims``, from which the driver reads
        allocations. ``services`` is reported to the kubelet, and all services in it are served.
        With ``uid``, the sockets are those of a rolling update. ``cdi_dir`` is ``<root>/cdi`` by
        default.

        Raises ValueError for a number of devices below 1 or a missing root, and SocketPathError
        if the path of a socket is too long.
        """
        if devices < 1:
            raise ValueError(f"invalid number of devices {devices}: use 1 or more")
        if root is None:
            if kubelet is None:
                raise ValueError("missing root: set kubelet, or root to the kubelet's directory")
            root = kubelet.root
        self.name = name
        self.pool = pool
        self.root = Path(root)
        prefix = name.partition(".")[0]
        self.devices = tuple(f"{prefix}-{number}" for number in range(devices))
        """Names of the devices."""
        self.faults = faults or DriverFaults()
        self.cdi_dir = Path(cdi_dir) if cdi_dir is not None else self.root / "cdi"
        if claims is None and kubelet is not None:
            claims = kubelet.resource_claim
        self._claims = claims
        self._cdi = CdiFiles(self.cdi_dir, name)
        self.sockets = DriverSockets(
            name,
            self.root,
            services,
            self._add_to,
            uid=uid,
            ready=lambda: not self.faults.not_ready,
        )
        self._changed = threading.Condition()
        """Guards the fields below."""
        self._prepared: dict[str, tuple[_Device, ...]] = {}
        self._calls: list[DriverCall] = []
        self._health = {device: _Health() for device in self.devices}
        self._reports = 0
        self._is_running = False
        self._stream_ends = 0

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Start to serve. Raises OSError if a socket cannot be created."""
        self._is_running = True
        try:
            self.sockets.start()
        except BaseException:
            self._is_running = False
            raise
        return self

    def stop(self) -> None:
        """Stop as after SIGTERM: wait ``faults.stop_delay``, and remove the sockets. Idempotent."""
        if self._is_running and self.faults.stop_delay:
            time.sleep(self.faults.stop_delay)
        self._end()
        self.sockets.stop()

    def kill(self) -> None:
        """Stop as after SIGKILL: immediately, and leave the sockets."""
        self._end()
        self.sockets.stop(leave_sockets=True)

    def _end(self) -> None:
        with self._changed:
            self._is_running = False
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_registered(self, timeout: float = 10.0) -> bool:
        """Wait until the kubelet has registered the driver; return False after ``timeout``."""
        return self.sockets.wait_registered(timeout)

    # -- state -----------------------------------------------------------------------

    @property
    def calls(self) -> tuple[DriverCall, ...]:
        """The calls of the kubelet so far, oldest first."""
        with self._changed:
            return tuple(self._calls)

    def wait_for_call(self, rpc: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Wait until this RPC was called ``count`` times; return False after ``timeout``."""

        def is_done() -> bool:
            return sum(call.rpc == rpc for call in self._calls) >= count

        with self._changed:
            return self._changed.wait_for(is_done, timeout)

    @property
    def prepared(self) -> dict[str, tuple[str, ...]]:
        """The prepared claims: UID → devices."""
        with self._changed:
            return {
                uid: tuple(each.device for each in devices)
                for uid, devices in self._prepared.items()
            }

    def cdi_path(self, uid: str) -> Path:
        """Return the path of the CDI file of a claim."""
        return self._cdi.path(uid)

    # -- health ----------------------------------------------------------------------

    def set_health(self, device: str, health: str, message: str = "", *, timeout: int = 0) -> None:
        """Report the health of a device: ``Healthy``, ``Unhealthy`` or ``Unknown``.

        ``timeout`` is in seconds; 0 means the kubelet's default. Raises ValueError for an unknown
        device or health.
        """
        if health not in _HEALTH:
            raise ValueError(f"invalid health {health!r}: use one of {', '.join(_HEALTH)}")
        if device not in self._health:
            raise ValueError(f"unknown device {device!r}: use one of {', '.join(self.devices)}")
        with self._changed:
            self._health[device] = _Health(health, message, timeout)
            self._reports += 1
            self._changed.notify_all()

    def end_health_stream(self) -> None:
        """End the health streams that are open."""
        with self._changed:
            self._stream_ends += 1
            self._changed.notify_all()

    def watch(self, context: grpc.ServicerContext) -> Iterator[_Report]:
        """Internal: yield a report now and after each change, until the stream ends."""
        context.add_callback(self._wake)
        with self._changed:
            ends, seen = self._stream_ends, -1

        def is_over() -> bool:
            return not self._is_running or self._stream_ends != ends or not context.is_active()

        while True:
            with self._changed:
                self._changed.wait_for(lambda: is_over() or self._reports != seen)  # noqa: B023
                if is_over():
                    return
                seen, report = self._reports, self._report()
            yield report

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _report(self) -> _Report:
        now = int(time.time())
        return _Report(
            devices=[
                health_api.DeviceHealth(
                    device=health_api.DeviceIdentifier(pool_name=self.pool, device_name=device),
                    health=_HEALTH[state.health],
                    last_updated_time=now,
                    health_check_timeout_seconds=state.timeout,
                    message=state.message,
                )
                for device, state in self._health.items()
            ]
        )

    # -- calls -----------------------------------------------------------------------

    def _add_to(self, server: grpc.Server) -> None:
        services = self.sockets.services
        if V1 in services:
            dra_v1_grpc.add_DRAPluginServicer_to_server(_Claims(self, "v1"), server)
        if V1BETA1 in services:
            # The messages of v1 are those of v1beta1, except for the field share_id.
            dra_v1beta1_grpc.add_DRAPluginServicer_to_server(_ClaimsV1beta1(self), server)
        if HEALTH_V1 in services:
            drahealth_v1_grpc.add_DRAResourceHealthServicer_to_server(_HealthV1(self), server)
        if HEALTH_V1ALPHA1 in services:
            alpha = _HealthV1alpha1(self)
            drahealth_v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(alpha, server)

    def begin(self, call: DriverCall, context: grpc.ServicerContext) -> None:
        """Internal: record a call, and apply the faults that fail it before its work is done."""
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()
        if self.faults.hang:
            self._hang(context)
        if self.faults.call_error:
            context.abort(grpc.StatusCode.UNKNOWN, self.faults.call_error)

    def end(self, context: grpc.ServicerContext, *, prepared: bool) -> None:
        """Internal: apply the faults that fail a call after its work was done."""
        if prepared and self.faults.crash_after_prepare:
            threading.Thread(target=self.kill, daemon=True).start()
            self._hang(context)
        if self.faults.hang_after:
            self._hang(context)

    def _hang(self, context: grpc.ServicerContext) -> None:
        context.add_callback(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running or not context.is_active())
        context.abort(grpc.StatusCode.UNAVAILABLE, "the driver has stopped")

    def prepare(self, namespace: str, name: str, uid: str) -> tuple[_Device, ...]:
        """Internal: prepare a claim and return its devices."""
        faults = self.faults
        if text := faults.claim_errors.get(uid) or faults.claim_errors.get(name):
            raise ClaimFailed(text)
        if faults.entry_error:
            raise ClaimFailed(faults.entry_error)
        with self._changed:
            devices = self._prepared.get(uid)
            if devices is None:
                devices = self._prepared[uid] = self._select(namespace, name, uid)
                self._changed.notify_all()
        try:
            # Written again for a repeated call: after a reboot, CDI files are gone.
            names = [(each.cdi[0].rpartition("=")[2], each.device) for each in devices]
            self._cdi.write(uid, names)
        except OSError as error:
            raise ClaimFailed(f"cannot write the CDI file: {error.strerror}") from error
        return devices

    def _select(self, namespace: str, name: str, uid: str) -> tuple[_Device, ...]:
        if self._claims is None:
            used = {each.device for devices in self._prepared.values() for each in devices}
            free = [device for device in self.devices if device not in used]
            if not free:
                raise ClaimFailed("no free device")
            return (self._device(uid, (), free[0], None),)
        claim = self._claims(namespace, name)
        if claim is None:
            raise ClaimFailed(f"claim {namespace}/{name} not found")
        if claim["metadata"]["uid"] != uid:
            raise ClaimFailed(f"claim {namespace}/{name} got replaced")
        allocation = claim.get("status", {}).get("allocation")
        if allocation is None:
            raise ClaimFailed(f"claim {namespace}/{name} not allocated")
        selected = []
        for result in allocation.get("devices", {}).get("results", ()):
            if result["driver"] != self.name:
                continue
            device = result["device"]
            if device not in self._health:
                raise ClaimFailed(f"device {device!r} is not a device of this driver")
            # Containers can only name the parent of a subrequest.
            request = str(result["request"]).partition("/")[0]
            selected.append(self._device(uid, (request,), device, result.get("shareID")))
        return tuple(selected)

    def _device(
        self, uid: str, requests: tuple[str, ...], device: str, share_id: str | None
    ) -> _Device:
        name = "-".join(filter(None, (uid, device, share_id)))
        cdi = (f"k8s.{self.name}/claim={name}",)
        return _Device(requests, self.pool, device, cdi, share_id)

    def unprepare(self, name: str, uid: str) -> None:
        """Internal: undo ``prepare``; do nothing for an unknown claim."""
        faults = self.faults
        if text := faults.claim_errors.get(uid) or faults.claim_errors.get(name):
            raise ClaimFailed(text)
        if faults.entry_error:
            raise ClaimFailed(faults.entry_error)
        self._cdi.remove(uid)
        with self._changed:
            self._prepared.pop(uid, None)
            self._changed.notify_all()


def _called(
    rpc: str, version: str, claims: Iterable[dra_v1.Claim]
) -> tuple[DriverCall, list[dra_v1.Claim]]:
    asked = list(claims)
    names = tuple((claim.namespace, claim.name, claim.uid) for claim in asked)
    return DriverCall(rpc, version, names), asked


class _Claims(dra_v1_grpc.DRAPluginServicer):
    def __init__(self, driver: SimulatedDriver, version: str) -> None:
        self._driver = driver
        self._version = version

    def NodePrepareResources(
        self, request: dra_v1.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra_v1.NodePrepareResourcesResponse:
        driver, faults = self._driver, self._driver.faults
        call, asked = _called("NodePrepareResources", self._version, request.claims)
        driver.begin(call, context)
        response = dra_v1.NodePrepareResourcesResponse()
        for claim in asked[: len(asked) - faults.missing_entry]:
            entry = response.claims[claim.uid]
            try:
                devices = driver.prepare(claim.namespace, claim.name, claim.uid)
            except ClaimFailed as error:
                entry.error = str(error)
                continue
            for each in () if faults.no_devices else devices * (1 + faults.duplicate):
                entry.devices.add(
                    request_names=() if faults.no_request_names else each.requests,
                    pool_name=each.pool,
                    device_name=each.device,
                    cdi_device_ids=each.cdi,
                    share_id=each.share_id if self._version == "v1" else None,
                )
        if faults.unknown_uid:
            response.claims[faults.unknown_uid].error = ""
        driver.end(context, prepared=True)
        return response

    def NodeUnprepareResources(
        self, request: dra_v1.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra_v1.NodeUnprepareResourcesResponse:
        driver, faults = self._driver, self._driver.faults
        call, asked = _called("NodeUnprepareResources", self._version, request.claims)
        driver.begin(call, context)
        response = dra_v1.NodeUnprepareResourcesResponse()
        for claim in asked[: len(asked) - faults.missing_entry]:
            entry = response.claims[claim.uid]
            try:
                driver.unprepare(claim.name, claim.uid)
            except ClaimFailed as error:
                entry.error = str(error)
        if faults.unknown_uid:
            response.claims[faults.unknown_uid].error = ""
        driver.end(context, prepared=False)
        return response


class _ClaimsV1beta1(dra_v1beta1_grpc.DRAPluginServicer):
    """v1beta1 by way of v1: the bytes are the same, because no response has a share ID."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self._claims = _Claims(driver, "v1beta1")

    def NodePrepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:
        asked = dra_v1.NodePrepareResourcesRequest.FromString(request.SerializeToString())
        response = self._claims.NodePrepareResources(asked, context)
        return _as(dra_v1beta1.NodePrepareResourcesResponse, response)

    def NodeUnprepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:
        asked = dra_v1.NodeUnprepareResourcesRequest.FromString(request.SerializeToString())
        response = self._claims.NodeUnprepareResources(asked, context)
        return _as(dra_v1beta1.NodeUnprepareResourcesResponse, response)


def _as(kind: type[Any], response: Any) -> Any:
    return kind.FromString(response.SerializeToString())


class _HealthV1(drahealth_v1_grpc.DRAResourceHealthServicer):
    def __init__(self, driver: SimulatedDriver) -> None:
        self._driver = driver

    def NodeWatchResources(
        self, request: object, context: grpc.ServicerContext
    ) -> Iterator[_Report]:
        return self._driver.watch(context)


class _HealthV1alpha1(drahealth_v1alpha1_grpc.DRAResourceHealthServicer):
    """v1alpha1 by way of v1: both have the same messages."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self._driver = driver

    def NodeWatchResources(self, request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        for report in self._driver.watch(context):
            yield _as(drahealth_v1alpha1.NodeWatchResourcesResponse, report)
