"""Registrations of drivers: the service and instance to call, rejections, and lost drivers."""

from __future__ import annotations

import pytest

from devicemanager.core.dra.drivers import Drivers, wipe_selector
from devicemanager.core.dra.errors import DraError, DriverRejected
from tests.dra_world import GPU, NIC, rules

EMPTY = "empty list of supported gRPC services (aka supported versions)"


@pytest.mark.parametrize(
    ("version", "services", "service"),
    [
        ("1.37", ["v1beta1.DRAPlugin", "v1.DRAPlugin"], "v1beta1"),
        ("1.37", ["other", "v1.DRAPlugin"], "v1"),
        ("1.32", ["v1alpha3.NodeService", "v1beta1.DRAPlugin"], "v1beta1"),
        ("1.32", ["v1.DRAPlugin"], "v1alpha4"),
    ],
)
def test_first_common_service_is_called(version, services, service):
    drivers = Drivers(rules(version))
    assert drivers.validate(GPU, "/a.sock", services) == service
    assert drivers.register(GPU, "/a.sock", services, 0.0).service == service


@pytest.mark.parametrize(
    ("version", "services", "text"),
    [
        ("1.32", [], f"invalid versions of plugin {GPU}: {EMPTY}"),
        (
            "1.37",
            [],
            f"invalid supported gRPC versions of DRA driver plugin {GPU} at endpoint /a.sock: "
            f"{EMPTY}",
        ),
        (
            "1.37",
            ["1.0.0"],
            f"invalid supported gRPC versions of DRA driver plugin {GPU} at endpoint /a.sock: "
            'none of services supported by the plugin (["1.0.0"]) are supported by the kubelet '
            '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
    ],
)
def test_driver_without_a_common_service_is_rejected(version, services, text):
    drivers = Drivers(rules(version))
    for stage, method in (
        ("validate", drivers.validate),
        ("register", lambda *parts: drivers.register(*parts, 0.0)),
    ):
        with pytest.raises(DriverRejected) as rejected:
            method(GPU, "/a.sock", services)
        assert (str(rejected.value), rejected.value.stage) == (text, stage)
    assert list(drivers) == []


def test_endpoint_is_registered_once():
    drivers = Drivers(rules("1.37"))
    drivers.register(GPU, "/a.sock", ["v1.DRAPlugin"], 0.0)
    with pytest.raises(DriverRejected) as rejected:
        drivers.register(GPU, "/a.sock", ["v1.DRAPlugin"], 0.0)
    assert str(rejected.value) == f"endpoint /a.sock already registered for DRA driver plugin {GPU}"
    assert rejected.value.stage == "register"


V1 = ["v1.DRAPlugin"]


def registered(*endpoints: str, version: str = "1.37") -> Drivers:
    drivers = Drivers(rules(version))
    for endpoint in endpoints:
        drivers.register(GPU, endpoint, [*V1, "v1beta1.DRAPlugin"], 0.0)
    return drivers


def test_newest_connected_instance_is_called():
    drivers = registered("/a.sock", "/b.sock", "/c.sock")
    a, b, c = drivers
    assert [each.id for each in (a, b, c)] == [1, 2, 3]
    assert drivers.lookup(GPU) is c
    drivers.set_connected(a.id, True, 0.0)
    assert drivers.lookup(GPU) is a
    drivers.set_connected(b.id, True, 0.0)
    assert drivers.lookup(GPU) is b
    drivers.set_connected(b.id, False, 0.0)
    assert drivers.lookup(GPU) is a
    assert drivers.get(b.id) is b
    assert drivers.deregister(GPU, "/b.sock", 0.0) is b
    assert drivers.deregister(GPU, "/b.sock", 0.0) is None
    assert drivers.deregister("other", "/a.sock", 0.0) is None
    assert drivers.get(b.id) is None
    assert drivers.get(c.id) is c


def test_instances_are_in_the_order_of_their_drivers():
    drivers = Drivers(rules())
    for driver, endpoint in ((NIC, "/n"), (GPU, "/b"), (GPU, "/a")):
        drivers.register(driver, endpoint, V1, 0.0)
    assert [each.endpoint for each in drivers] == ["/b", "/a", "/n"]


@pytest.mark.parametrize(
    ("version", "driver", "text"),
    [
        ("1.37", NIC, f"DRA driver {NIC} is not registered"),
        ("1.34", NIC, f"DRA driver {NIC} is not registered"),
        ("1.32", NIC, f"plugin name {NIC} not found in the list of registered DRA plugins"),
        ("1.37", "", "DRA driver name is empty"),
        ("1.32", "", "plugin name is empty"),
    ],
)
def test_driver_that_is_not_registered_is_an_error(version, driver, text):
    with pytest.raises(DraError) as raised:
        registered("/a.sock", version=version).lookup(driver)
    assert str(raised.value) == text
    drivers = registered("/a.sock", version=version)
    drivers.deregister(GPU, "/a.sock", 0.0)
    with pytest.raises(DraError):
        drivers.lookup(GPU)


@pytest.mark.parametrize(
    ("version", "gate", "services", "health"),
    [
        ("1.33", True, V1, None),
        ("1.34", False, V1, None),
        ("1.34", True, V1, "v1alpha1"),
        ("1.37", False, ["v1.DRAResourceHealth"], None),
        ("1.37", True, ["v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth"], "v1"),
        ("1.37", True, ["v1alpha1.DRAResourceHealth"], "v1alpha1"),
        ("1.37", True, [], None),
    ],
)
def test_health_service_of_an_instance(version, gate, services, health):
    drivers = Drivers(rules(version, ResourceHealthStatus=gate))
    offered = ["v1.DRAPlugin", "v1beta1.DRAPlugin", *services]
    assert drivers.register(GPU, "/a.sock", offered, 0.0).health_service == health


@pytest.mark.parametrize(
    ("version", "registered_at", "lost_at", "gone_at", "due"),
    [
        # The slices are deleted as soon as the driver deregisters, or 30 s later. Since 1.34, they
        # are also deleted 30 s after the connection was lost, or was not established.
        ("1.32", None, None, 50.0, 50.0),
        ("1.33", None, None, 50.0, 80.0),
        ("1.34", 30.0, 70.0, 50.0, 70.0),
    ],
)
def test_slices_are_deleted_after_a_driver_has_gone(version, registered_at, lost_at, gone_at, due):
    drivers = Drivers(rules(version))
    instance = drivers.register(GPU, "/a.sock", ["v1beta1.DRAPlugin"], 0.0)
    assert drivers.next_wipe() == registered_at
    drivers.set_connected(instance.id, True, 5.0)
    assert drivers.next_wipe() is None
    drivers.set_connected(instance.id, False, 40.0)
    assert drivers.next_wipe() == lost_at
    drivers.deregister(GPU, "/a.sock", gone_at)
    assert drivers.next_wipe() == due
    assert drivers.due_wipes(due - 0.5) == []
    assert drivers.due_wipes(due) == [GPU]
    assert drivers.due_wipes(due) == []
    assert drivers.next_wipe() is None


def test_new_instance_cancels_the_deletion_of_slices():
    drivers = registered("/a.sock")
    drivers.register(NIC, "/n.sock", V1, 10.0)
    assert drivers.next_wipe() == 30.0
    drivers.set_connected(drivers.lookup(GPU).id, True, 20.0)
    assert drivers.next_wipe() == 40.0
    drivers.deregister(GPU, "/a.sock", 30.0)
    assert drivers.due_wipes(100.0) == [GPU, NIC]


def test_selector_of_the_slices_to_delete():
    assert wipe_selector("n") == "spec.nodeName=n"
    assert wipe_selector("n", GPU) == f"spec.driver={GPU},spec.nodeName=n"
