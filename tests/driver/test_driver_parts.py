"""Parts of the framework without sockets: names of files, requests, old health, settings."""

import inspect
import json
import logging
import os
import threading
from pathlib import Path

import pytest

from devicemanager.client.errors import NotFound, Unavailable
from devicemanager.driver import (
    Claim,
    Device,
    DeviceSpec,
    Driver,
    Mount,
    Pool,
    Taint,
    Version,
    boot,
    serve,
)
from devicemanager.driver.api import ResourceApi
from devicemanager.driver.cdi import CdiFiles, container_edits
from devicemanager.driver.files import write_atomically, write_files
from devicemanager.driver.health import health_message, without_old
from devicemanager.driver.keeping import SocketKeeper
from devicemanager.driver.paths import DriverPaths, in_kubelet_directory
from devicemanager.driver.services import Report
from devicemanager.driver.settings import DriverSettings, driver_paths
from devicemanager.driver.values import AllocatedDevice, DeviceHealth
from devicemanager.plugin.errors import ConfigurationError
from devicemanager.plugin.settings import PluginSettings
from podresources.errors import SocketPathError

DRIVER = "gpu.vendor.com"


UID = "11111111-2222-3333-4444-555555555555"


def test_sockets_have_the_names_of_the_go_library():
    plain = in_kubelet_directory(DRIVER, Path("/k"))
    assert plain.registration_socket == Path("/k/plugins_registry/gpu.vendor.com-reg.sock")
    assert plain.service_socket == Path("/k/plugins/gpu.vendor.com/dra.sock")


@pytest.mark.parametrize(
    ("driver", "length", "name"),
    [
        # The names were made with RollingUpdateRegistrarSocketFile of the Go library, v0.37.2.
        (DRIVER, 20, f"{DRIVER}-{UID}-reg.sock"),
        (DRIVER, 60, f"{DRIVER}-Zm_2zKpbPAc-reg.sock"),
        ("a" * 63, 20, f"{'a' * 63}-Zm_2zKpbPAc-reg.sock"),
        ("a" * 63, 40, "dra-9eqL-qWHzLm-BSQmYa9FdA-reg.sock"),
    ],
)
def test_long_paths_get_shorter_names(driver, length, name):
    made = DriverPaths.of(driver, Path("/" + "r" * (length - 1)), Path("/d"), Path("/c"), UID)
    assert made.registration_socket.name == name


def test_path_that_is_too_long():
    with pytest.raises(SocketPathError, match="use a shorter directory"):
        in_kubelet_directory(DRIVER, Path("/" + "x" * 100))


def test_path_that_is_too_long_because_of_the_name():
    with pytest.raises(ConfigurationError, match="makes the path of a socket too long: use a name"):
        in_kubelet_directory("a" * 90, Path("/" + "x" * 20))


def test_report_to_a_new_stream_has_no_old_state():
    devices = [
        health_message(DeviceHealth("a", "Unhealthy", "hot", timeout=5), "p", 100),
        health_message(DeviceHealth("b", timeout=50), "p", 100),
        health_message(DeviceHealth("c", timeout=0), "p", 100),
        health_message(DeviceHealth("d", timeout=-1), "p", 100),
    ]
    made = without_old(Report(devices=devices), 129)
    assert [(each.health, each.message) for each in made.devices] == [(0, ""), *[(1, "")] * 3]


def test_settings_from_the_environment(monkeypatch, tmp_path):
    for name, value in (
        ("NODE_NAME", "n"),
        ("POD_UID", "u"),
        ("KUBELET_REGISTRAR_DIRECTORY_PATH", "/r"),
        ("KUBELET_PLUGINS_DIRECTORY_PATH", "/p"),
        ("CDI_ROOT", "/c"),
    ):
        monkeypatch.setenv(name, value)
    made = DriverSettings(cdi_dir=tmp_path).for_driver(DRIVER)
    assert (made.node_name, made.rolling_update) == ("n", "u")
    assert driver_paths(made, DRIVER).service_socket == Path("/p/gpu.vendor.com/dra-u.sock")
    assert (str(made.registrar_dir), made.cdi_dir) == ("/r", tmp_path)


class _ClosedClient:
    """A client that was closed during a request for a claim."""

    is_closing = True

    def __init__(self):
        self.requests = 0

    def attempt(self, method, path, body=None, *, query=None):
        if path.endswith("/resourceslices"):
            return {}
        self.requests += 1
        assert self.requests < 5, "more requests after the end"
        raise Unavailable("no response")

    def wait(self, seconds):
        return True


def test_closed_client_requests_a_claim_no_more():
    client = _ClosedClient()
    with pytest.raises(Unavailable):
        ResourceApi(client, DRIVER, "node-1").claim("default", "train")
    assert client.requests == 1


