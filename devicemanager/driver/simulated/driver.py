"""The simulated driver.

NodePrepareResources reads the devices of a claim from its ResourceClaim. The driver's argument
``kubelet`` or ``claims`` provides the ResourceClaim. If neither is given, the driver gives each
claim the next free device. NodePrepareResources writes a CDI file with one CDI device for each
device of the claim, and responds with the devices. It is idempotent: a repeated call returns the
same response and writes a missing CDI file again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import attrs
import grpc

from devicemanager.driver.allocation import base_request, read_claim
from devicemanager.driver.cdi import CdiFiles
from devicemanager.driver.errors import ClaimError
from devicemanager.driver.files import write_files
from devicemanager.driver.health import health_message
from devicemanager.driver.paths import in_kubelet_directory
from devicemanager.driver.services import SERVICES, Report, Version, add_services
from devicemanager.driver.simulated.faults import DriverFaults
from devicemanager.driver.sockets import DriverSockets
from devicemanager.driver.values import DeviceHealth, Health
from protos import dra_v1

__all__ = ["DriverCall", "HasClaims", "SimulatedDriver"]


class HasClaims(Protocol):
    """Interface of a mock kubelet, with only the members that a simulated driver uses."""

    @property
    def root(self) -> Path: ...

    def resource_claim(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a ResourceClaim as in the API (v1); None if it does not exist."""


ClaimSource = Callable[[str, str], Mapping[str, Any] | None]
"""Function that returns a ResourceClaim (v1) by namespace and name; None if it does not exist."""


@attrs.frozen
class DriverCall:
    """A call that the driver received."""

    rpc: str
    version: str
    """Version of the service that was called: ``v1`` or ``v1beta1``."""
    claims: tuple[tuple[str, str, str], ...]
    """Namespace, name and UID of each claim."""


@attrs.frozen
class _Device:
    requests: tuple[str, ...]
    pool: str
    device: str
    cdi: str
    """Name of the device in the claim's CDI file."""
    share_id: str


