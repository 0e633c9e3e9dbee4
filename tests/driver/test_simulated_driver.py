"""The simulated DRA driver, called as a kubelet calls it."""

import json
import threading

import grpc
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from devicemanager.driver.simulated import DriverFaults, SimulatedDriver
from podresources.sockets import CHANNEL_OPTIONS, target
from protos import (
    dra_v1,
    dra_v1_grpc,
    dra_v1beta1,
    dra_v1beta1_grpc,
    drahealth_v1,
    drahealth_v1_grpc,
    drahealth_v1alpha1,
    drahealth_v1alpha1_grpc,
)
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as pr_grpc

UID = "c0ffee"


def allocated(*results, uid=UID):
    return {
        "metadata": {"namespace": "default", "name": "train", "uid": uid},
        "status": {"allocation": {"devices": {"results": list(results)}}},
    }


def result(device, request="gpu", driver="gpu.example.com", **more):
    return {"driver": driver, "pool": "mock", "device": device, "request": request, **more}


@pytest.fixture
def make(tmp_path_factory):
    started = []

    def start(claim=None, *, root=None, **options):
        root = root or tmp_path_factory.mktemp("k")
        claims = None if claim is None else lambda namespace, name: claim
        driver = SimulatedDriver(root=root, claims=claims, **options)
        started.append(driver)
        return driver.start()

    yield start
    for driver in started:
        driver.faults = DriverFaults()
        driver.stop()


@pytest.fixture
def channel():
    channels = []

    def connect(path):
        channels.append(grpc.insecure_channel(target(path), CHANNEL_OPTIONS))
        return channels[-1]

    yield connect
    for each in channels:
        each.close()


def call(
    channel, driver, verb="Prepare", uids=(UID,), api=dra_v1, grpc_api=dra_v1_grpc, timeout=10
):
    stub = grpc_api.DRAPluginStub(channel(driver.sockets.service_socket))
    claims = [api.Claim(namespace="default", name="train", uid=uid) for uid in uids]
    request = getattr(api, f"Node{verb}ResourcesRequest")(claims=claims)
    return getattr(stub, f"Node{verb}Resources")(request, timeout=timeout).claims


def test_registration(make, channel):
    driver = make()
    stub = pr_grpc.RegistrationStub(channel(driver.sockets.registration_socket))
    info = stub.GetInfo(pr.InfoRequest())
    assert (info.type, info.name) == ("DRAPlugin", "gpu.example.com")
    assert info.endpoint == str(driver.sockets.service_socket)
    assert info.supported_versions[:2] == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    stub.NotifyRegistrationStatus(pr.RegistrationStatus(error="no"))
    assert not driver.wait_registered(0)
    stub.NotifyRegistrationStatus(pr.RegistrationStatus(plugin_registered=True))
    assert driver.wait_registered()
    assert driver.sockets.statuses == ((False, "no"), (True, ""))


def test_driver_that_is_not_ready_fails_get_info(make, channel):
    driver = make(faults=DriverFaults(not_ready=True))
    stub = pr_grpc.RegistrationStub(channel(driver.sockets.registration_socket))
    with pytest.raises(grpc.RpcError, match="not ready"):
        stub.GetInfo(pr.InfoRequest())
    driver.faults.not_ready = False
    assert stub.GetInfo(pr.InfoRequest()).name == driver.name


def test_prepare_returns_the_allocated_devices_of_the_driver(make, channel):
    claim = allocated(
        result("gpu-3", "gpu/large", shareID="s1"), result("nic-0", driver="nic.example.com")
    )
    driver = make(claim)
    entry = call(channel, driver)[UID]
    assert not entry.error
    [device] = entry.devices
    assert device.request_names == ["gpu"]
    assert (device.pool_name, device.device_name) == ("mock", "gpu-3")
    assert device.share_id == "s1"
    assert device.cdi_device_ids == [f"k8s.gpu.example.com/claim={UID}-gpu-3-s1"]
    content = json.loads(driver.cdi_path(UID).read_text())
    assert content["kind"] == "k8s.gpu.example.com/claim"
    assert content["devices"] == [
        {
            "name": f"{UID}-gpu-3-s1",
            "containerEdits": {"env": ["DRA_DEVICE_GPU_3=gpu-3"]},
        }
    ]
    assert driver.prepared == {UID: ("gpu-3",)}


