"""Simulated hardware has partitions, shared capacity and versions to try claims with."""

import pytest

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.errors import DoesNotFit
from devicemanager.claims.simulated import DRIVERS, SimulatedHardware, simulated_classes
from devicemanager.claims.store import ObjectStore
from tests.claims.documents import claim, read


def node(**cards):
    found = Allocator(ObjectStore())
    for pool in SimulatedHardware(**cards).pools("n1"):
        found.store.publish(pool)
    for each in simulated_classes():
        found.store.define(each)
    return found


def get(found, name, *instances, **spec):
    found.submit(read(claim(name, *instances, **spec)))
    found.allocate([f"default/{name}"], "n1")
    status = found.claims[f"default/{name}"].status
    return [f"{each.device_pool_name}/{each.device_name}" for each in status.allocations]


def partition(profile, count=1):
    constraints = f"device.profile == '{profile}'"
    requests = {"count": count}
    return {"deviceClass": "gpu-partition", "constraints": constraints, "requests": requests}


def test_partitions_of_a_card_share_its_budget():
    found = node(gpu=1)
    assert get(found, "half", partition("3g.40gb")) == ["n1-gpu-0/3g-40gb-0"]
    with pytest.raises(DoesNotFit, match="pool n1-gpu-0 has too little compute-slices left"):
        get(found, "whole", {"deviceClass": "gpu"})
    assert len(get(found, "small", partition("1g.10gb", 4))) == 4
    with pytest.raises(DoesNotFit, match="too little compute-slices left"):
        get(found, "more", partition("1g.10gb"))
    found.release("default/half", "default/small")
    assert get(found, "whole", {"deviceClass": "gpu"}) == ["n1-gpu-0/7g-80gb-0"]


def test_function_and_bandwidth_come_from_one_card():
    found = node(nic=2)
    for number in range(2):
        share = {"deviceClass": "nic-bandwidth", "requests": {"bandwidth": "60G"}}
        function = {"deviceClass": "nic-function"}
        taken = get(found, f"c{number}", function, share, matchAttributes=["card"])
        assert taken == [f"n1-nic-{number}/vf-0", f"n1-nic-{number}/uplink"]
    with pytest.raises(
        DoesNotFit, match=r'^DeviceClaim "default/c2", claims\[0\]: needs 90G of bandwidth'
    ):
        get(found, "c2", {"deviceClass": "nic-bandwidth", "requests": {"bandwidth": "90G"}})


def test_shells_compare_as_versions():
    newer = {"deviceClass": "fpga", "constraints": "device.shell >= '1.9.0'"}
    assert get(node(), "c", newer) == ["n1-fpga/fpga-0"]


def test_monitor_gets_allocated_devices():
    found = node(gpu=1)
    get(found, "whole", {"deviceClass": "gpu"})
    watch = {"deviceClass": "gpu-monitor"}
    assert len(get(found, "monitor", watch)) == 13


def test_node_can_have_no_cards_of_a_kind():
    assert SimulatedHardware(0, 0, 0).pools("n1") == ()
    assert len(SimulatedHardware(1, 2, 3).pools("n1")) == 4


def test_cards_alternate_between_two_numa_nodes():
    def numa(attributes):
        return [each.int_value for each in attributes if each.name == "numa"]

    *cards, fpgas = SimulatedHardware(gpu=3, nic=3, fpga=3).pools("n1")
    assert [numa(card.attributes) for card in cards] == [[0], [1], [0]] * 2
    assert [numa(device.attributes) for device in fpgas.devices] == [[0], [1], [0]]


def test_drivers_and_classes_have_the_names_of_the_docs():
    gpu, nic, fpga = SimulatedHardware(1, 1, 1).pools("n1")
    drivers = ["gpu.example.com", "nic.example.com", "fpga.example.com"]
    assert [pool.driver for pool in (gpu, nic, fpga)] == drivers
    assert sorted(DRIVERS) == sorted(drivers)
    assert {each.metadata.name: each.driver for each in simulated_classes()} == {
        "fpga": "fpga.example.com",
        "gpu": "gpu.example.com",
        "gpu-partition": "gpu.example.com",
        "gpu-monitor": "gpu.example.com",
        "nic-bandwidth": "nic.example.com",
        "nic-function": "nic.example.com",
    }


def test_attributes_of_cards():
    def attributes(thing):
        return {each.name for each in thing.attributes}

    gpu, nic, fpga = SimulatedHardware(1, 1, 1).pools("n1")
    assert attributes(gpu) == {"card", "model", "numa"}
    assert [each.string_value for each in gpu.attributes[:2]] == ["n1-gpu-0", "A100-SXM4-80GB"]
    assert attributes(nic) == {"card", "linkSpeed", "numa"}
    assert nic.attributes[0].string_value == "n1-nic-0"
    assert [(each.name, each.string_value) for each in fpga.attributes] == [("model", "U250")]
    assert {frozenset(attributes(each)) for each in gpu.devices} == {
        frozenset({"profile", "memory"})
    }
    assert {frozenset(attributes(each)) for each in nic.devices} == {frozenset({"function"})}
    assert {frozenset(attributes(each)) for each in fpga.devices} == {frozenset({"shell", "numa"})}
