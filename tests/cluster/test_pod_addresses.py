"""Addresses of pods: unique, reused late, and kept by a pod that another process takes over."""

from __future__ import annotations

import pytest

from devicemanager.cluster.addresses import PodAddresses, UsedAddresses, pod_network
from tests.cluster.world import World


def test_no_two_pods_of_any_nodes_share_an_address() -> None:
    pool = UsedAddresses()
    nodes = [PodAddresses(pool, "198.18.0.0/15", index, 100) for index in range(100)]
    found = [node.allocate() for node in nodes for _ in range(100)]
    assert len(set(found)) == 10_000
    assert found[0] == "198.18.0.1" and found[100] == "198.18.5.31"


def test_a_free_address_is_reused_last() -> None:
    node = PodAddresses(UsedAddresses(), "10.0.0.0/29")
    first = [node.allocate() for _ in range(3)]
    node.free(first[0])
    later = [node.allocate() for _ in range(4)]
    assert first + later == [f"10.0.0.{number}" for number in (1, 2, 3, 4, 5, 6, 1)]


def test_a_full_node_uses_the_rest_of_the_range() -> None:
    pool = UsedAddresses()
    full, other = (PodAddresses(pool, "10.0.0.0/29", index, 2) for index in range(2))
    assert other.allocate() == "10.0.0.4"
    assert [full.allocate()[-1] for _ in range(5)] == ["1", "2", "3", "5", "6"]
    assert pod_network("10.0.0.0/29").num_addresses - 2 == len(pool.used)
    assert full.allocate() in pool.used, "with no free address, pods share one"


def test_more_nodes_than_addresses() -> None:
    pool = UsedAddresses()
    nodes = [PodAddresses(pool, "10.0.0.0/30", index, 5) for index in range(5)]
    assert {node.allocate() for node in nodes} == {"10.0.0.1", "10.0.0.2"}


def test_a_node_that_leaves_frees_only_its_own_addresses() -> None:
    pool = UsedAddresses()
    node, other = (PodAddresses(pool, "fd00::/120", index, 2) for index in range(2))
    kept = other.allocate()
    assert node.allocate("10.9.9.9") == "10.9.9.9"
    node.free(kept)
    own = node.allocate()
    node.free_all()
    assert pool.used == {kept}
    assert other.allocate(own) == own
    node.free(own)
    assert pool.used == {kept, own}, "it belongs to the other node now"


@pytest.mark.parametrize("cidr", ["10.0.0.0/31", "10.0.0.1/24", "fd00::/127", "x", ""])
def test_range_without_two_free_addresses_is_an_error(cidr: str) -> None:
    with pytest.raises(ValueError) as raised:
        pod_network(cidr)
    assert str(raised.value) == (
        f"invalid range {cidr!r}: use a form such as 10.244.0.0/16, with at least 4 addresses"
    )


def test_a_pod_has_its_address_while_it_runs() -> None:
    world = World()
    world.join(pod_cidr="10.0.0.0/24")
    world.run("a")
    world.run("late", annotations={"devicemanager.io/start-delay": "5s"})
    world.run("host", hostNetwork=True)
    world.run("b")
    assert "podIP" not in world.status("late"), "there is no sandbox yet"
    world.pass_time(6.0)
    names = ("a", "b", "late")
    assert [world.status(each)["podIP"] for each in names] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    run_for = {"devicemanager.io/run-for": "2s"}
    world.run("ends", gpus=0, annotations=run_for, restartPolicy="Never")
    world.pass_time(3.0)
    ended = world.status("ends")
    assert (ended["phase"], ended["podIP"]) == ("Succeeded", "10.0.0.4")
    used = world.nodes["n"]._context.addresses._pool.used
    assert used == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    world.delete("a")
    assert used == {"10.0.0.2", "10.0.0.3"}


def test_a_pod_keeps_its_address_under_the_next_process() -> None:
    world = World()
    world.join(pod_cidr="10.0.0.0/24")
    for name in ("a", "b"):
        world.run(name)
    world.delete("a")
    world.nodes.pop("n")._pods.close()
    world.join(pod_cidr="10.0.0.0/24")
    world.run("c")
    world.run("d")
    found = [world.status(each)["podIP"] for each in ("b", "c", "d")]
    assert found == ["10.0.0.2", "10.0.0.1", "10.0.0.3"]
