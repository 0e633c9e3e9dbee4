"""Slices on the API server: written, repaired, and kept apart from the server's failures."""

import copy
import threading

import pytest

from devicemanager.apiserver import FakeApiServer
from devicemanager.driver import Device, DeviceHealth, Driver, Taint
from devicemanager.driver import api as api_module
from tests.driver.conftest import DRIVER, NODE


class Fixed(Driver):
    def __init__(self, *devices):
        self.given = devices
        self.errors = []
        self.failed = threading.Event()

    def resources(self):
        return self.given

    def prepare(self, claim):
        return ()

    def handle_error(self, error, what):
        self.errors.append((what, str(error)))
        self.failed.set()


def pools(api):
    return sorted(
        (each["spec"]["pool"]["generation"], [device["name"] for device in each["spec"]["devices"]])
        for each in api.all("resourceslices")
    )


def writes(api):
    return sum(
        count
        for (verb, kind), count in api.requests.items()
        if kind == "resourceslices" and verb in ("create", "update", "delete")
    )


def wait_for_slices(api, count=1):
    """Wait until the server has this many slices."""

    def is_done():
        return len(api.all("resourceslices")) == count

    for _ in range(100):
        if is_done():
            return
        api.wait_for_change(api.version, 1.0, is_done)
    raise AssertionError(api.all("resourceslices"))


def test_slices_belong_to_the_node(api, serve):
    assert serve(Fixed("a")).wait_published(60)
    [slice_] = api.all("resourceslices")
    [owner] = slice_["metadata"]["ownerReferences"]
    node = api.get("nodes", NODE)
    assert slice_["metadata"]["name"].startswith(f"00000-{DRIVER}-{NODE}-")
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])


def test_restart_writes_nothing(api, serve):
    first = serve(Fixed(Device("a", capacity={"memory": "1024Mi"}, taints=[Taint(key="k")])))
    assert first.wait_published(60)
    first.stop()
    before = writes(api)
    again = Fixed(Device("a", capacity={"memory": "1Gi"}, taints=[Taint(key="k")]))
    assert serve(again).wait_published(60)
    assert writes(api) == before


def test_changed_devices_have_the_next_generation(api, serve):
    driver = Fixed("a")
    server = serve(driver)
    assert server.wait_published(60)
    driver.publish_resources(["a", "b"])
    assert server.wait_published(60)
    assert pools(api) == [(2, ["a", "b"])]


def test_generator_publishes_each_value(api, serve):
    go_on = threading.Event()

    class Changing(Fixed):
        def resources(self):
            yield ["a"]
            assert go_on.wait(60)
            yield ["b"]
            self.stopping.wait()

    server = serve(Changing())
    assert server.wait_published(60)
    assert pools(api) == [(1, ["a"])]
    go_on.set()
    for _ in range(100):
        if pools(api) == [(2, ["b"])]:
            return
        api.wait_for_change(api.version, 1.0, lambda: pools(api) == [(2, ["b"])])
    raise AssertionError(pools(api))


def test_wiped_slices_return(api, serve):
    assert serve(Fixed("a")).wait_published(60)
    [slice_] = api.all("resourceslices")
    api.delete("resourceslices", slice_["metadata"]["name"])
    wait_for_slices(api)
    assert pools(api) == [(1, ["a"])]


def test_foreign_slice_of_the_pool_is_deleted(api, serve):
    assert serve(Fixed("a")).wait_published(60)
    [slice_] = api.all("resourceslices")
    api.create("resourceslices", {"metadata": {"name": "copy"}, "spec": slice_["spec"]})
    wait_for_slices(api)
    assert pools(api) == [(1, ["a"])]


