"""Descriptions of drivers, claims and slices, for tests of views."""

from __future__ import annotations

from typing import Any

from devicemanager.core.dra.report import (
    ClaimDevice,
    ClaimState,
    DraStatus,
    DriverInstance,
    ResourceClaimInfo,
    ResourceSliceInfo,
)

DRIVER = "gpu.example.com"


def driver(name: str = DRIVER, socket: str = "dra.sock", **more: Any) -> DriverInstance:
    facts = {"service": "v1", "health_service": None, "connected": True, **more}
    return DriverInstance(driver=name, endpoint=f"/plugins/{name}/{socket}", **facts)


def device(name: str = "gpu-0", **more: Any) -> ClaimDevice:
    facts: dict[str, Any] = {
        "driver": DRIVER,
        "pool": "mock",
        "share_id": None,
        "requests": ("gpu",),
        "prepared": True,
        "cdi_devices": (f"example.com/gpu={name}",),
        **more,
    }
    return ClaimDevice(device=name, **facts)


def claim(name: str = "gpu", **more: Any) -> ResourceClaimInfo:
    facts: dict[str, Any] = {
        "namespace": "default",
        "uid": f"uid-{name}",
        "state": ClaimState.PREPARED,
        "text": "prepared",
        "error": "",
        "pods": ("uid-train",),
        "held": True,
        "prepared": True,
        "unpreparing": False,
        "drivers": (DRIVER,),
        "devices": (device(),),
        **more,
    }
    return ResourceClaimInfo(name=name, **facts)


def slice_(name: str = "slice-1", *devices: str, **more: Any) -> ResourceSliceInfo:
    facts: dict[str, Any] = {"pool": "mock", "generation": 1, "nodes": "mock", **more}
    return ResourceSliceInfo(
        name=name, driver=DRIVER, devices=devices or ("gpu-0",), counter_sets=(), **facts
    )


def status(*claims: ResourceClaimInfo) -> DraStatus:
    return DraStatus(drivers=(driver(),), claims=claims or (claim(),), slices=(slice_(),))


def waiting(name: str = "other", **more: Any) -> ResourceClaimInfo:
    """A claim whose driver is not registered."""
    facts: dict[str, Any] = {
        "state": ClaimState.NO_DRIVER,
        "text": f"DRA driver {DRIVER} is not registered",
        "prepared": False,
        "devices": (device("gpu-1", prepared=False, cdi_devices=()),),
        **more,
    }
    return claim(name, **facts)
