"""Rules for the status of ResourceClaims (``ValidateResourceClaimStatusUpdate``, v1.37).

Each check yields one ``FieldError`` per broken rule; ``at`` is the path of the checked field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from devicemanager.objects.dra import formats, nodes
from devicemanager.objects.dra.claims import (
    MAX_RESULTS,
    RequestNames,
    configuration,
    raw_object,
)
from devicemanager.objects.dra.errors import (
    Errors,
    declared,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)
from devicemanager.objects.dra.lists import bounded, items, unique
from devicemanager.objects.dra.slices import binding

__all__ = ["claim_status", "drop_deallocated"]

_Object = Mapping[str, Any]
_MAX_USERS: Final = 256
_MAX_CONFIGS: Final = 64
_MAX_CONDITIONS: Final = 8
_MAX_DATA: Final = 10 * 1024
_MAX_ADDRESSES: Final = 16
_MAX_INTERFACE: Final = 256
_MAX_HARDWARE: Final = 128
_SOURCES: Final = ("FromClaim", "FromClass")

_DeviceID = tuple[str, str, str, str]
"""Driver, pool, device and share ID."""


def claim_status(status: _Object, old: _Object, spec: _Object, *, is_deleted: bool) -> Errors:
    """Check a new status of a claim. ``is_deleted``: True if the claim has a deletion timestamp."""
    users = status.get("reservedFor")
    yield from unique(
        "status.reservedFor", users, _MAX_USERS, _user, lambda each: each.get("uid", "")
    )
    allocation = status.get("allocation")
    allocated = _allocated(status)

    def device(at: str, found: _Object) -> Errors:
        return _device(at, found, allocated)

    entries = [_complete(each) for each in status.get("devices") or ()]
    yield from unique("status.devices", entries, None, device, _id)
    yield from _reserved(users, allocation, old, is_deleted)
    if allocation is None:
        return
    # Only a new allocation is checked in full, because an existing one cannot change.
    if (before := old.get("allocation")) is None:
        yield from _allocation("status.allocation", allocation, RequestNames(_devices(spec)))
    elif before != allocation:
        rule = "field cannot be modified once set"
        yield from declared([invalid("status.allocation", None, rule)])


def _devices(value: _Object) -> _Object:
    found: _Object = value.get("devices") or {}
    return found


def _results(status: _Object) -> list[_Object]:
    return _devices(status.get("allocation") or {}).get("results") or []


def _id(value: _Object) -> _DeviceID:
    driver, pool, device = (value.get(each, "") for each in ("driver", "pool", "device"))
    return driver, pool, device, value.get("shareID") or ""


def _complete(entry: _Object) -> dict[str, Any]:
    """Return an entry of ``devices`` with the fields that upstream always writes, in that order."""
    named = {each: entry.get(each, "") for each in ("driver", "pool", "device")}
    share = {"shareID": entry["shareID"]} if "shareID" in entry else {}
    conditions = {"conditions": entry.get("conditions")}
    return named | share | conditions | dict(entry)


def _allocated(status: _Object) -> set[_DeviceID]:
    return {_id(each) for each in _results(status)}


def drop_deallocated(status: dict[str, Any], old: _Object) -> None:
    """Remove entries of ``devices`` whose device is no longer allocated.

    The API server removes such entries in each update (``dropDeallocatedStatusDevices``).
    """
    # Only devices that lost their allocation. An entry of a device that was never allocated
    # stays, so that ``claim_status`` rejects it.
    gone = _allocated(old) - _allocated(status)
    kept = [each for each in status.get("devices") or () if _id(each) not in gone]
    status.pop("devices", None)
    if kept:
        status["devices"] = kept


# -- users -------------------------------------------------------------------------------


def _user(at: str, user: _Object) -> Errors:
    for name in ("resource", "name", "uid"):
        if not user.get(name):
            yield required(f"{at}.{name}")


def _reserved(users: Any, allocation: Any, old: _Object, is_deleted: bool) -> Errors:
    if not users:
        return
    if allocation is None:
        yield forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif is_deleted and any(each not in (old.get("reservedFor") or ()) for each in users):
        rule = (
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
            "are set"
        )
        yield forbidden("status.reservedFor", rule)


# -- allocation --------------------------------------------------------------------------


def _allocation(at: str, allocation: _Object, names: RequestNames) -> Errors:
    devices = _devices(allocation)

    def result(path: str, found: _Object) -> Errors:
        yield from names.reference(f"{path}.request", found.get("request", ""))
        yield from _result(path, found)

    def config(path: str, found: _Object) -> Errors:
        yield from _source(f"{path}.source", found.get("source", ""))
        yield from names.references(f"{path}.requests", found.get("requests"))
        yield from configuration(path, found)

    results = devices.get("results")
    yield from bounded(f"{at}.devices.results", results, MAX_RESULTS, result)
    yield from bounded(f"{at}.devices.config", devices.get("config"), _MAX_CONFIGS, config)
    if (selector := allocation.get("nodeSelector")) is not None:
        yield from nodes.node_selector(f"{at}.nodeSelector", selector)


def _result(at: str, result: _Object) -> Errors:
    yield from formats.declared_driver_name(f"{at}.driver", result.get("driver", ""))
    yield from formats.declared_pool_name(f"{at}.pool", result.get("pool", ""))
    yield from formats.short_name(f"{at}.device", result.get("device", ""))
    yield from binding(at, result)
    yield from items(f"{at}.tolerations", result.get("tolerations"), nodes.toleration)
    yield from _share(at, result)


def _share(at: str, value: _Object) -> Errors:
    if (share := value.get("shareID")) is not None:
        yield from formats.uuid(f"{at}.shareID", share)


def _source(at: str, source: str) -> Errors:
    if not source:
        yield from declared([required(at)])
    elif source not in _SOURCES:
        yield from declared([unsupported(at, source, _SOURCES)])


# -- devices -----------------------------------------------------------------------------


def _device(at: str, device: _Object, allocated: set[_DeviceID]) -> Errors:
    yield from formats.driver_name(f"{at}.driver", device.get("driver", ""))
    yield from formats.pool_name(f"{at}.pool", device.get("pool", ""))
    yield from formats.short_name(f"{at}.device", device.get("device", ""))
    yield from _share(at, device)
    if (found := _id(device)) not in allocated:
        yield invalid(at, _shown(found), "must be an allocated device in the claim")
    yield from nodes.conditions(f"{at}.conditions", device.get("conditions"), _MAX_CONDITIONS)
    if device.get("data") is not None:
        yield from raw_object(f"{at}.data", device["data"], _MAX_DATA)
    yield from _network(f"{at}.networkData", device.get("networkData") or {})


def _shown(device: _DeviceID) -> dict[str, str]:
    driver, pool, name, share = device
    # The message shows a Go struct without JSON tags, so its field names are capitalized.
    return {"Driver": driver, "Pool": pool, "Device": name, "ShareID": share}


def _network(at: str, data: _Object) -> Errors:
    for name, most in (("interfaceName", _MAX_INTERFACE), ("hardwareAddress", _MAX_HARDWARE)):
        if formats.length(data.get(name) or "") > most:
            yield from declared([too_long(f"{at}.{name}", most)])
    addresses = data.get("ips")
    yield from unique(f"{at}.ips", addresses, _MAX_ADDRESSES, formats.interface_address, str)
