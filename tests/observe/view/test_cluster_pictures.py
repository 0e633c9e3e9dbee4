"""Pictures of nodes in a cluster, made of the nodes themselves."""

from __future__ import annotations

import pytest

from devicemanager.observe.view import ClusterViewBuilder, ResourceTotals
from tests.cluster.world import GPU, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def look(world):
    return ClusterViewBuilder("here", lambda: world.nodes, now=lambda: 0.0).refresh


def test_nodes_are_sorted_as_people_count(world, look) -> None:
    for name in ("n-10", "n-9", "a", "n-x", "n-0"):
        world.join(name)
    assert [node.name for node in look().nodes] == ["a", "n-0", "n-9", "n-10", "n-x"]


def test_a_node_and_its_pods(world, look) -> None:
    world.join("a")
    world.join("b")
    for name, gpus in (("one", 1), ("two", 2), ("many", 3)):
        world.run(name, "a", gpus=gpus)
    world.nodes["a"].fail_device(GPU, "gpu-3")
    first, second = look().nodes
    assert first.ready and not first.silent and first.problems == ()
    assert first.resources == (ResourceTotals(GPU, 4, 3, 3),)
    assert first.pods == (("Failed", 1), ("Running", 2))
    assert first.rejection.startswith("default/many UnexpectedAdmissionError: Allocate failed")
    assert (second.pods, second.rejection) == ((), "")
    assert look().resources == (ResourceTotals(GPU, 8, 7, 3),)


def test_what_is_wrong_with_it(world, look) -> None:
    world.join("a")
    world.annotate("not-ready=the fan is off; disk-pressure", "a")
    world.nodes["a"].silent()
    (node,) = look().nodes
    assert (node.ready, node.silent) == (False, True)
    assert node.problems == (
        "the fan is off",
        "DiskPressure",
        "not-ready=the fan is off",
        "disk-pressure",
    )


def test_a_rejection_is_remembered_when_its_pod_has_gone(world) -> None:
    world.join("a", gpus=1)
    world.run("many", "a", gpus=2)
    pictures = ClusterViewBuilder("here", lambda: world.nodes, now=lambda: 0.0)
    rejection = pictures.refresh().nodes[0].rejection
    world.delete("many", grace=0)
    (node,) = pictures.refresh().nodes
    assert (node.pods, node.rejection) == ((), rejection)
    world.run("more", "a", gpus=3)
    assert pictures.refresh().nodes[0].rejection.startswith("default/more ")
    world.delete("more", grace=0)
    # Another one of this name has rejected nobody yet.
    gone = world.nodes.pop("a")
    assert pictures.refresh().nodes == ()
    world.nodes["a"] = gone
    assert pictures.refresh().nodes[0].rejection == ""


def test_looking_takes_a_tenth_of_the_time(world) -> None:
    world.join("a")
    now = 0.0

    def takes_two_seconds():
        nonlocal now
        now += 2.0
        return world.nodes

    pictures = ClusterViewBuilder("here", takes_two_seconds, now=lambda: now)
    first = pictures.refresh()
    world.nodes.clear()
    now = 21.9
    assert pictures.refresh() is first
    now = 22.0
    assert pictures.refresh().nodes == ()