def test_v1beta1_loses_the_share_id(make, channel):
    driver = make(allocated(result("gpu-3", shareID="s1")))
    [device] = call(channel, driver, api=dra_v1beta1, grpc_api=dra_v1beta1_grpc)[UID].devices
    assert device.device_name == "gpu-3"
    assert len(UnknownFieldSet(device)) == 0
    assert call(channel, driver)[UID].devices[0].share_id == "s1"
    assert [each.version for each in driver.calls] == ["v1beta1", "v1"]


def test_prepare_and_unprepare_are_idempotent(make, channel):
    driver = make(allocated(result("gpu-3")))
    first = call(channel, driver)[UID]
    driver.cdi_path(UID).unlink()  # as after a reboot
    assert call(channel, driver)[UID] == first
    assert driver.cdi_path(UID).exists()
    beta = {"api": dra_v1beta1, "grpc_api": dra_v1beta1_grpc}
    assert not call(channel, driver, "Unprepare", **beta)[UID].error
    assert not call(channel, driver, "Unprepare")[UID].error
    assert not driver.cdi_path(UID).exists() and not driver.prepared


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (allocated(result("gpu-3"), uid="other"), "claim default/train got replaced"),
        (allocated(result("gpu-9")), "device 'gpu-9' is not a device of this driver"),
        ({"metadata": {"uid": UID}}, "claim default/train not allocated"),
    ],
)
def test_error_of_a_claim_is_in_its_entry(make, channel, claim, text):
    assert call(channel, make(claim))[UID].error == text


def test_missing_claim(make, channel, tmp_path):
    driver = make()
    driver._claims = lambda namespace, name: None
    assert call(channel, driver)[UID].error == "claim default/train not found"


def test_without_claims_each_claim_gets_the_next_free_device(make, channel):
    driver = make(devices=2)
    entries = call(channel, driver, uids=("a", "b", "c"))
    assert [entries[uid].devices[0].device_name for uid in "ab"] == ["gpu-0", "gpu-1"]
    assert entries["c"].error == "no free device: other claims use all 2 devices"


def test_unwritable_cdi_directory(make, channel, tmp_path):
    (tmp_path / "file").write_text("")
    driver = make(cdi_dir=tmp_path / "file")
    assert call(channel, driver)[UID].error.startswith("cannot write the CDI file")


@pytest.mark.parametrize(
    ("faults", "uids"),
    [
        (DriverFaults(missing_entry=True), ["a"]),
        (DriverFaults(unknown_uid="x"), ["a", "b", "x"]),
    ],
)
@pytest.mark.parametrize("verb", ["Prepare", "Unprepare"])
def test_faults_of_the_entries(make, channel, faults, uids, verb):
    assert sorted(call(channel, make(faults=faults), verb, uids=("a", "b"))) == uids


@pytest.mark.parametrize("verb", ["Prepare", "Unprepare"])
def test_faults_with_an_error(make, channel, verb):
    driver = make(faults=DriverFaults(entry_error="no power"))
    assert call(channel, driver, verb)[UID].error == "no power"
    driver.faults = DriverFaults(claim_errors={"train": "too hot"})
    assert call(channel, driver, verb)[UID].error == "too hot"
    driver.faults = DriverFaults(call_error="out of order")
    with pytest.raises(grpc.RpcError, match="out of order"):
        call(channel, driver, verb)


def test_faults_of_the_devices(make, channel):
    driver = make(allocated(result("gpu-3")), faults=DriverFaults(duplicate=True))
    assert len(call(channel, driver)[UID].devices) == 2
    driver.faults = DriverFaults(no_devices=True)
    assert not call(channel, driver)[UID].devices
    driver.faults = DriverFaults(no_request_names=True)
    assert not call(channel, driver)[UID].devices[0].request_names