class _Client:
    """A client that notes its requests and has only the given API version."""

    def __init__(self, version="v1", answer=None):
        self.version = version
        self.answer = answer
        self.requests = []

    def attempt(self, method, path, body=None, *, query=None):
        if path.startswith("/apis/resource.k8s.io/"):
            _, _, _, version, *_ = path.split("/")
            if version != self.version:
                raise NotFound(404, "NotFound", "no", method, path)
        if query == {"limit": "1"}:
            return {}
        self.requests.append((method, path, body, query))
        if isinstance(self.answer, Exception):
            raise self.answer
        return body if self.answer is None else self.answer


DEVICE = {"name": "gpu-0", "attributes": {"a": {"int": 1}}}
BASIC = {"name": "gpu-0", "basic": {"attributes": {"a": {"int": 1}}}}
METADATA = {"name": "s", "uid": "u-1", "resourceVersion": "7"}


def slice_with(*devices, version="v1"):
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": METADATA,
        "spec": {"driver": DRIVER, "devices": list(devices)},
    }


@pytest.mark.parametrize(
    ("version", "device"), [("v1", DEVICE), ("v1beta2", DEVICE), ("v1beta1", BASIC)]
)
def test_requests_for_slices_have_the_form_of_the_version(version, device):
    path = f"/apis/resource.k8s.io/{version}/resourceslices"
    client = _Client(version)
    api = ResourceApi(client, DRIVER, "node-1")
    assert api.version == version
    assert api.create(slice_with(DEVICE)) == slice_with(DEVICE)
    assert api.replace(slice_with(DEVICE)) == slice_with(DEVICE)
    api.delete(slice_with(DEVICE))
    sent = slice_with(device, version=version)
    conditions = {"preconditions": {"uid": "u-1", "resourceVersion": "7"}}
    assert client.requests == [
        ("POST", path, sent, None),
        ("PUT", f"{path}/s", sent, None),
        ("DELETE", f"{path}/s", conditions, None),
    ]
    counters = {**slice_with(), "spec": {"driver": DRIVER, "sharedCounters": []}}
    assert api.create(counters) == counters


@pytest.mark.parametrize(("version", "device"), [("v1", DEVICE), ("v1beta1", BASIC)])
def test_slices_of_the_node_are_listed_in_v1(version, device):
    client = _Client(version, {"items": [slice_with(device, version=version)], "metadata": {}})
    assert ResourceApi(client, DRIVER, "node-1").slices() == [slice_with(DEVICE)]
    [(method, path, body, query)] = client.requests
    assert (method, path, body) == (
        "GET",
        f"/apis/resource.k8s.io/{version}/resourceslices",
        None,
    )
    assert query["fieldSelector"] == "spec.driver=gpu.vendor.com,spec.nodeName=node-1"
    client.answer = {"metadata": {}, "items": None}
    assert ResourceApi(client, DRIVER, "node-1").slices() == []


def test_owner_of_the_slices_is_the_node():
    client = _Client(answer={"metadata": {"uid": "n-1"}})
    assert ResourceApi(client, DRIVER, "node-1").owner() == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "node-1",
        "uid": "n-1",
        "controller": True,
    }
    assert client.requests == [("GET", "/api/v1/nodes/node-1", None, None)]


def test_missing_objects_are_ignored():
    client = _Client(answer=NotFound(404, "NotFound", "no", "GET", "/"))
    client.wait, client.is_closing = lambda seconds: True, False
    api = ResourceApi(client, DRIVER, "node-1")
    assert api.delete(slice_with()) is None
    assert api.claim("ml", "train") is None
    assert client.requests[-1][:2] == (
        "GET",
        "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/train",
    )


def test_server_without_the_api_is_an_error():
    with pytest.raises(NotFound):
        assert ResourceApi(_Client("v2"), DRIVER, "node-1").version


def test_failed_write_leaves_no_file(tmp_path, monkeypatch):
    path = tmp_path / "new" / "a.json"
    write_atomically(path, b"old")
    for function in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def fail(*arguments, **named):
                raise OSError(28, "No space left on device")

            patch.setattr(os, function, fail)
            with pytest.raises(OSError, match="No space left"):
                write_atomically(path, b"new")
        assert [each.name for each in path.parent.iterdir()] == ["a.json"]
        assert path.read_bytes() == b"old"


def test_temporary_file_is_hidden_from_container_runtimes(tmp_path, monkeypatch):
    seen = []
    fsync = os.fsync

    def note(descriptor):
        seen.extend(each.name for each in tmp_path.iterdir())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_files({tmp_path / "a.json": "content"})
    [name] = seen
    assert name.startswith(".a.json.") and name.endswith(".tmp")
    assert (tmp_path / "a.json").read_text() == "content"
    # A file with this content is not written again.
    write_files({tmp_path / "a.json": "content"})
    assert len(seen) == 1


def test_boot_id_is_that_of_this_host_or_empty(monkeypatch):
    assert boot.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip() != ""
    monkeypatch.setattr(boot, "_BOOT_ID", Path("/nowhere"))
    assert boot.boot_id() == ""


