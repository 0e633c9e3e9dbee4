"""Health of DRA devices: K32, the file of the health, and the update channel."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest
from google.protobuf.message import DecodeError

from devicemanager import ManualClock, MockKubelet
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import PodUid
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.dra.connection import DriverConnection
from devicemanager.kubelet.dra.health import HealthFile, HealthStream
from devicemanager.kubelet.dra.health import _devices as health_devices
from devicemanager.objects.status.podstatus import status_object
from protos import drahealth_v1
from tests.kubelet.dra.objects import claim, pod

V1ALPHA1 = ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]


class _Streams:
    """Connection whose health streams raise these errors or end, one after the other."""

    def __init__(self, *ends):
        self.ends = list(ends)
        self.opened = 0

    def watch_health(self, service):
        assert service == "v1.DRAResourceHealth"
        self.opened += 1
        end = self.ends.pop(0)
        if end is not None:
            raise end
        return iter(())


class _Sink:
    def __init__(self, error=None):
        self.error = error
        self.ended = []

    def report(self, instance, devices, ignored):
        raise AssertionError("nothing was sent")

    def stream_ended(self, instance):
        self.ended.append(instance.driver)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("end", "stops", "again"),
    [
        (None, True, True),
        (RpcError("Unavailable", "gone"), True, True),
        (RpcError("Unimplemented", "no"), True, False),
        (RpcError("Unimplemented", "no"), False, True),
        (DecodeError("bad"), True, True),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "bad"), True, True),
    ],
)
def test_stream_is_opened_again_unless_the_driver_lacks_the_service(end, stops, again):
    streams, sink, clock, errors = _Streams(end, None), _Sink(), ManualClock(), []
    instance = SimpleNamespace(driver="d", health_service="v1.DRAResourceHealth")
    stream = HealthStream(
        instance, streams, sink, clock, errors.append, stops_if_unimplemented=stops
    )
    stream._run()
    assert (streams.opened, sink.ended, errors) == (1, ["d"], [])
    assert (stream._cancel is not None) is again
    stream.close()
    clock.advance(100.0)
    assert streams.opened == 1 and stream._cancel is None


def test_bug_in_a_health_stream_is_reported():
    streams, clock, errors = _Streams(None), ManualClock(), []
    error = ValueError("a bug")
    instance = SimpleNamespace(driver="d", health_service="v1.DRAResourceHealth")
    stream = HealthStream(
        instance, streams, _Sink(error), clock, errors.append, stops_if_unimplemented=True
    )
    stream._run()
    assert errors == [error] and stream._cancel is None


def health(kubelet, uid="uid-train"):
    """Return name, resource ID, health and message of each entry of a pod."""
    status = kubelet.allocated_resources_status(uid)
    return [
        (each.name, one.resource_id, str(one.health), one.message)
        for entries in status.values()
        for each in entries
        for one in each.resources
    ]


def wait_for_health(kubelet, expected, uid="uid-train"):
    kubelet.wait_for(lambda: health(kubelet, uid) == expected, what=f"the health {expected}")


def entry(text, message=None, device="gpu-0", name="gpu"):
    return [(f"claim:{name}", f"k8s.gpu.example.com/claim=uid-gpu-{device}", text, message)]


@pytest.mark.parametrize("services", [["v1.DRAPlugin", "v1.DRAResourceHealth"], V1ALPHA1])
def test_k32_health_reaches_the_pod_that_holds_the_device(node, services):
    driver, kubelet = node.driver(services=services), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    kubelet.admit(pod("other", {"x": "other"}), claims=claim("other", "gpu-1"))
    wait_for_health(kubelet, entry("Healthy"))
    mark = kubelet.mark()
    driver.set_health("gpu-0", "Unhealthy", "hot")
    # An event of the first report may follow the mark.
    kubelet.wait_for_event(
        "device-health",
        pod="uid-train",
        where=lambda _: health(kubelet) == entry("Unhealthy", "hot"),
        since=mark,
    )
    # Reported once to each pod that holds a device, when the first report arrived or later.
    assert kubelet.health_updates.get_nowait() is not None
    shown = json.dumps(status_object(PodUid("uid-train"), kubelet.pod_status("uid-train"), now=0.0))
    assert '"health": "Unhealthy", "message": "hot"' in shown


def test_k32_timeout_gives_unknown(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    driver.set_health("gpu-0", "Healthy", "fine", timeout=40)
    wait_for_health(kubelet, entry("Healthy", "fine"))
    node.clock.advance(40)
    assert health(kubelet) == entry("Healthy", "fine")
    node.clock.advance(1)
    assert health(kubelet) == entry("Unknown")


def test_k32_end_of_the_stream_clears_and_it_is_opened_again(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    wait_for_health(kubelet, entry("Healthy"))
    mark = kubelet.mark()
    driver.end_health_stream()
    kubelet.wait_for_call(
        rpc="NodeWatchResources", where=lambda call: not call.response_bytes, since=mark
    )
    wait_for_health(kubelet, entry("Unknown"))
    turn_until(node, lambda: health(kubelet) == entry("Healthy"))


def test_k32_long_message_is_cut(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    driver.set_health("gpu-0", "Unhealthy", "x" * 1025)
    wait_for_health(kubelet, entry("Unhealthy", "x" * 1021 + "..."))


def test_k32_end_of_one_stream_clears_the_health_of_both_instances(node):
    old, new = node.driver(uid="old"), node.driver(uid="new")
    kubelet = node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    new.set_health("gpu-0", "Unhealthy", "hot")
    wait_for_health(kubelet, entry("Unhealthy", "hot"))
    old.end_health_stream()
    wait_for_health(kubelet, entry("Unknown"))


class CommonFirst(SimulatedDriver):
    """Driver whose devices all have the same first CDI device."""

    def _message(self, device):
        message = super()._message(device)
        message.cdi_device_ids.insert(0, "k8s.gpu.example.com/claim=common")
        return message


def test_k32_devices_with_one_first_cdi_device_are_one_entry(node):
    kubelet = node.kubelet
    with CommonFirst(kubelet=kubelet) as driver:
        kubelet.wait_for_event("driver-connected", after=0)
        kubelet.admit(pod(), claims=claim("gpu", "gpu-0", "gpu-1"))
        driver.set_health("gpu-0", "Unhealthy")
        wait_for_health(
            kubelet, [("claim:gpu", "k8s.gpu.example.com/claim=common", "Unhealthy", None)]
        )


def test_health_is_not_watched_without_its_service(node):
    node.driver(services=["v1.DRAPlugin"])
    node.kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert health(node.kubelet) == entry("Unknown")
    assert not node.kubelet.calls(rpc="NodeWatchResources")


def test_health_of_a_request_is_named_by_it(node):
    node.driver()
    uses = [{"name": "gpu", "request": "gpu"}]
    node.kubelet.admit(pod(uses=uses), claims=claim("gpu", "gpu-0"))
    wait_for_health(node.kubelet, entry("Healthy", name="gpu/gpu"))


def test_health_is_stored_in_a_file_that_the_next_kubelet_reads(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    driver.set_health("gpu-0", "Unhealthy", "hot", timeout=600)
    wait_for_health(kubelet, entry("Unhealthy", "hot"))
    path = kubelet.root / "dra_health_state"
    kubelet.wait_for(lambda: '"Unhealthy"' in path.read_text())
    stored = json.loads(path.read_text())["gpu.example.com"]["Devices"]["mock/gpu-0"]
    assert stored == {
        "PoolName": "mock",
        "DeviceName": "gpu-0",
        "Health": "Unhealthy",
        "LastUpdated": "1970-01-01T00:16:40Z",
        "HealthCheckTimeout": 600_000_000_000,
        "Message": "hot",
    }


@pytest.mark.parametrize("text", ["", "[]", '{"d": {"Devices": {"p/d": {}}}}', "\x00"])
def test_damaged_health_file_is_ignored(directory, text):
    (directory / "dra_manager_state").write_text("{}")
    (directory / "dra_health_state").write_text(text)
    with MockKubelet(directory) as kubelet:
        assert kubelet.is_serving


@pytest.mark.parametrize(
    "changed",
    [
        {"HealthCheckTimeout": 10**400},
        {"HealthCheckTimeout": float("inf")},
        {"LastUpdated": "9999-12-31T23:59:59-12:00"},
    ],
)
def test_health_file_with_extreme_numbers_is_read_and_written(directory, changed):
    entry_ = {"PoolName": "p", "DeviceName": "d", "Health": "Healthy", "HealthCheckTimeout": 1}
    entry_ |= {"LastUpdated": "2026-01-01T00:00:00Z", **changed}
    path = directory / "dra_health_state"
    path.write_text(json.dumps({"d": {"Devices": {"p/d": entry_}}}))
    file = HealthFile(directory, ManualClock(1000.0))
    file.write(file.load)
    assert json.loads(path.read_text()) == {} or "9999-01-01" in path.read_text()


def test_deep_health_file_is_ignored(directory):
    (directory / "dra_health_state").write_text("[" * 200_000)
    assert HealthFile(directory, ManualClock(1000.0)).load() == {}


def test_undecodable_report_ends_the_stream_and_it_is_opened_again(node, monkeypatch):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    wait_for_health(kubelet, entry("Healthy"))
    with monkeypatch.context() as broken:
        opened = threading.Event()
        broken.setattr(DriverConnection, "watch_health", _undecodable(opened))
        driver.end_health_stream()
        turn_until(node, opened.is_set)
    turn_until(node, lambda: health(kubelet) == entry("Healthy"))
    assert not kubelet.events.recent("server-error")


def _undecodable(opened):
    def watch(*_):
        opened.set()
        yield b"\xff\xff"

    return watch


def turn_until(node, condition):
    """Turn the clock, because a stream sets its timer at an unknown moment."""
    node.kubelet.wait_for(lambda: node.clock.advance(5) or condition())


def test_health_file_ends_with_the_newest_of_concurrent_reports(directory):
    file, states = HealthFile(directory, ManualClock(1000.0)), [{}, {"new": {}}]
    entered, released = threading.Event(), threading.Event()
    written = file._store.write

    def write(data):
        if data == b"{}":
            entered.set()
            released.wait(10)
        written(data)

    file._store.write = write
    writers = [threading.Thread(target=file.write, args=(lambda: states.pop(0),)) for _ in "12"]
    writers[0].start()
    assert entered.wait(10)
    writers[1].start()
    # Without order, the second writer takes its state now, and the first one overwrites it.
    writers[1].join(0.1)
    released.set()
    for writer in writers:
        writer.join(10)
    assert json.loads((directory / "dra_health_state").read_text()) == {"new": {"Devices": {}}}


def report_of(*devices):
    """Encode a health report of healthy devices."""
    report = drahealth_v1.NodeWatchResourcesResponse()
    for pool, device in devices:
        report.devices.add(device={"pool_name": pool, "device_name": device}, health="HEALTHY")
    return report.SerializeToString()


def test_report_that_is_too_large_is_ignored_in_part():
    devices, ignored = health_devices(report_of(*[("p", "d")] * 65_540))
    assert (len(devices), ignored) == (65_536, 4)
    devices, ignored = health_devices(report_of(("p", "d"), ("p" * 1025, "d"), ("p", "d" * 1025)))
    assert ([each.device for each in devices], ignored) == (["d"], 2)


def test_ignored_devices_of_a_report_are_an_event(node):
    driver, kubelet = node.driver(), node.kubelet
    instance = next(iter(kubelet._life.serving().dra.manager()._state.drivers))
    kubelet._life.serving().dra.manager().report(instance, (), 3)
    [event] = kubelet.events.recent("health-dropped")
    assert event.message.startswith("gpu.example.com: 3 devices of a health report ignored: ")
    assert driver.calls == ()


def test_health_file_follows_the_end_of_the_stream(node):
    driver, kubelet = node.driver(), node.kubelet
    path = kubelet.root / "dra_health_state"
    kubelet.wait_for(lambda: path.exists() and "gpu-0" in path.read_text())
    driver.end_health_stream()
    kubelet.wait_for(lambda: path.read_text() == "{}")


def test_health_file_survives_the_end_of_the_kubelet(node):
    driver, kubelet = node.driver(), node.kubelet
    driver.set_health("gpu-0", "Unhealthy", "hot")
    path = kubelet.root / "dra_health_state"
    kubelet.wait_for(lambda: path.exists() and "hot" in path.read_text())
    kubelet.stop()
    assert "hot" in path.read_text()