@pytest.mark.parametrize(("name", "prepared"), [("hang", {}), ("hang_after", {UID: ("gpu-0",)})])
def test_faults_without_a_response(make, channel, name, prepared):
    driver = make(faults=DriverFaults(**{name: True}))
    with pytest.raises(grpc.RpcError, match="Deadline"):
        call(channel, driver, timeout=0.3)
    assert driver.prepared == prepared


def test_crash_after_prepare_leaves_sockets_and_state(make, channel):
    driver = make(faults=DriverFaults(crash_after_prepare=True))
    with pytest.raises(grpc.RpcError):
        call(channel, driver)
    assert driver.prepared == {UID: ("gpu-0",)}
    assert driver.sockets.service_socket.exists()


def test_stop_removes_the_sockets_and_waits(make):
    driver = make(faults=DriverFaults(stop_delay=0.01))
    driver.stop()
    assert not driver.sockets.service_socket.exists()
    # A driver that has stopped does not wait once more.
    driver.faults = DriverFaults(stop_delay=3600.0)
    driver.stop()
    assert not driver.sockets.registration_socket.exists()
    driver.stop()  # idempotent


def test_instances_of_a_rolling_update_have_their_own_sockets(make, tmp_path_factory):
    root = tmp_path_factory.mktemp("k")
    first, second = make(root=root, uid="1"), make(root=root, uid="2")
    assert first.sockets.registration_socket.name == "gpu.example.com-1-reg.sock"
    assert second.sockets.service_socket.name == "dra-2.sock"
    first.stop()
    assert second.sockets.service_socket.exists()


def test_connection_breaks_and_returns(make, channel):
    driver = make()
    driver.sockets.stop_service()
    with pytest.raises(grpc.RpcError):
        call(channel, driver)
    driver.sockets.start_service()
    assert call(channel, driver)[UID].devices


@pytest.mark.parametrize(
    ("api", "grpc_api"),
    [(drahealth_v1, drahealth_v1_grpc), (drahealth_v1alpha1, drahealth_v1alpha1_grpc)],
)
def test_health_stream(make, channel, api, grpc_api):
    driver = make(devices=2)
    stub = grpc_api.DRAResourceHealthStub(channel(driver.sockets.service_socket))
    stream = stub.NodeWatchResources(api.NodeWatchResourcesRequest(), timeout=10)
    first = next(stream)
    assert [each.device.device_name for each in first.devices] == ["gpu-0", "gpu-1"]
    assert {each.health for each in first.devices} == {api.HealthStatus.Value("HEALTHY")}
    driver.set_health("gpu-1", "Unhealthy", "too hot", timeout=5)
    second = next(stream).devices[1]
    assert (second.health, second.message) == (api.HealthStatus.Value("UNHEALTHY"), "too hot")
    assert second.health_check_timeout_seconds == 5
    driver.end_health_stream()
    assert list(stream) == []


def test_only_the_chosen_services_are_served(make, channel):
    driver = make(services=["v1beta1.DRAPlugin"])
    assert call(channel, driver, api=dra_v1beta1, grpc_api=dra_v1beta1_grpc)
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, driver)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_wait_for_call(make, channel):
    driver = make()
    caller = threading.Thread(target=call, args=(channel, driver))
    caller.start()
    assert driver.wait_for_call("NodePrepareResources")
    assert not driver.wait_for_call("NodeUnprepareResources", timeout=0)
    caller.join(10)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"devices": 0, "root": "/x"}, "invalid number of devices 0: use 1 or more"),
        ({}, "missing root: set kubelet, or set root to its directory"),
    ],
)
def test_invalid_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        SimulatedDriver(**arguments)


def test_invalid_health(tmp_path):
    driver = SimulatedDriver(root="/x")
    with pytest.raises(ValueError, match=r"invalid health .Sick.: use one of Healthy, Unhealthy"):
        driver.set_health("gpu-0", "Sick")
    with pytest.raises(ValueError, match="unknown device 'gpu-9': use one of gpu-0"):
        driver.set_health("gpu-9", "Healthy")
