"""The health of devices that drivers report: changes, timeouts, limits, and the pods concerned."""

from __future__ import annotations

import pytest

from devicemanager.core.dra import health as module
from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.health import (
    DeviceHealth,
    DeviceKey,
    HealthCache,
    ReportedDevice,
    holders,
)
from devicemanager.core.dra.model import ClaimInfo, DriverState, PreparedDevice
from devicemanager.core.status import Health
from tests.dra_world import GPU, NIC, rules

A, B = DeviceKey("pool", "a"), DeviceKey("pool", "b")


def made(version: str = "1.37") -> HealthCache:
    return HealthCache(rules(version))


def reported(device: str, health: Health = Health.HEALTHY, message: str = "", timeout: int = 0):
    return ReportedDevice("pool", device, health, message, timeout)


def test_report_returns_the_devices_that_changed():
    cache = made()
    assert cache.report(GPU, [reported("a"), reported("b")], 0.0) == {A, B}
    assert cache.report(GPU, [reported("a"), reported("b")], 1.0) == set()
    assert cache.report(GPU, [reported("a", Health.UNHEALTHY), reported("b")], 2.0) == {A}
    assert cache.report(
        GPU, [reported("a", Health.UNHEALTHY), reported("b", message="m")], 3.0
    ) == {B}
    assert cache.report(
        GPU, [reported("a", Health.UNHEALTHY, timeout=5), reported("b", message="m")], 4.0
    ) == {A}
    # Each driver has its own devices.
    assert cache.report(NIC, [reported("a")], 4.0) == {A}
    assert cache.snapshot() == {
        GPU: {
            A: DeviceHealth(Health.UNHEALTHY, "", 5.0, 4.0),
            B: DeviceHealth(Health.HEALTHY, "m", 30.0, 4.0),
        },
        NIC: {A: DeviceHealth(Health.HEALTHY, "", 30.0, 4.0)},
    }
    assert cache.snapshot()[GPU][A].updated == 4.0


def test_changes_are_counted_only_if_something_changed():
    cache = made()
    counts = [cache.changes]
    for devices, now in (([reported("a")], 0.0), ([reported("a")], 1.0), ([], 2.0), ([], 90.0)):
        cache.report(GPU, devices, now)
        counts.append(cache.changes)
    cache.clear(GPU)
    assert [*counts, cache.changes] == [0, 1, 1, 1, 2, 3]
    assert cache.snapshot() == {}
    cache.clear(GPU)  # a driver without a report is not an error


def test_snapshot_is_a_copy_and_can_be_loaded():
    cache = made()
    cache.report(GPU, [reported("a")], 5.0)
    copy = cache.snapshot()
    loaded = HealthCache(rules(), copy)
    loaded.report(GPU, [reported("b")], 6.0)
    copy[GPU].clear()
    assert list(cache.snapshot()[GPU]) == [A]
    assert list(loaded.snapshot()[GPU]) == [A, B]
    assert loaded.changes == 1


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(-1, 30.0), (0, 30.0), (1, 1.0), (10, 10.0), (45, 45.0)]
)
def test_health_is_unknown_after_its_timeout(timeout, seconds):
    cache = made()
    cache.report(GPU, [reported("a", message="m", timeout=timeout)], 100.0)
    assert cache.get(GPU, "pool", "a", 100.0 + seconds).health is Health.HEALTHY
    assert cache.get(GPU, "pool", "a", 100.5 + seconds) == DeviceHealth(Health.UNKNOWN)


@pytest.mark.parametrize(
    ("driver", "pool", "device"), [(NIC, "pool", "a"), (GPU, "other", "a"), (GPU, "pool", "b")]
)
def test_health_of_an_unreported_device_is_unknown(driver, pool, device):
    cache = made()
    cache.report(GPU, [reported("a")], 0.0)
    assert cache.get(driver, pool, device, 0.0) == DeviceHealth(Health.UNKNOWN)


