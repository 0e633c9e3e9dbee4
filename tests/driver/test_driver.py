"""A driver that is written with the framework, served on real sockets and the API server."""

import fcntl
import json
import threading
from pathlib import Path

import grpc
import pytest

from devicemanager.driver import (
    ClaimError,
    Device,
    DeviceHealth,
    Driver,
    DriverResources,
    Mount,
    Pool,
    Version,
)
from tests.driver.conftest import DRIVER, NODE


class Gpus(Driver):
    """Driver that records its calls."""

    def __init__(self):
        self.calls = []
        self.errors = []

    def resources(self):
        return ["gpu-0", "gpu-1"]

    def prepare(self, claim):
        self.calls.append(("prepare", claim.name))
        return [
            device.prepared(envs={"GPU": device.device}, devices=[f"/dev/{device.device}"])
            for device in claim.devices
        ]

    def unprepare(self, claim):
        self.calls.append(("unprepare", claim.name))

    def handle_error(self, error, what):
        self.errors.append((what, str(error)))


def uid_of(claim):
    return claim["metadata"]["uid"]


def test_driver_publishes_registers_prepares_and_unprepares(api, serve, register, claim, directory):
    server = serve(Gpus())
    assert server.wait_published(60)
    [slice_] = api.all("resourceslices")
    assert slice_["spec"] == {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }
    kubelet = register(server)
    assert (kubelet.info.type, kubelet.info.name) == ("DRAPlugin", DRIVER)
    assert list(kubelet.info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert server.registration_status == (True, "")
    train = claim("train", "gpu-1")
    uid = uid_of(train)
    entry = kubelet.prepare(train)[uid]
    assert not entry.error
    [device] = entry.devices
    assert (device.pool_name, device.device_name) == (NODE, "gpu-1")
    assert device.request_names == ["gpu"]
    [cdi] = device.cdi_device_ids
    [path] = (directory / "cdi").iterdir()
    content = json.loads(path.read_text())
    assert cdi == f"{content['kind']}={content['devices'][0]['name']}"
    assert content["devices"][0]["containerEdits"] == {
        "env": ["GPU=gpu-1"],
        "deviceNodes": [{"path": "/dev/gpu-1", "permissions": "rw"}],
    }
    assert not kubelet.unprepare(train)[uid].error
    assert list((directory / "cdi").iterdir()) == []
    server.stop()
    assert list((directory / "plugins_registry").iterdir()) == []
    assert api.all("resourceslices")


def test_repeated_prepare_returns_the_stored_result(serve, register, claim, directory):
    driver = Gpus()
    kubelet = register(serve(driver))
    train = claim("train", "gpu-1")
    first = kubelet.prepare(train)
    [path] = (directory / "cdi").iterdir()
    path.unlink()
    assert kubelet.prepare(train) == first
    assert path.exists()
    assert driver.calls == [("prepare", "train")]


def test_restarted_driver_needs_no_api_server(api, serve, register, claim, directory):
    first = serve(Gpus())
    train = claim("train", "gpu-1")
    entries = register(first).prepare(train)
    first.stop()
    api.stop()
    driver = Gpus()
    kubelet = register(serve(driver))
    assert kubelet.prepare(train) == entries
    assert not kubelet.unprepare(train)[uid_of(train)].error
    assert driver.calls == [("unprepare", "train")]


def test_devices_are_prepared_again_after_a_reboot(serve, register, claim, directory, monkeypatch):
    first = serve(Gpus())
    train = claim("train", "gpu-1")
    entries = register(first).prepare(train)
    first.stop()
    for path in (directory / "cdi").iterdir():
        path.unlink()
    monkeypatch.setattr("devicemanager.driver.server.boot_id", lambda: "another boot")
    driver = Gpus()
    assert register(serve(driver)).prepare(train) == entries
    assert driver.calls == [("prepare", "train")]
    assert len(list((directory / "cdi").iterdir())) == 1


class Failing(Gpus):
    def prepare(self, claim):
        super().prepare(claim)
        if claim.name == "bad":
            raise KeyError("gpu-9")
        if claim.name == "busy":
            raise ClaimError("the GPU is resetting")
        return super().prepare(claim)[:0]


def test_failed_claim_does_not_fail_others_and_is_unprepared(serve, register, claim):
    driver = Failing()
    kubelet = register(serve(driver))
    bad, busy, good = claim("bad", "gpu-0"), claim("busy", "gpu-1"), claim("good")
    entries = kubelet.prepare(bad, busy, good)
    assert entries[uid_of(bad)].error == "prepare() failed: KeyError: 'gpu-9'"
    assert entries[uid_of(busy)].error == "the GPU is resetting"
    assert not entries[uid_of(good)].error
    kubelet.unprepare(bad)
    assert driver.calls[-1] == ("unprepare", "bad")


def test_failed_unprepare_is_in_the_entry_and_in_the_log(serve, register, claim, caplog):
    class Stuck(Gpus):
        def unprepare(self, claim):
            super().unprepare(claim)
            if claim.name == "stuck":
                raise ClaimError("still in use") if len(self.calls) > 3 else KeyError("gpu-9")

    driver = Stuck()
    kubelet = register(serve(driver))
    stuck, good = claim("stuck", "gpu-0"), claim("good", "gpu-1")
    kubelet.prepare(stuck, good)
    entries = kubelet.unprepare(stuck, good)
    assert entries[uid_of(stuck)].error == "unprepare() failed: KeyError: 'gpu-9'"
    assert not entries[uid_of(good)].error
    [record] = [each for each in caplog.records if each.exc_info]
    assert (record.levelname, record.getMessage()) == ("ERROR", "unprepare() failed")
    assert record.exc_info[0] is KeyError
    # The author's own error is not logged. The claim stays prepared, so it is tried again.
    assert kubelet.unprepare(stuck)[uid_of(stuck)].error == "still in use"
    assert len([each for each in caplog.records if each.exc_info]) == 1
    assert driver.calls[-1] == ("unprepare", "stuck")


def test_claim_of_a_killed_driver_is_prepared_again(serve, register, claim):
    class Killed(Gpus):
        def prepare(self, claim):
            raise SystemExit

    first = serve(Killed())
    train = claim("train", "gpu-1")
    assert "SystemExit" in register(first).prepare(train)[uid_of(train)].error
    first.stop()
    driver = Gpus()
    assert register(serve(driver)).prepare(train)[uid_of(train)].devices
    assert driver.calls == [("prepare", "train")]


def test_claims_that_cannot_be_prepared(api, serve, register, claim):
    kubelet = register(serve(Gpus()))
    missing = {"metadata": {"namespace": "default", "name": "none", "uid": "x"}}
    train = claim("train", "gpu-0")
    replaced = {"metadata": {**train["metadata"], "uid": "other"}}
    raw = api.create("resourceclaims", {"metadata": {"name": "raw"}, "spec": {}})
    hostile = {"metadata": {"namespace": "default", "name": "a", "uid": "../../x"}}
    entries = kubelet.prepare(missing, replaced, raw, hostile)
    assert {uid: entry.error for uid, entry in entries.items()} == {
        "x": "claim default/none not found",
        "other": "claim default/train got replaced",
        uid_of(raw): "claim default/raw not allocated",
        "../../x": "invalid claim default/a with UID '../../x': expected letters, digits, -, "
        "_ and . in names and UID",
    }


SHARE = "9b2ecd99-2e87-4f6b-a867-502c1cd9a7ed"
OTHER_SHARE = SHARE.replace("9b", "1c")


def allocated(device, request="gpu", driver=DRIVER, **fields):
    return {"request": request, "driver": driver, "pool": NODE, "device": device, **fields}


def test_devices_of_other_drivers_and_subrequests(serve, register, claim):
    seen = []

    class Looking(Gpus):
        def prepare(self, claim):
            seen.extend(claim.devices)
            return super().prepare(claim)

    def config(source, number, driver=DRIVER, **requests):
        opaque = {"driver": driver, "parameters": {"number": number}}
        return {"source": source, "opaque": opaque, **requests}

    parameters = [
        config("FromClaim", 2, requests=["gpu"]),
        config("FromClass", 1),
        config("FromClaim", 3, requests=["nic"]),
        config("FromClaim", 4, "other.com"),
    ]
    train = claim(
        "train",
        allocated("gpu-0", "gpu/large", shareID=SHARE, consumedCapacity={"memory": "1Gi"}),
        allocated("nic-0", "nic", driver="other.com"),
        config=parameters,
    )
    [device] = register(serve(Looking())).prepare(train)[uid_of(train)].devices
    assert (list(device.request_names), device.share_id) == (["gpu"], SHARE)
    [given] = seen
    assert (given.request, given.parameters) == ("gpu/large", ({"number": 1}, {"number": 2}))
    assert given.consumed_capacity == {"memory": "1Gi"}


def test_unpublished_device_is_refused(serve, register, claim):
    driver = Gpus()
    server = serve(driver)
    kubelet = register(server)
    assert server.wait_published()
    missing, foreign = (
        claim("missing", "gpu-7"),
        claim("foreign", {**allocated("gpu-0"), "pool": "p"}),
    )
    errors = {each.error for each in kubelet.prepare(missing, foreign).values()}
    assert errors == {f"device {NODE}/gpu-7 is not published", "device p/gpu-0 is not published"}
    assert driver.calls == []


def test_device_in_use_is_refused(api, serve, register, claim):
    driver = Gpus()
    kubelet = register(serve(driver))
    first, second = claim("first", "gpu-0"), claim("second", "gpu-0")
    admin = {"labels": {"resource.kubernetes.io/admin-access": "true"}}
    api.change(
        "namespaces", "default", lambda old: {**old, "metadata": {**old["metadata"], **admin}}
    )
    watching = claim("watching", allocated("gpu-0", adminAccess=True))
    kubelet.prepare(first)
    error = kubelet.prepare(second)[uid_of(second)].error
    assert error == "device gpu-0 is in use by claim default/first"
    assert not kubelet.prepare(watching)[uid_of(watching)].error
    # A claim in use cannot be deleted, so this one is not in use.
    api.delete("resourceclaims", "first")
    assert not kubelet.prepare(second)[uid_of(second)].error
    assert driver.calls[-2:] == [("unprepare", "first"), ("prepare", "second")]


def test_shares_of_a_device_do_not_exclude_each_other(serve, register, claim):
    kubelet = register(serve(Gpus()))
    one, two, whole = (
        claim(name, allocated("gpu-0", **({"shareID": share} if share else {})))
        for name, share in (("one", SHARE), ("two", OTHER_SHARE), ("whole", ""))
    )
    assert not kubelet.prepare(one)[uid_of(one)].error
    assert not kubelet.prepare(two)[uid_of(two)].error
    assert "in use" in kubelet.prepare(whole)[uid_of(whole)].error


def test_claim_that_was_deleted_while_the_driver_was_down(api, serve, register, claim):
    first = serve(Gpus())
    train = claim("train", "gpu-0")
    register(first).prepare(train)
    first.stop()
    api.delete("resourceclaims", "train")
    unprepared = threading.Event()

    class Waking(Gpus):
        def unprepare(self, claim):
            unprepared.set()

    serve(Waking())
    assert unprepared.wait(60)


def test_call_whose_caller_has_gone_does_not_touch_devices(serve, register, claim):
    inside, leave = threading.Event(), threading.Event()

    class Slow(Gpus):
        def prepare(self, claim):
            inside.set()
            assert leave.wait(60)
            return super().prepare(claim)

    driver = Slow()
    kubelet = register(serve(driver))
    slow, late = claim("slow", "gpu-0"), claim("late", "gpu-1")
    caller = threading.Thread(target=kubelet.prepare, args=(slow,))
    caller.start()
    assert inside.wait(60)
    with pytest.raises(grpc.RpcError, match="Deadline"):
        kubelet.prepare(late, timeout=0.3)
    leave.set()
    caller.join(10)
    kubelet.unprepare(late)
    assert driver.calls == [("prepare", "slow")]


def test_calls_wait_for_the_other_instance(serve, register, claim, directory):
    driver = Gpus()
    kubelet = register(serve(driver))
    train = claim("train", "gpu-0")
    # Drivers built on the Go library lock this file, too.
    with (directory / "plugins" / DRIVER / "serialize.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(grpc.RpcError, match="Deadline"):
            kubelet.prepare(train, timeout=0.3)
    assert kubelet.prepare(train)[uid_of(train)].devices
    assert driver.calls == [("prepare", "train")]


def test_rolling_update(serve, register, claim, directory):
    old, new = Gpus(), Gpus()
    first = serve(old, rolling_update="1")
    train = claim("train", "gpu-0")
    register(first).prepare(train)
    second = serve(new, rolling_update="2")
    kubelet = register(second)
    assert {each.name for each in (directory / "plugins_registry").iterdir()} == {
        f"{DRIVER}-1-reg.sock",
        f"{DRIVER}-2-reg.sock",
    }
    first.stop()
    assert second.paths.registration_socket.exists()
    assert not kubelet.unprepare(train)[uid_of(train)].error
    assert new.calls == [("unprepare", "train")]


def test_damaged_checkpoint(serve, register, claim, directory):
    driver = Gpus()
    kubelet = register(serve(driver))
    train = claim("train", "gpu-0")
    kubelet.prepare(train)
    path = directory / "plugins" / DRIVER / "prepared_claims.json"
    path.write_text('{"version": 1, "claims"')
    assert not kubelet.unprepare(train)[uid_of(train)].error
    assert list((directory / "cdi").iterdir()) == []
    [(what, _)] = driver.errors
    assert what.startswith("damaged checkpoint, moved to ")
    assert path.with_suffix(".corrupt").exists()


def test_unwritable_cdi_directory(serve, register, claim, directory):
    (directory / "cdi").write_text("")
    train = claim("train", "gpu-0")
    error = register(serve(Gpus())).prepare(train)[uid_of(train)].error
    assert error.startswith(f"cannot read or write {directory}/cdi/")


def test_unreadable_checkpoint_and_lock(serve, register, claim, directory):
    driver = Gpus()
    kubelet = register(serve(driver))
    train = claim("train", "gpu-0")
    for name in ("prepared_claims.json", "serialize.lock"):
        path = directory / "plugins" / DRIVER / name
        path.unlink(missing_ok=True)
        path.mkdir()
        for call in (kubelet.prepare, kubelet.unprepare):
            error = call(train)[uid_of(train)].error
            assert error == f"cannot read or write {path}: Is a directory"
    assert driver.calls == []


def test_deleted_claims_are_unprepared_until_it_works(api, serve, register, claim, monkeypatch):
    monkeypatch.setattr("devicemanager.driver.server._BACKOFF", 0.01)
    first = serve(Gpus())
    register(first).prepare(claim("one", "gpu-0"), claim("two", "gpu-1"))
    first.stop()
    for name in ("one", "two"):
        api.delete("resourceclaims", name)
    done = threading.Event()

    class FailsOnce(Gpus):
        def unprepare(self, claim):
            super().unprepare(claim)
            if len(self.calls) == 1:
                raise ClaimError("busy")
            if len(self.calls) == 3:
                done.set()

    driver = FailsOnce()
    serve(driver)
    assert done.wait(10)
    failed, other, again = driver.calls
    assert failed == again != other
    assert driver.errors == [("unpreparing deleted claims", "busy")]


def test_devices_of_other_claims_are_an_error_of_the_author(serve, register, claim):
    class Wrong(Gpus):
        def prepare(self, claim):
            return ["gpu-0"]

    train = claim("train", "gpu-0")
    error = register(serve(Wrong())).prepare(train)[uid_of(train)].error
    assert error.startswith("prepare() failed: ValueError: invalid result ")


def test_settings_of_a_device(serve, register, claim, directory):
    class Rich(Gpus):
        def prepare(self, claim):
            mount = Mount(host_path="/opt/lib", container_path="/lib/gpu", read_only=True)
            [device] = claim.devices
            return [
                device.prepared(
                    mounts=[mount],
                    cdi_devices=["vendor.com/gpu=all"],
                    edits={"hooks": [{"hookName": "createRuntime", "path": "/bin/true"}]},
                )
            ]

    train = claim("train", "gpu-0")
    [device] = register(serve(Rich())).prepare(train)[uid_of(train)].devices
    assert device.cdi_device_ids[1:] == ["vendor.com/gpu=all"]
    [path] = (directory / "cdi").iterdir()
    assert json.loads(path.read_text())["devices"][0]["containerEdits"] == {
        "mounts": [
            {"hostPath": "/opt/lib", "containerPath": "/lib/gpu", "options": ["rbind", "ro"]}
        ],
        "hooks": [{"hookName": "createRuntime", "path": "/bin/true"}],
    }


def test_metadata_files(serve, register, claim, directory):
    class Described(Gpus):
        def resources(self):
            attributes = {"model": "a100", "ecc": True, "cores": 8, "driver": Version("1.2.3")}
            return [Device("gpu-0", attributes=attributes), "gpu-1"]

    name = {"resource.kubernetes.io/pod-claim-name": "gpus"}
    train = claim("train-x7", "gpu-0", "gpu-1", annotations=name)
    uid = uid_of(train)
    server = serve(Described(), metadata=True)
    assert server.wait_published(60)
    kubelet = register(server)
    devices = kubelet.prepare(train)[uid].devices
    metadata_ids = [f"{DRIVER}/metadata={uid}_gpu"]
    assert [list(each.cdi_device_ids[1:]) for each in devices] == [metadata_ids, []]
    spec = json.loads((directory / "cdi" / f"{DRIVER}_metadata_{uid}_gpu.json").read_text())
    [mount] = spec["devices"][0]["containerEdits"]["mounts"]
    assert mount["containerPath"] == (
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpus/gpu/"
        f"{DRIVER}-metadata.json"
    )
    content = json.loads(Path(mount["hostPath"]).read_text())
    assert content["metadata"]["uid"] == uid
    [request] = content["requests"]
    assert [each["name"] for each in request["devices"]] == ["gpu-0", "gpu-1"]
    assert request["devices"][0]["attributes"] == {
        "model": {"string": "a100"},
        "ecc": {"bool": True},
        "cores": {"int": 8},
        "driver": {"version": "1.2.3"},
    }
    kubelet.unprepare(train)
    assert list((directory / "cdi").iterdir()) == []
    assert list((directory / "plugins" / DRIVER / "dra-device-metadata").iterdir()) == []


def test_late_unprepare_keeps_the_metadata_of_a_new_claim(api, serve, register, claim, directory):
    server = serve(Gpus(), metadata=True)
    assert server.wait_published(60)
    kubelet = register(server)
    old = claim("train", "gpu-0")
    kubelet.prepare(old)
    api.delete("resourceclaims", "train")
    new = claim("train", "gpu-1")
    kubelet.prepare(new)
    data = directory / "plugins" / DRIVER / "dra-device-metadata"
    for each, kept in ((old, [uid_of(new)]), (new, [])):
        assert not kubelet.unprepare(each)[uid_of(each)].error
        files = data.glob("*/*/metadata.json")
        assert [json.loads(path.read_text())["metadata"]["uid"] for path in files] == kept
    assert list(data.iterdir()) == []


def test_sockets_return_with_the_kubelets_directory(serve, register, claim, directory):
    server = serve(Gpus())
    register(server)
    registry = directory / "plugins_registry"
    server.paths.registration_socket.unlink()
    assert server.sockets.wait_served(60)
    for path in registry.iterdir():
        path.unlink()
    registry.rmdir()
    registry.mkdir()
    register(server)


class Watched(Gpus):
    health_interval = 0.01

    def __init__(self):
        super().__init__()
        self.state = "Healthy"

    def health(self):
        if self.state == "broken":
            raise OSError("the bus is down")
        return [DeviceHealth("gpu-0", self.state, "as set", timeout=5)]


def test_health_is_reported_again_and_again(serve, register):
    driver = Watched()
    kubelet = register(serve(driver))
    assert "v1.DRAResourceHealth" in kubelet.info.supported_versions
    stream = kubelet.health()
    [device] = next(stream).devices
    assert (device.device.pool_name, device.device.device_name) == (NODE, "gpu-0")
    assert (device.health, device.message, device.health_check_timeout_seconds) == (1, "as set", 5)
    driver.state = "Unhealthy"
    assert any(report.devices[0].health == 2 for report in stream)


def test_failing_health_check_is_reported_to_the_author(serve, register):
    failed = threading.Event()

    class Sick(Watched):
        def handle_error(self, error, what):
            assert (what, str(error)) == ("health()", "the bus is down")
            failed.set()

    driver = Sick()
    driver.state = "broken"
    serve(driver)
    assert failed.wait(60)


def test_pools_with_other_names(api, serve):
    class Named(Gpus):
        def resources(self):
            return DriverResources({"left": Pool(["gpu-0"]), "right": Pool(["gpu-0"])})

    server = serve(Named())
    assert server.wait_published(60)
    assert {each["spec"]["pool"]["name"] for each in api.all("resourceslices")} == {"left", "right"}
