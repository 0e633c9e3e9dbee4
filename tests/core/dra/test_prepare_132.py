"""Prepare and unprepare of kubelets before v1.34, which validate less in advance."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.errors import DraError
from tests.dra_world import GPU, NIC, World, claim, pod, rules


def test_driver_is_looked_up_right_before_its_call():
    world = World(rules("1.32"), GPU)
    world.add(claim("c1", GPU, NIC))
    with pytest.raises(DraError) as raised:
        world.prepare(pod())
    assert str(raised.value) == (
        f"failed to get gRPC client for driver {NIC}: plugin name {NIC} not found in the list of "
        "registered DRA plugins"
    )
    # Later kubelets call no driver then.
    assert [each[0] for each in world.calls()] == [GPU]
    world = World(rules("1.34"), GPU)
    world.add(claim("c1", GPU, NIC))
    with pytest.raises(DraError, match=f"DRA driver {NIC} is not registered"):
        world.prepare(pod())
    assert world.calls() == []


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.32", f"get gRPC client for DRA driver {NIC}: plugin name {NIC} not found in the list"),
        ("1.37", f"unprepare dynamic resources: DRA driver {NIC} is not registered"),
    ],
)
def test_driver_that_is_gone_is_noticed_after_the_calls_before_it(version, text):
    world = World(rules(version), GPU, NIC)
    world.add(claim("c1", GPU, NIC))
    world.prepare(pod())
    world.drivers.deregister(NIC, f"/{NIC}.sock", 0.0)
    with pytest.raises(DraError) as raised:
        world.unprepare(pod())
    assert str(raised.value).startswith(text)
    assert [each[:2] for each in world.calls()[2:]] == [(GPU, "NodeUnprepareResources")]


def test_claim_that_the_node_holds_need_not_be_allocated():
    world = World(rules("1.32"), GPU)
    world.add(claim())
    world.prepare(pod())
    world.add(attrs.evolve(claim(), results=None))
    world.prepare(pod())
    with pytest.raises(DraError, match=r"^locked cache operation: claim default/c2: not allocated"):
        world.add(attrs.evolve(claim("c2"), results=None))
        world.prepare(pod("p", "c2"))


@pytest.mark.parametrize(("version", "left"), [("1.32", []), ("1.34", ["/new.sock"])])
def test_late_deregistration_removes_the_new_instance_before_133(version, left):
    drivers = Drivers(rules(version))
    for endpoint in ("/old.sock", "/new.sock"):
        drivers.register(GPU, endpoint, ["v1beta1.DRAPlugin"], 0.0)
    drivers.deregister(GPU, "/old.sock", 0.0)
    assert [each.endpoint for each in drivers] == left
