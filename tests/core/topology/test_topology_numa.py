"""NUMA nodes and distances of a machine."""

import pytest

from devicemanager.core.topology import NumaTopology, NumaTopologyError
from devicemanager.core.topology.numa import dense_index, masks_in_order, nodes_of, subset_steps


def test_nodes_are_sorted_and_can_have_gaps() -> None:
    topology = NumaTopology.of([5, 1])
    assert topology.nodes == (1, 5)
    assert topology.all_mask == 0b100010
    assert nodes_of(topology.all_mask) == (1, 5)


def test_distances_default_to_those_of_the_firmware() -> None:
    assert NumaTopology.of([0, 3]).distances == ((10, 20), (20, 10))


def test_distance_rows_follow_the_nodes_as_given() -> None:
    by_place = NumaTopology.of([3, 0], [[10, 31], [13, 10]])
    by_id = NumaTopology.of([0, 3], {0: [13, 10], 3: [10, 31]})
    assert by_place == by_id
    assert by_place.distance(3, 0) == 10
    assert by_place.distance(0, 3) == 10
    assert by_place.distance(0, 0) == 13


def test_average_distance_includes_each_node_itself() -> None:
    topology = NumaTopology.of([0, 1, 4], [[10, 12, 21], [14, 10, 20], [21, 20, 10]])
    assert topology.average_distance(0b00001) == 10
    assert topology.average_distance(0b00011) == (10 + 12 + 14 + 10) / 4
    assert topology.average_distance(0b10001) == (10 + 21 + 21 + 10) / 4
    assert topology.average_distance(0) == 0


def test_sets_come_smallest_first_then_in_index_order() -> None:
    assert [nodes_of(mask) for mask in masks_in_order((0, 2, 5))] == [
        (0,),
        (2,),
        (5,),
        (0, 2),
        (0, 5),
        (2, 5),
        (0, 2, 5),
    ]


def test_dense_index_has_every_set_once_and_keeps_subsets() -> None:
    index = dense_index((1, 4, 7))
    assert sorted(index.values()) == list(range(8))
    assert all(
        (one & other == one) == (index[one] & index[other] == index[one])
        for one in index
        for other in index
    )


def test_subset_steps_sum_over_all_subsets() -> None:
    table = [1, 2, 4, 8, 16, 32, 64, 128]
    before = list(table)
    for smaller, larger in subset_steps(8):
        table[larger] += table[smaller]
    assert table == [sum(before[s] for s in range(8) if s & of == s) for of in range(8)]


@pytest.mark.parametrize(
    ("nodes", "distances", "text"),
    [
        ([], None, "invalid NUMA topology: it has no nodes: use at least one"),
        ([0, 64], None, "invalid NUMA node ID 64: use 0 to 63"),
        ([-1, 0], None, "invalid NUMA node ID -1: use 0 to 63"),
        ([2, 2], None, "duplicate NUMA node 2: list each node once"),
        ([0, 1], [[10, 20]], "invalid NUMA distances: 1 row for 2 nodes: use one row per node"),
        (
            [0, 1],
            [[10], [10, 20]],
            "NUMA node 0 has 1 distance for 2 nodes: use one distance per node",
        ),
        ([0, 1], {0: [10, 20]}, "invalid NUMA distances: no row for node 1: use one row per node"),
        ([0], [[-3]], "NUMA node 0 has a negative distance: use 0 or more"),
    ],
)
def test_invalid_topology_is_rejected(
    nodes: list[int], distances: list[list[int]] | dict[int, list[int]] | None, text: str
) -> None:
    with pytest.raises(NumaTopologyError) as caught:
        NumaTopology.of(nodes, distances)
    assert str(caught.value) == text