@pytest.mark.parametrize(("version", "message"), [("1.35", ""), ("1.36", "too hot")])
def test_messages_are_shown_since_136(version, message):
    cache = made(version)
    cache.report(GPU, [reported("a", Health.UNHEALTHY, "too hot", 7)], 0.0)
    found = cache.get(GPU, "pool", "a", 0.0)
    assert found == DeviceHealth(Health.UNHEALTHY, message, 7.0)


@pytest.mark.parametrize(("version", "kept"), [("1.36", True), ("1.37", False)])
def test_device_that_is_missing_in_the_reports_becomes_unknown(version, kept):
    """The device changes once, after its timeout. Since 1.37 it is then forgotten."""
    cache = made(version)
    cache.report(GPU, [reported("b", timeout=90), reported("a", message="m")], 0.0)
    assert cache.report(GPU, [reported("b", timeout=90)], 30.0) == set()
    assert cache.report(GPU, [reported("b", timeout=90)], 31.0) == {A}
    expected = {B: DeviceHealth(Health.HEALTHY, "", 90.0)}
    if kept:
        expected[A] = DeviceHealth(Health.UNKNOWN)
        assert cache.snapshot()[GPU][A].updated == 31.0
    assert cache.snapshot()[GPU] == expected
    assert cache.report(GPU, [reported("b", timeout=90)], 62.0) == set()
    assert cache.report(GPU, [reported("a"), reported("b", timeout=90)], 63.0) == {A}


def test_unknown_device_is_forgotten_without_a_change():
    cache = made()
    cache.report(GPU, [reported("a", Health.UNKNOWN)], 0.0)
    assert cache.report(GPU, [], 31.0) == set()
    assert cache.snapshot() == {GPU: {}}
    assert cache.changes == 2


def test_reported_device_is_not_stale():
    cache = made()
    cache.report(GPU, [reported("a")], 0.0)
    assert cache.report(GPU, [reported("a")], 1000.0) == set()
    assert cache.get(GPU, "pool", "a", 1030.0).health is Health.HEALTHY


def test_devices_above_the_limit_are_ignored(monkeypatch):
    monkeypatch.setattr(module, "MAX_DEVICES", 2)
    cache = made()
    assert cache.report(GPU, map(reported, "cabc"), 0.0) == {DeviceKey("pool", "c"), A}
    # The devices that are stored can still change.
    assert cache.report(GPU, [reported("b"), reported("a", Health.UNHEALTHY)], 1.0) == {A}
    assert cache.report(NIC, [reported("b")], 1.0) == {B}


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1021 + "..."),
        ("é" * 512, "é" * 512),
        ("é" * 513, "é" * 510 + "\ufffd..."),
        ("a\ud800", "a\ud800"),
        ("\ud800" * 1025, "?" * 1021 + "..."),
    ],
)
def test_messages_are_cut_to_1024_bytes(message, stored):
    cache = made()
    cache.report(GPU, [reported("a", message=message)], 0.0)
    assert cache.get(GPU, "pool", "a", 0.0).message == stored


def test_limits_of_the_kubelet():
    """healthinfo.go and dra_plugin.go, v1.37."""
    limits = (module.MAX_DEVICES, module.MAX_MESSAGE, module.DEFAULT_TIMEOUT, module.RETRY_PERIOD)
    assert limits == (16384, 1024, 30.0, 5.0)


def test_holders_are_the_pods_with_a_changed_device():
    def claim(name: str, pods: str, driver: str, *devices: str) -> ClaimInfo:
        state = DriverState(tuple(PreparedDevice("pool", each) for each in devices) or None)
        return ClaimInfo("ns", name, f"{name}-uid", frozenset(pods), {driver: state})

    cache = ClaimCache(
        [
            claim("c1", "zx", GPU, "b", "a"),
            claim("c2", "yx", GPU, "a"),
            claim("c3", "w", GPU, "b"),
            claim("c4", "v", NIC, "a"),
            claim("c5", "u", GPU),
        ]
    )
    assert holders(cache, GPU, {A}) == ("x", "y", "z")
    assert holders(cache, GPU, {A, B}) == ("w", "x", "y", "z")
    assert holders(cache, NIC, {A}) == ("v",)
    assert holders(cache, NIC, {DeviceKey("other", "a")}) == ()
    assert holders(cache, GPU, ()) == ()
