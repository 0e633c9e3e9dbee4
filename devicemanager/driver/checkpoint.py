"""The driver's own checkpoint: the prepared claims and their results.

The kubelet repeats a call after a restart, a timeout or a reboot. It expects the same response, but
its call does not name the devices of the claim. Therefore the driver stores these devices.

The file is JSON: ``{"version": 1, "claims": {UID: entry}}``. It is read again if another instance
of the driver has replaced it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from devicemanager.driver.files import write_atomically
from devicemanager.driver.values import AllocatedDevice, Claim
from podresources.sockets import FileIdentity

__all__ = ["CHECKPOINT_FILE", "Checkpoint", "Entry", "StoredDevice"]

CHECKPOINT_FILE = "prepared_claims.json"
_VERSION = 1


@attrs.frozen(kw_only=True)
class StoredDevice:
    """A prepared device, as in the response to NodePrepareResources."""

    request: str
    pool: str
    device: str
    share_id: str
    cdi_ids: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Entry:
    """A claim in the checkpoint."""

    claim: Claim
    boot: str
    """ID of the boot in which the claim was prepared."""
    devices: tuple[StoredDevice, ...] | None = None
    """Prepared devices; None until the driver's method ``prepare`` has succeeded."""
    files: Mapping[str, str] = attrs.field(factory=dict)
    """Contents of the claim's CDI and metadata files, by path."""

    def holds(self, wanted: AllocatedDevice) -> bool:
        """True if another claim must not get the device ``wanted``, because this claim has it.

        Admin access and different shares of a device do not conflict.
        """
        return any(_conflict(held, wanted) for held in self.claim.devices)


def _conflict(held: AllocatedDevice, wanted: AllocatedDevice) -> bool:
    # Admin access is for monitoring and management. The scheduler grants it even for devices that
    # other claims have.
    if held.admin_access or wanted.admin_access:
        return False
    shares = held.share_id and wanted.share_id and held.share_id != wanted.share_id
    return (held.pool, held.device) == (wanted.pool, wanted.device) and not shares


class Checkpoint:
    """The checkpoint file in a driver's data directory. The caller must hold ``CallLock``."""

    def __init__(self, path: Path, report: Callable[[Exception, str], object]) -> None:
        """Use the checkpoint file at ``path``, which need not exist.

        A damaged file is renamed when it is read. ``report`` is then called with the error and a
        description of the problem.
        """
        self._path = path
        self._report = report
        self._read: FileIdentity | None = None
        self._entries: dict[str, Entry] = {}

    def entry(self, uid: str) -> Entry | None:
        """Return the entry of a claim; None if the claim is not in the checkpoint."""
        return self._fresh().get(uid)

    def entries(self) -> Iterator[Entry]:
        """Iterate over all entries, in the order of the claim UIDs."""
        return (entry for _, entry in sorted(self._fresh().items()))

    def set(self, entry: Entry) -> None:
        """Add or replace an entry. Raises OSError if the file cannot be written."""
        self._write({**self._fresh(), entry.claim.uid: entry})

    def remove(self, uid: str) -> None:
        """Remove the entry of a claim; do nothing if it does not exist. Raises OSError."""
        entries = self._fresh()
        if uid in entries:
            self._write({key: entry for key, entry in entries.items() if key != uid})

    def _fresh(self) -> dict[str, Entry]:
        identity = FileIdentity.of(self._path)
        # Each write replaces the file and so changes its identity. Only the first call and calls
        # after a write by another instance have to parse the file.
        if identity != self._read:
            self._entries = self._load()
            self._read = identity
        return self._entries

    def _load(self) -> dict[str, Entry]:
        try:
            return _decoded(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        # Without this, every call would fail until someone deletes the damaged file. Other OSErrors
        # are not caught: the file may be intact, and the next write would replace it.
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            aside = self._path.with_suffix(".corrupt")
            self._path.replace(aside)
            self._report(error, f"damaged checkpoint, moved to {aside}: continuing without it")
            return {}

    def _write(self, entries: dict[str, Entry]) -> None:
        content = {
            "version": _VERSION,
            "claims": {uid: attrs.asdict(entry) for uid, entry in sorted(entries.items())},
        }
        write_atomically(self._path, json.dumps(content).encode())
        # Only after the write: if it fails, the next call must see the entries that the file has.
        self._entries, self._read = entries, FileIdentity.of(self._path)


def _decoded(data: bytes) -> dict[str, Entry]:
    content = json.loads(data)
    if content["version"] != _VERSION:
        raise ValueError(f"unknown version {content['version']!r}")
    return {uid: _entry(value) for uid, value in content["claims"].items()}


def _entry(value: Mapping[str, Any]) -> Entry:
    devices = value["devices"]
    return Entry(
        claim=_claim(value["claim"]),
        boot=value["boot"],
        devices=None if devices is None else tuple(map(_stored, devices)),
        files=value["files"],
    )


def _claim(value: Mapping[str, Any]) -> Claim:
    return Claim(**{**value, "devices": tuple(map(_allocated, value["devices"]))})


def _allocated(value: Mapping[str, Any]) -> AllocatedDevice:
    return AllocatedDevice(**{**value, "parameters": tuple(value["parameters"])})


def _stored(value: Mapping[str, Any]) -> StoredDevice:
    return StoredDevice(**{**value, "cdi_ids": tuple(value["cdi_ids"])})