@pytest.mark.parametrize(
    ("edits", "version"),
    [
        ({"env": ["A=1"]}, "0.3.0"),
        ({"mounts": [{"hostPath": "/a", "containerPath": "/b"}]}, "0.3.0"),
        ({"deviceNodes": [{"path": "/dev/x"}]}, "0.3.0"),
        ({"deviceNodes": [{"path": "/dev/x"}, {"path": "/y", "hostPath": "/z"}]}, "0.5.0"),
        ({"additionalGids": [1]}, "0.7.0"),
        ({"intelRdt": {"closID": "gold"}}, "0.7.0"),
        ({"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}, "1.1.0"),
    ],
)
def test_cdi_file_has_the_oldest_version_with_its_fields(tmp_path, edits, version):
    files = CdiFiles(tmp_path, DRIVER)
    plain = {"env": ["B=1"]}
    for order in ({"a": edits, "b": plain, "c": {}}, {"b": plain, "a": edits}):
        [(path, text)] = files.contents("u1", order).items()
        content = json.loads(text)
        assert path == tmp_path / "k8s.gpu.vendor.com-claim_u1.json" == files.path("u1")
        assert (content["cdiVersion"], content["kind"]) == (version, "k8s.gpu.vendor.com/claim")
        assert {each["name"]: each["containerEdits"] for each in content["devices"]} == {
            "a": edits,
            "b": plain,
        }
    assert files.id("a") == "k8s.gpu.vendor.com/claim=a"
    assert files.contents("u1", {"c": {}}) == {}


def test_edits_of_a_prepared_device():
    device = AllocatedDevice(request="r", pool="p", device="d")
    prepared = device.prepared(
        envs={"A": "1"},
        devices=["/dev/x", DeviceSpec(container_path="/y", host_path="/z", permissions="r")],
        mounts=[
            Mount(host_path="/h", container_path="/c", read_only=True),
            Mount(host_path="/i", container_path="/d"),
        ],
        edits={"env": ["B=2"], "hooks": [{"hookName": "poststop", "path": "/x"}], "mounts": []},
    )
    assert container_edits(prepared) == {
        "env": ["A=1", "B=2"],
        "deviceNodes": [
            {"path": "/dev/x", "permissions": "rw"},
            {"path": "/y", "permissions": "r", "hostPath": "/z"},
        ],
        "mounts": [
            {"hostPath": "/h", "containerPath": "/c", "options": ["rbind", "ro"]},
            {"hostPath": "/i", "containerPath": "/d", "options": ["rbind", "rw"]},
        ],
        "hooks": [{"hookName": "poststop", "path": "/x"}],
    }
    assert container_edits(device.prepared()) == {}


def test_errors_are_logged_by_default(caplog):
    class Plain(Driver):
        def resources(self):
            return ()

        def prepare(self, claim):
            return ()

    driver = Plain()
    driver.handle_error(KeyError("gpu-9"), "publishing")
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.ERROR,
        "publishing: KeyError: 'gpu-9'",
    )
    with pytest.raises(NotImplementedError):
        driver.health()


class _Sockets:
    """Sockets of a driver that note what happens, and cannot be served at first."""

    driver = DRIVER

    def __init__(self):
        self.done = []
        self.reachable = False

    def are_reachable(self):
        return self.reachable

    def start(self):
        self.done.append("start")
        self.reachable = True

    def stop(self):
        self.done.append("stop")
        self.reachable = False


def test_sockets_are_served_in_the_kubelets_directory_and_again(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    directory, sockets = tmp_path / "registry", _Sockets()
    keeper = SocketKeeper(sockets, directory, threading.Event())
    for _ in range(2):
        keeper._step()
    waiting = f"{DRIVER}: waiting for a kubelet: there is no {directory}"
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", waiting)
    ]
    assert sockets.done == []
    directory.mkdir()
    for _ in range(2):
        keeper._step()
    assert sockets.done == ["stop", "start"]
    sockets.reachable = False
    keeper._step()
    assert sockets.done == ["stop", "start"] * 2
    caplog.clear()
    for text in ("a", "a", "b"):
        assert keeper._cannot_serve(OSError(text)) == PluginSettings().register_backoff
    assert [each.getMessage() for each in caplog.records] == [
        f"{DRIVER}: cannot serve: {text}" for text in "ab"
    ]
    # After it was served, the same problem is logged again.
    keeper._serve("test")
    keeper._cannot_serve(OSError("b"))
    assert caplog.records[-1].getMessage() == f"{DRIVER}: cannot serve: b"
    keeper.stop()
    assert sockets.done[-1] == "stop"


@pytest.mark.parametrize(
    ("kind", "positional"),
    [
        (Device, ["name"]),
        (Pool, ["devices"]),
        (Version, ["text"]),
        (Taint, []),
        (AllocatedDevice, []),
        (Claim, []),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_optional_values_are_given_by_name(kind, positional):
    parameters = inspect.signature(kind).parameters.values()
    assert [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY] == positional


def test_arguments_of_serve_are_the_settings_with_their_defaults():
    _, _, *others = inspect.signature(serve).parameters.values()
    settings = inspect.signature(DriverSettings).parameters
    assert {each.name: each.default for each in others} == {
        each.name: settings[each.name].default for each in others
    }
    assert all(each.kind is each.KEYWORD_ONLY for each in others)
