"""Registrations of drivers: the service that the kubelet calls, and rejections."""

from __future__ import annotations

import pytest

from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.errors import DriverRejected
from tests.dra_world import GPU, rules

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