class SimulatedDriver:
    """Driver with virtual devices ``<prefix>-0``, ``<prefix>-1`` and so on. Thread-safe.

    ``start`` serves in the background until ``stop``. A ``with`` block calls both. A stopped driver
    can be started again and remembers prepared claims.

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
        """``root``: the kubelet's directory. ``claims``: function that returns ResourceClaims, from
        which the driver reads allocations. ``kubelet``: mock kubelet that provides ``root`` and
        ``claims`` if they are None. ``services``: services to report to the kubelet and to serve.
        ``uid``: UID of the driver's pod, which becomes part of the socket names, as for a rolling
        update. ``cdi_dir``: by default ``<root>/cdi``.

        Raises ValueError for a number of devices below 1 or a missing root, and SocketPathError if
        the path of a socket is too long.
        """
        if devices < 1:
            raise ValueError(f"invalid number of devices {devices}: use 1 or more")
        if root is None:
            if kubelet is None:
                raise ValueError("missing root: set kubelet, or set root to its directory")
            root = kubelet.root
        self.name = name
        self.pool = pool
        self.root = Path(root)
        prefix = name.partition(".")[0]
        self.devices = tuple(f"{prefix}-{number}" for number in range(devices))
        """Device names."""
        self.faults = faults or DriverFaults()
        self.cdi_dir = Path(cdi_dir) if cdi_dir is not None else self.root / "cdi"
        if claims is None and kubelet is not None:
            claims = kubelet.resource_claim
        self._claims = claims
        self._cdi = CdiFiles(self.cdi_dir, name)
        self.sockets = DriverSockets(
            name,
            in_kubelet_directory(name, self.root, uid),
            services,
            lambda server: add_services(self, services, server),
            # Read at each GetInfo: a test can change the faults while the driver runs.
            ready=lambda: not self.faults.not_ready,
        )
        self._changed = threading.Condition()
        """Condition variable that guards all private fields that change while the driver runs, such
        as ``_prepared``."""
        self._prepared: dict[str, tuple[_Device, ...]] = {}
        self._calls: list[DriverCall] = []
        # With the timeout 0, the kubelet uses its default.
        self._health = {device: DeviceHealth(device, timeout=0) for device in self.devices}
        self._reports = 0
        self._is_running = False
        self._stream_ends = 0

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Start serving. Raises OSError if a socket cannot be created."""
        # Before the sockets are served: a health stream ends when it finds a stopped driver.
        self._is_running = True
        try:
            self.sockets.start()
        except BaseException:
            # A driver that did not start counts as stopped, so that ``stop`` does not wait.
            self._is_running = False
            raise
        return self

    def stop(self) -> None:
        """Stop as after SIGTERM: wait ``faults.stop_delay`` seconds, then remove the sockets.
        Idempotent."""
        # Only a running driver waits: a repeated ``stop`` returns immediately.
        if self._is_running and self.faults.stop_delay:
            time.sleep(self.faults.stop_delay)
        # First end the streams and the hanging calls, so that the sockets need not wait for them.
        self._end()
        self.sockets.stop()

    def kill(self) -> None:
        """Stop as after SIGKILL: immediately, without removing the sockets."""
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
        """Wait until the kubelet has registered the driver. Return False after ``timeout``
        seconds."""
        return self.sockets.wait_registered(timeout)

    # -- state -----------------------------------------------------------------------

    @property
    def calls(self) -> tuple[DriverCall, ...]:
        """The calls of the kubelet so far, oldest first."""
        with self._changed:
            return tuple(self._calls)

    def wait_for_call(self, rpc: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Wait until this RPC has been called ``count`` times. Return False after ``timeout``
        seconds."""

        def is_done() -> bool:
            return sum(call.rpc == rpc for call in self._calls) >= count

        with self._changed:
            return self._changed.wait_for(is_done, timeout)

    @property
    def prepared(self) -> dict[str, tuple[str, ...]]:
        """Names of prepared devices, by claim UID."""
        with self._changed:
            return {
                uid: tuple(each.device for each in devices)
                for uid, devices in self._prepared.items()
            }

    def cdi_path(self, uid: str) -> Path:
        """Return the path of the CDI file of a claim."""
        return self._cdi.path(uid)

    # -- health ----------------------------------------------------------------------

    def set_health(
        self, device: str, health: Health, message: str = "", *, timeout: int = 0
    ) -> None:
        """Report the health of a device: ``Healthy``, ``Unhealthy`` or ``Unknown``.

        ``timeout`` is in seconds; 0 means the kubelet's default. Raises ValueError for an unknown
        device or health.
        """
        if device not in self._health:
            raise ValueError(f"unknown device {device!r}: use one of {', '.join(self.devices)}")
        state = DeviceHealth(device, health, message, timeout=timeout)
        with self._changed:
            self._health[device] = state
            self._reports += 1
            self._changed.notify_all()

    def end_health_stream(self) -> None:
        """End all open health streams."""
        with self._changed:
            self._stream_ends += 1
            self._changed.notify_all()

    def watch_health(self, context: grpc.ServicerContext) -> Iterator[Report]:
        """Internal: yield the health of all devices now and after each change, until the stream
        ends."""
        # Without this callback, the wait below would not notice that the kubelet closed the stream.
        context.add_callback(self._wake)
        with self._changed:
            # A count, not a flag: a stream that opens after ``end_health_stream`` must not end. The
            # number of reports is never -1, so the first report is sent immediately.
            ends, seen = self._stream_ends, -1

        def is_over() -> bool:
            return not self._is_running or self._stream_ends != ends or not context.is_active()

        while True:
            with self._changed:
                self._changed.wait_for(lambda: is_over() or self._reports != seen)  # noqa: B023
                if is_over():
                    return
                seen, report = self._reports, self._report()
            # Without the lock: the generator stays suspended here while gRPC sends the report.
            yield report

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _report(self) -> Report:
        now = time.time()
        return Report(
            devices=[health_message(each, self.pool, now) for each in self._health.values()]
        )

    # -- calls -----------------------------------------------------------------------

    def prepare_claims(
        self, version: Version, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodePrepareResourcesResponse:
        """Internal: handle NodePrepareResources."""
        self._begin("NodePrepareResources", version, claims, context)
        response = dra_v1.NodePrepareResourcesResponse()
        for claim in self._answered(claims):
            entry = response.claims[claim.uid]
            try:
                devices = self._prepare(claim)
            # An error of one claim must not fail the other claims of the call.
            except ClaimError as error:
                entry.error, entry.permanent_error = str(error), error.permanent
            else:
                entry.devices.extend(map(self._message, self._reported(devices)))
        self._add_unknown(response.claims)
        self._finish(context, prepared=True)
        return response

    def unprepare_claims(
        self, version: Version, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodeUnprepareResourcesResponse:
        """Internal: handle NodeUnprepareResources."""
        self._begin("NodeUnprepareResources", version, claims, context)
        response = dra_v1.NodeUnprepareResourcesResponse()
        for claim in self._answered(claims):
            entry = response.claims[claim.uid]
            try:
                self._unprepare(claim)
            except ClaimError as error:
                entry.error = str(error)
        self._add_unknown(response.claims)
        self._finish(context, prepared=False)
        return response

    def _begin(
        self,
        rpc: str,
        version: Version,
        claims: Sequence[dra_v1.Claim],
        context: grpc.ServicerContext,
    ) -> None:
        """Record a call, and apply the faults that fail a call before its claims are handled."""
        names = tuple((claim.namespace, claim.name, claim.uid) for claim in claims)
        with self._changed:
            # Recorded before the faults act: tests also wait for calls that get no response.
            self._calls.append(DriverCall(rpc, version, names))
            self._changed.notify_all()
        if self.faults.hang:
            self._hang(context)
        if self.faults.call_error:
            context.abort(grpc.StatusCode.UNKNOWN, self.faults.call_error)

    def _finish(self, context: grpc.ServicerContext, *, prepared: bool) -> None:
        """Apply the faults that fail a call after its claims were handled."""
        if prepared and self.faults.crash_after_prepare:
            # Another thread kills the driver while this one hangs, so that the kubelet gets no
            # response.
            threading.Thread(target=self.kill, daemon=True).start()
            self._hang(context)
        if self.faults.hang_after:
            self._hang(context)

    def _hang(self, context: grpc.ServicerContext) -> None:
        # Wakes the wait below when the deadline passes or the kubelet's connection breaks.
        context.add_callback(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running or not context.is_active())
        context.abort(grpc.StatusCode.UNAVAILABLE, "the driver has stopped")

    def _answered(self, claims: Sequence[dra_v1.Claim]) -> Sequence[dra_v1.Claim]:
        return claims[: len(claims) - self.faults.missing_entry]

    def _add_unknown(self, entries: MutableMapping[str, Any]) -> None:
        if self.faults.unknown_uid:
            # Protobuf creates the entry of a map when it is accessed; the error stays empty.
            entries[self.faults.unknown_uid].error = ""

    def _reported(self, devices: Sequence[_Device]) -> Sequence[_Device]:
        return () if self.faults.no_devices else [*devices] * (1 + self.faults.duplicate)

    def _message(self, device: _Device) -> dra_v1.Device:
        return dra_v1.Device(
            request_names=() if self.faults.no_request_names else device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=[self._cdi.id(device.cdi)],
            share_id=device.share_id or None,
        )

    # -- claims ----------------------------------------------------------------------

    def _fail(self, claim: dra_v1.Claim) -> None:
        """Raise the error that a fault sets for a claim."""
        faults = self.faults
        errors = faults.claim_errors
        # The UID first, because claims in different namespaces can have the same name.
        if text := errors.get(claim.uid) or errors.get(claim.name) or faults.entry_error:
            raise ClaimError(text)

    def _prepare(self, claim: dra_v1.Claim) -> tuple[_Device, ...]:
        """Prepare a claim and return its devices. Raises ClaimError."""
        self._fail(claim)
        if self.faults.permanent_error:
            raise ClaimError(self.faults.permanent_error, permanent=True)
        with self._changed:
            # Selected and stored under one lock: two claims must not get the same free device.
            devices = self._prepared.get(claim.uid)
            if devices is None:
                devices = self._prepared[claim.uid] = self._select(claim)
                self._changed.notify_all()
        try:
            # Write it again for a repeated call: CDI files are gone after a reboot.
            edits = {each.cdi: _edits(each.device) for each in devices}
            write_files(self._cdi.contents(claim.uid, edits))
        except OSError as error:
            raise ClaimError(f"cannot write the CDI file: {error.strerror}") from error
        return devices

    def _select(self, claim: dra_v1.Claim) -> tuple[_Device, ...]:
        if self._claims is None:
            return (self._device(claim.uid, (), self.pool, self._free_device()),)
        namespace, name = claim.namespace, claim.name
        found = read_claim(self._claims(namespace, name), namespace, name, claim.uid, self.name)
        for each in found.devices:
            if each.device not in self._health:
                raise ClaimError(f"device {each.device!r} is not a device of this driver")
        # As Go's kubeletplugin helper does, report requests without the names of subrequests.
        return tuple(
            self._device(
                claim.uid, (base_request(each.request),), each.pool, each.device, each.share_id
            )
            for each in found.devices
        )

    def _free_device(self) -> str:
        used = {each.device for devices in self._prepared.values() for each in devices}
        for device in self.devices:
            if device not in used:
                return device
        raise ClaimError(f"no free device: other claims use all {len(self.devices)} devices")

    def _device(
        self, uid: str, requests: tuple[str, ...], pool: str, device: str, share_id: str = ""
    ) -> _Device:
        # With the share ID, because a claim can contain several shares of one device.
        name = "-".join(filter(None, (uid, device, share_id)))
        return _Device(requests, pool, device, name, share_id)

    def _unprepare(self, claim: dra_v1.Claim) -> None:
        """Undo ``_prepare``; do nothing for an unknown claim. Raises ClaimError."""
        self._fail(claim)
        # The devices stay in use until their CDI file is gone.
        self._cdi.remove(claim.uid)
        with self._changed:
            self._prepared.pop(claim.uid, None)
            self._changed.notify_all()


def _edits(device: str) -> dict[str, list[str]]:
    # Device names can contain hyphens, which shells do not accept in names of variables.
    variable = "".join(char if char.isalnum() else "_" for char in device).upper()
    return {"env": [f"DRA_DEVICE_{variable}={device}"]}