def test_slices_of_other_nodes_and_drivers_stay(api, serve):
    spec = {"pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1}, "devices": []}
    for name, node, driver in (("n", "other", DRIVER), ("d", NODE, "other.com")):
        metadata = {"metadata": {"name": name}}
        api.create(
            "resourceslices", {**metadata, "spec": {**spec, "nodeName": node, "driver": driver}}
        )
    assert serve(Fixed("a")).wait_published(60)
    assert len(api.all("resourceslices")) == 3


@pytest.mark.parametrize("code", [409, 500, 429])
def test_failed_write_is_repeated(api, serve, code):
    api.faults.fail(code, lambda request: request.verb == "create", times=1)
    assert serve(Fixed("a")).wait_published(60)
    assert pools(api) == [(1, ["a"])]


def test_watch_that_breaks_or_expires(api, serve):
    assert serve(Fixed("a")).wait_published(60)
    api.faults.fail(410, lambda request: request.verb == "watch", times=1)
    api.cut_streams()
    [slice_] = api.all("resourceslices")
    api.delete("resourceslices", slice_["metadata"]["name"])
    wait_for_slices(api)


def test_api_server_that_starts_later(api, serve):
    api.stop()
    driver = Fixed("a")
    server = serve(driver)
    assert driver.failed.wait(60)
    api.start()
    assert server.wait_published(60)


def test_node_that_is_created_later(api, serve):
    api.delete("nodes", NODE)
    driver = Fixed("a")
    server = serve(driver)
    assert driver.failed.wait(60)
    [(what, text), *_] = driver.errors
    assert what == "publishing ResourceSlices"
    assert "/api/v1/nodes/node-1: 404" in text
    api.create("nodes", {"metadata": {"name": NODE}})
    assert server.wait_published(60)


def test_fields_that_the_server_drops_are_reported_once(api, serve, monkeypatch):
    sent = api_module._from_v1

    def without_taints(slice_, version):
        body = copy.deepcopy(sent(slice_, version))
        for device in body["spec"]["devices"]:
            device.pop("taints", None)
        return body

    # As if the server dropped them, because the feature gate is off.
    monkeypatch.setattr(api_module, "_from_v1", without_taints)
    driver = Fixed(Device("a", taints=[Taint(key="k")]))
    server = serve(driver)
    assert server.wait_published(60)
    before = writes(api)
    driver.publish_resources([Device("a", taints=[Taint(key="k")])])
    assert server.wait_published(60)
    assert writes(api) == before
    driver.publish_resources(["b", Device("a", taints=[Taint(key="k")])])
    assert server.wait_published(60)
    assert driver.errors == [
        (
            "publishing ResourceSlices",
            f"the API server did not store spec.devices[{at}].taints: check its feature gates",
        )
        for at in (0, 1)
    ]
    assert [generation for generation, _ in pools(api)] == [2]


class Reporting(Fixed):
    """Driver whose devices have the health that the test sets."""

    health_interval = 0.05

    def __init__(self, *devices):
        super().__init__(*devices)
        self.unhealthy = set()

    def health(self):
        return [
            DeviceHealth(name, "Unhealthy" if name in self.unhealthy else "Healthy")
            for name in ("a", "b")
        ]


def taints(api):
    """Return the keys of the taints of each device."""
    return {
        device["name"]: [each["key"] for each in device.get("taints", ())]
        for each in api.all("resourceslices")
        for device in each["spec"]["devices"]
    }


def wait_for_taints(api, wanted):
    for _ in range(100):
        if taints(api) == wanted:
            return
        api.wait_for_change(api.version, 1.0, lambda: taints(api) == wanted)
    raise AssertionError(taints(api))


def test_unhealthy_device_has_a_taint_until_it_is_healthy(api, serve):
    driver = Reporting(Device("a", taints=[Taint(key="own")]), "b")
    assert serve(driver).wait_published(60)
    assert taints(api) == {"a": ["own"], "b": []}
    driver.unhealthy = {"a"}
    wait_for_taints(api, {"a": ["own", f"{DRIVER}/unhealthy"], "b": []})
    driver.unhealthy = {"b"}
    wait_for_taints(api, {"a": ["own"], "b": [f"{DRIVER}/unhealthy"]})
    driver.unhealthy = set()
    wait_for_taints(api, {"a": ["own"], "b": []})


def test_driver_can_publish_its_own_taints_only(api, serve):
    class Own(Reporting):
        taint_unhealthy = False

        def health(self):
            self.calls += 1
            if self.calls > 2:
                self.failed.set()
            return [DeviceHealth("a", "Unhealthy")]

    driver = Own("a")
    driver.calls = 0
    server = serve(driver)
    assert server.wait_published(60)
    # The first report was processed completely before this call.
    assert driver.failed.wait(60)
    driver.publish_resources(["a", "b"])
    assert server.wait_published(60)
    assert taints(api) == {"a": [], "b": []}


def test_dropped_taint_of_an_unhealthy_device_is_not_reported(api, serve, monkeypatch):
    sent = api_module._from_v1
    dropped = threading.Event()

    def without_taints(slice_, version):
        body = copy.deepcopy(sent(slice_, version))
        for device in body["spec"]["devices"]:
            if device.pop("taints", None):
                dropped.set()
        return body

    monkeypatch.setattr(api_module, "_from_v1", without_taints)
    driver = Reporting("a", "b")
    driver.unhealthy = {"a"}
    server = serve(driver)
    assert dropped.wait(60)
    driver.publish_resources(["b", "a"])
    assert server.wait_published(60)
    assert driver.errors == []


def test_only_v1beta1(serve, directory):
    hidden = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")
    with FakeApiServer(hidden=hidden) as api:
        api.create("nodes", {"metadata": {"name": NODE}})
        kubeconfig = api.kubeconfig(directory / "beta")
        server = serve(Fixed(Device("a", attributes={"x": 1})), kubeconfig=kubeconfig)
        assert server.wait_published(60)
        [slice_] = api.all("resourceslices")
        assert slice_["spec"]["devices"] == [{"name": "a", "attributes": {"x": {"int": 1}}}]
        before = writes(api)
        server.stop()
        again = serve(Fixed(Device("a", attributes={"x": 1})), kubeconfig=kubeconfig)
        assert again.wait_published(60)
        assert writes(api) == before
        again.stop()


def test_invalid_devices_are_reported_to_the_log_and_tried_again(api, serve, caplog):
    class Wrong(Fixed):
        def resources(self):
            self.failed.set()
            return ["a", "a"]

    driver = Wrong()
    server = serve(driver)
    assert driver.failed.wait(60)
    driver.publish_resources(["a"])
    assert server.wait_published(60)
    assert "device a is in the pool twice: use unique names" in caplog.text
