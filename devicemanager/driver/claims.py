"""Prepare and unprepare claims: call the author's methods and store the results.

A prepare has four steps. The driver recovers from a crash after each of them:
1. The claim is stored without a result. From now on, the author's ``unprepare`` is called for it.
2. The author's ``prepare`` is called.
3. The result is stored, with the content of all files.
4. The files are written.
If a result is stored, a repeated call only writes missing files. After a reboot, the author's
``prepare`` is called again, because the devices have lost their state.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc

from devicemanager.client.errors import ClientClosing, ClusterError
from devicemanager.driver.allocation import base_request, read_claim
from devicemanager.driver.author import Driver
from devicemanager.driver.cdi import CdiFiles, container_edits
from devicemanager.driver.checkpoint import Checkpoint, Entry, StoredDevice
from devicemanager.driver.errors import ClaimError
from devicemanager.driver.files import write_files
from devicemanager.driver.lock import CallLock
from devicemanager.driver.metadata import MetadataFiles
from devicemanager.driver.services import Report, Version
from devicemanager.driver.values import AllocatedDevice, Attribute, Claim, PreparedDevice
from devicemanager.plugin.common.hooks import call_hook, error_text
from protos import dra_v1

__all__ = ["ClaimService"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

FindClaim = Callable[[str, str], Mapping[str, Any] | None]
"""Function that returns a ResourceClaim by namespace and name; None if it does not exist."""

# UIDs become parts of file names.
_SAFE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")


class ClaimService:
    """Handler of the kubelet's calls for claims, one call at a time. Implements ``Services``."""

    def __init__(
        self,
        name: str,
        driver: Driver,
        find: FindClaim,
        lock: CallLock,
        checkpoint: Checkpoint,
        cdi: CdiFiles,
        *,
        boot: str,
        metadata: MetadataFiles | None,
        published: Callable[[AllocatedDevice], Mapping[str, Attribute] | None],
        watch_health: Callable[[grpc.ServicerContext], Iterator[Report]],
    ) -> None:
        """Create the service.

        ``metadata`` provides the metadata files of devices; if it is None, no such files are
        written. The function ``published`` returns the attributes of a device that the driver
        publishes, or None if the driver does not publish the device.
        """
        self._name = name
        self._driver = driver
        self._find = find
        self._lock = lock
        self._checkpoint = checkpoint
        self._cdi = cdi
        self._boot = boot
        self._metadata = metadata
        self._published = published
        self.watch_health = watch_health

    # -- calls of the kubelet --------------------------------------------------------

    def prepare_claims(
        self, version: Version, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodePrepareResourcesResponse:
        """Handle NodePrepareResources. Each claim succeeds or fails separately."""
        # Requests to the API server can be slow. Send them before taking the lock.
        found = {claim.uid: self._look_up(claim) for claim in claims}
        response = dra_v1.NodePrepareResourcesResponse()
        try:
            with self._lock.held():
                for uid, claim in found.items():
                    _check_caller(context)
                    entry = response.claims[uid]
                    try:
                        entry.devices.extend(map(_message, self._prepare(claim)))
                    except ClaimError as error:
                        entry.error, entry.permanent_error = str(error), error.permanent
        except OSError as error:  # of the lock
            for uid in found:
                response.claims[uid].error = _file_error(error)
        return response

    def unprepare_claims(
        self, version: Version, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodeUnprepareResourcesResponse:
        """Handle NodeUnprepareResources. Each claim succeeds or fails separately."""
        response = dra_v1.NodeUnprepareResourcesResponse()
        try:
            with self._lock.held():
                for claim in claims:
                    _check_caller(context)
                    entry = response.claims[claim.uid]
                    try:
                        self._unprepare(_named(claim))
                    except ClaimError as error:
                        entry.error = str(error)
        except OSError as error:  # of the lock
            for claim in claims:
                response.claims[claim.uid].error = _file_error(error)
        return response

    def reclaim(self) -> None:
        """Unprepare claims whose ResourceClaim was deleted while the driver did not run.

        This is safe: a ResourceClaim that a pod uses cannot be deleted. Claims stay prepared if the
        API server is unavailable. Raises ClaimError if a claim cannot be unprepared; all other
        claims are tried first. Also raises ClaimError if a file cannot be read, written or locked.
        """
        errors = []
        try:
            with self._lock.held():
                entries = tuple(self._checkpoint.entries())
            # The lock is not held during the requests to the API server, which can take 20 s each:
            # the kubelet's calls would wait for the lock.
            for claim in [entry.claim for entry in entries if self._is_gone(entry.claim)]:
                with self._lock.held():
                    try:
                        self._unprepare(claim)
                    except ClaimError as error:
                        errors.append(error)
        except OSError as error:
            raise ClaimError(_file_error(error)) from error
        if errors:
            raise errors[0]

    # -- prepare ---------------------------------------------------------------------

    def _look_up(self, asked: dra_v1.Claim) -> Claim | ClaimError:
        """Return the claim with its allocation, from the checkpoint or the API server."""
        try:
            named = _named(asked)
            with self._lock.held():
                entry = self._checkpoint.entry(named.uid)
            # A stored result does not need the API server.
            return entry.claim if entry and self._is_current(entry) else self._read(named)
        except ClaimError as error:
            return error
        except OSError as error:
            return ClaimError(_file_error(error))

    def _read(self, claim: Claim) -> Claim:
        namespace, name = claim.namespace, claim.name
        try:
            found = self._find(namespace, name)
        except (ClusterError, ClientClosing) as error:
            raise ClaimError(f"retrieve claim {claim}: {error}") from error
        return read_claim(found, namespace, name, claim.uid, self._name)

    def _is_current(self, entry: Entry) -> bool:
        return entry.devices is not None and entry.boot == self._boot

    def _prepare(self, claim: Claim | ClaimError) -> tuple[StoredDevice, ...]:
        """Prepare a claim, or return the stored result. Raises ClaimError."""
        if isinstance(claim, ClaimError):
            raise claim
        try:
            # Read the entry again: since the lookup, another call may have prepared this claim.
            entry = self._checkpoint.entry(claim.uid)
            if entry is None or not self._is_current(entry):
                entry = self._prepare_now(claim)
            # Do this for a stored result, too: the driver can have crashed before it wrote the
            # files.
            write_files({Path(path): text for path, text in entry.files.items()})
        except OSError as error:
            raise ClaimError(_file_error(error)) from error
        return entry.devices or ()

    def _prepare_now(self, claim: Claim) -> Entry:
        for each in claim.devices:
            # The scheduler works with a cache of the slices, so it can allocate a device that was
            # removed.
            if self._published(each) is None:
                raise ClaimError(f"device {each.pool}/{each.device} is not published")
        self._check_free(claim)
        # Store the claim before the author's method changes a device. After a crash, this entry is
        # the only sign that the claim must be unprepared.
        self._checkpoint.set(Entry(claim=claim, boot=self._boot))

        def prepare() -> Entry:
            return self._result(claim, _checked(claim, self._driver.prepare(claim)))

        entry = _called("prepare()", prepare)
        self._checkpoint.set(entry)
        return entry

    def _check_free(self, claim: Claim) -> None:
        """Raise ClaimError if another claim uses a device. A scheduler with a bug could cause
        this."""
        for entry in tuple(self._checkpoint.entries()):
            held = [device for device in claim.devices if entry.holds(device)]
            if entry.claim.uid == claim.uid or not held:
                continue
            if not self._is_gone(entry.claim):
                raise ClaimError(f"device {held[0].device} is in use by claim {entry.claim}")
            # ``reclaim`` runs only at the start, so a claim that was deleted later is unprepared
            # here.
            self._unprepare(entry.claim)

    def _is_gone(self, claim: Claim) -> bool:
        try:
            found = self._find(claim.namespace, claim.name)
        # If the state is unknown, the claim counts as existing: its pod may still use the devices.
        except (ClusterError, ClientClosing):
            return False
        return found is None or found["metadata"]["uid"] != claim.uid

    def _result(self, claim: Claim, devices: Sequence[PreparedDevice]) -> Entry:
        # The number makes the names unique: two shares of a device, or devices of two pools, can
        # have the same device name.
        names = [
            f"{claim.uid}-{number}-{each.device.device}" for number, each in enumerate(devices)
        ]
        edits = dict(zip(names, map(container_edits, devices), strict=True))
        contents = self._cdi.contents(claim.uid, edits)
        mounted = self._add_metadata(claim, devices, contents)
        stored = []
        for name, each in zip(names, devices, strict=True):
            ids = [self._cdi.id(name)] if edits[name] else []
            ids += each.settings.cdi_devices
            # A container needs the metadata file of a request once, even with several devices.
            ids += mounted.pop(each.device.request, ())
            stored.append(_stored(each.device, ids))
        files = {str(path): text for path, text in contents.items()}
        return Entry(claim=claim, boot=self._boot, devices=tuple(stored), files=files)

    def _add_metadata(
        self, claim: Claim, devices: Sequence[PreparedDevice], contents: dict[Path, str]
    ) -> dict[str, tuple[str, ...]]:
        """Add the metadata files to ``contents``. Return the CDI IDs by request."""
        metadata = self._metadata
        if metadata is None:
            return {}
        pairs = [
            (each, (self._published(each.device) or {}) if each.metadata is None else each.metadata)
            for each in devices
        ]
        contents |= metadata.contents(claim, pairs)
        requests = {each.device.request for each in devices}
        return {request: (metadata.id(claim, request),) for request in requests}

    # -- unprepare -------------------------------------------------------------------

    def _unprepare(self, claim: Claim) -> None:
        """Unprepare a claim. For an unknown claim, only remove its files. Raises ClaimError."""
        try:
            entry = self._checkpoint.entry(claim.uid)
            if entry is not None:
                known = entry.claim
                _called("unprepare()", lambda: self._driver.unprepare(known))
            # Do this even without an entry: the checkpoint may have been lost.
            self._cdi.remove(claim.uid)
            if self._metadata is not None:
                self._metadata.remove(claim)
            # This comes last: if an earlier step fails, the kubelet's next call repeats all steps.
            self._checkpoint.remove(claim.uid)
        except OSError as error:
            raise ClaimError(_file_error(error)) from error


def _file_error(error: OSError) -> str:
    # A full disk has no file name.
    return f"cannot read or write {error.filename or 'a file'}: {error.strerror}"


def _check_caller(context: grpc.ServicerContext) -> None:
    """End a call whose deadline has passed: the kubelet may have unprepared the claim since."""
    if not context.is_active():
        context.abort(grpc.StatusCode.CANCELLED, "call cancelled, or its deadline has passed")


def _named(claim: dra_v1.Claim) -> Claim:
    """Return the claim of a request, without devices. Raises ClaimError for an invalid name."""
    for text in (claim.uid, claim.namespace, claim.name):
        if not _SAFE.fullmatch(text):
            raise ClaimError(
                f"invalid claim {claim.namespace}/{claim.name} with UID {claim.uid!r}: "
                "expected letters, digits, -, _ and . in names and UID"
            )
    return Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid, devices=())


def _called(what: str, method: Callable[[], T]) -> T:
    """Call a method of the author. Raises ClaimError if the method raises any exception."""
    try:
        return call_hook(method)
    # The author chose this message for the kubelet, so it gets no prefix and no traceback.
    except ClaimError:
        raise
    except Exception as error:
        _log.exception("%s failed", what)
        raise ClaimError(f"{what} failed: {error_text(error)}") from error


def _checked(claim: Claim, prepared: Iterable[PreparedDevice]) -> tuple[PreparedDevice, ...]:
    devices = tuple(prepared)
    for each in devices:
        if not isinstance(each, PreparedDevice) or each.device not in claim.devices:
            raise ValueError(
                f"invalid result {each!r}: return device.prepared(…) for devices of the claim"
            )
    return devices


def _stored(device: AllocatedDevice, ids: Iterable[str]) -> StoredDevice:
    return StoredDevice(
        request=base_request(device.request),
        pool=device.pool,
        device=device.device,
        share_id=device.share_id,
        cdi_ids=tuple(ids),
    )


def _message(device: StoredDevice) -> dra_v1.Device:
    return dra_v1.Device(
        request_names=[device.request],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None,
    )
