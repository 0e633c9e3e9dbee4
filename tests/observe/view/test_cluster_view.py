"""Views of the nodes of a cluster."""

from __future__ import annotations

import pytest

from devicemanager.observe.view import ClusterViewBuilder, ResourceTotals
from tests.cluster.world import GPU, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def refresh(world):
    return ClusterViewBuilder("here", lambda: world.nodes, now=lambda: 0.0).refresh


def test_nodes_are_sorted_by_number_in_name(world, refresh) -> None:
    for name in ("n-10", "n-9", "a", "n-x", "n-0"):
        world.join(name)
    assert [node.name for node in refresh().nodes] == ["a", "n-0", "n-9", "n-10", "n-x"]


def test_cluster_view_counts_devices_and_pods_of_nodes(world, refresh) -> None:
    world.join("a")
    world.join("b")
    for name, gpus in (("one", 1), ("two", 2), ("many", 3)):
        world.run(name, "a", gpus=gpus)
    world.nodes["a"].fail_device(GPU, "gpu-3")
    first, second = refresh().nodes
    assert first.ready and not first.silent and first.problems == ()
    assert first.resources == (ResourceTotals(GPU, 4, 3, 3),)
    assert first.pods == (("Failed", 1), ("Running", 2))
    assert first.rejection.startswith("default/many UnexpectedAdmissionError: Allocate failed")
    assert (second.pods, second.rejection) == ((), "")
    assert refresh().resources == (ResourceTotals(GPU, 8, 7, 3),)


def test_cluster_view_shows_problems_of_node(world, refresh) -> None:
    world.join("a")
    world.annotate("not-ready=the fan is off; disk-pressure", "a")
    world.nodes["a"].silent()
    (node,) = refresh().nodes
    assert (node.ready, node.silent) == (False, True)
    assert node.problems == (
        "the fan is off",
        "DiskPressure",
        "not-ready=the fan is off",
        "disk-pressure",
    )


def test_cluster_view_shows_rejection_after_pod_is_deleted(world) -> None:
    world.join("a", gpus=1)
    world.run("many", "a", gpus=2)
    builder = ClusterViewBuilder("here", lambda: world.nodes, now=lambda: 0.0)
    rejection = builder.refresh().nodes[0].rejection
    world.delete("many", grace=0)
    (node,) = builder.refresh().nodes
    assert (node.pods, node.rejection) == ((), rejection)
    world.run("more", "a", gpus=3)
    assert builder.refresh().nodes[0].rejection.startswith("default/more ")
    world.delete("more", grace=0)
    # A new node of the same name has not rejected a pod yet.
    gone = world.nodes.pop("a")
    assert builder.refresh().nodes == ()
    world.nodes["a"] = gone
    assert builder.refresh().nodes[0].rejection == ""


def test_refresh_reuses_view_ten_times_its_cost(world) -> None:
    world.join("a")
    now = 0.0

    def takes_two_seconds():
        nonlocal now
        now += 2.0
        return world.nodes

    builder = ClusterViewBuilder("here", takes_two_seconds, now=lambda: now)
    first = builder.refresh()
    world.nodes.clear()
    now = 21.9
    assert builder.refresh() is first
    now = 22.0
    assert builder.refresh().nodes == ()
