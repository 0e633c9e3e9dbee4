"""NUMA settings from flags, files and sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from devicemanager.kubelet.host.numa import (
    NumaError,
    as_content,
    from_content,
    from_file,
    from_host,
    read_numa,
)

GIB = 1 << 30


def sysfs(root: Path, online: str, **files: str) -> Path:
    base = root / "sys/devices/system/node"
    base.mkdir(parents=True)
    (base / "online").write_text(online + "\n")
    for name, text in files.items():
        path = base / name.replace("_", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    return root


def two_nodes(root: Path) -> Path:
    return sysfs(
        root,
        "0,2",
        node0_distance="10 21",
        node0_cpulist="0-1,4",
        node0_meminfo="Node 0 MemTotal:        2048 kB\nNode 0 MemFree: 1 kB",
        node2_distance="21 10",
        node2_cpulist="",
        node2_meminfo="Node 2 MemTotal:        1024 kB",
    )


@pytest.mark.parametrize(
    ("text", "nodes"), [("0", (0,)), ("1, 0", (0, 1)), ("0-2,5", (0, 1, 2, 5))]
)
def test_node_ids_of_the_flag(text: str, nodes: tuple[int, ...]) -> None:
    machine = read_numa(text)
    assert machine.topology.nodes == nodes
    assert machine.cpu_provider() is None
    assert machine.memory_provider() is None


def test_host_is_read_from_sysfs(tmp_path: Path) -> None:
    machine = read_numa("host", two_nodes(tmp_path))
    assert machine.topology.nodes == (0, 2)
    assert machine.topology.distances == ((10, 21), (21, 10))
    assert machine.cpus == {0: (0, 1, 4), 2: ()}
    assert machine.memory == {"memory": {0: 2 << 20, 2: 1 << 20}}


def test_host_without_numa_has_one_node(tmp_path: Path) -> None:
    assert from_host(tmp_path).topology.nodes == (0,)


def test_file_with_all_keys(tmp_path: Path) -> None:
    path = tmp_path / "numa.yaml"
    path.write_text(
        "nodes: [0, 1]\n"
        "distances: [[10, 12], [12, 10]]\n"
        "cpus: {0: 0-3, 1: [4, 5]}\n"
        "memory: {memory: {0: 4Gi, 1: 1Gi}, hugepages-2Mi: {1: 1Gi}}\n"
    )
    machine = read_numa(str(path))
    assert machine.topology.distance(0, 1) == 12
    assert machine.cpus == {0: (0, 1, 2, 3), 1: (4, 5)}
    assert machine.memory == {"memory": {0: 4 * GIB, 1: GIB}, "hugepages-2Mi": {1: GIB}}
    cpus, memory = machine.cpu_provider(), machine.memory_provider()
    assert cpus is not None and cpus.allocatable().cpu_ids == (0, 1, 2, 3, 4, 5)
    assert memory is not None and len(memory.allocatable().memory) == 3


def test_json_file_has_text_keys(tmp_path: Path) -> None:
    path = tmp_path / "numa.json"
    path.write_text(
        '{"nodes": "0-1", "distances": {"1": [12, 10], "0": [10, 12]}, "cpus": {"1": 7}}'
    )
    machine = from_file(path)
    assert machine.topology.distances == ((10, 12), (12, 10))
    assert machine.cpus == {1: (7,)}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", ": expected a mapping with the key `nodes`"),
        ("nodes: [", ": not YAML: line "),
        ("nodes: 0\nnode: 1", ": unknown key `node`: use one of nodes, distances, cpus, memory"),
        ("cpus: {0: 1}", ": nodes: expected a list of numbers"),
        ("nodes: 0\n---\nnodes: 1", ": expected a mapping with the key `nodes`"),
        ("nodes: [true]", ": nodes: invalid `True`: expected a number of at least 0"),
        ("nodes: [0, 0]", ": duplicate NUMA node 0"),
        ('nodes: ["a\\nb"]', ": nodes: invalid `a b`: expected a number of at least 0"),
        ("nodes: 0,x", ": nodes: invalid `x`: expected a number or a range such as 0-3"),
        ("nodes: 3-1", ": nodes: invalid range `3-1`: put the lower number first"),
        ("nodes: 0-65536", ": nodes: range `0-65536` too long: limit 65536 numbers"),
        ("nodes: 0\ndistances: far", ": distances: expected a list of numbers for every NUMA node"),
        ("nodes: [0, 1]\ndistances: [[10, 20]]", ": invalid NUMA distances: 1 row for 2 nodes"),
        ("nodes: 0\ncpus: {1: 0}", ": cpus: unknown NUMA node 1"),
        (
            "nodes: 0\ncpus: [0]",
            ": cpus: expected a mapping with NUMA node IDs or memory types as keys",
        ),
        ("nodes: [0, 1]\ncpus: {0: 0-1, 1: 1}", ": cpus of node 1: CPU 1 is listed twice"),
        (
            "nodes: 0\nmemory: {memory: {0: lots}}",
            ": memory of node 0: invalid `lots`",
        ),
        (
            "nodes: 0\nmemory: {memory: {0: -1Gi}}",
            ": memory of node 0: invalid `-1Gi`",
        ),
    ],
)
def test_errors_are_one_line_and_name_the_file(tmp_path: Path, content: str, fault: str) -> None:
    path = tmp_path / "numa.yaml"
    path.write_text(content)
    with pytest.raises(NumaError) as caught:
        from_file(path)
    assert str(caught.value).startswith(f"{path}{fault}")
    assert "\n" not in str(caught.value)


def test_errors_of_the_flag(tmp_path: Path) -> None:
    for text, fault in [
        ("", "--numa: invalid NUMA topology: it has no nodes: use at least one"),
        ("0,0", "--numa: duplicate NUMA node 0: list each node once"),
        ("5-", "--numa: invalid `5-`: expected a number or a range such as 0-3"),
        (
            "0-x",
            "invalid --numa '0-x': use `host`, NUMA nodes such as 0,1 or 0-3, or an existing file",
        ),
        (str(tmp_path), f"cannot read {tmp_path}: it is a directory, not a regular file"),
    ]:
        with pytest.raises(NumaError) as caught:
            read_numa(text)
        assert str(caught.value) == fault


def test_invalid_sysfs_file_is_named(tmp_path: Path) -> None:
    root = two_nodes(tmp_path)
    distance = root / "sys/devices/system/node/node2/distance"
    distance.write_text("near far")
    with pytest.raises(NumaError, match="node2/distance: invalid `near far`"):
        from_host(root)
    distance.unlink()
    with pytest.raises(NumaError, match=r"^cannot read .*node2/distance: No such file"):
        from_host(root)


def test_machine_becomes_plain_data_and_back(tmp_path: Path) -> None:
    machine = from_host(two_nodes(tmp_path))
    assert as_content(machine) == {
        "nodes": [0, 2],
        "distances": [[10, 21], [21, 10]],
        "cpus": {"0": [0, 1, 4], "2": []},
        "memory": {"memory": {"0": 2 << 20, "2": 1 << 20}},
    }
    assert from_content("x", as_content(machine)) == machine
    plain = read_numa("0,1")
    assert as_content(plain)["distances"] == [[10, 20], [20, 10]]
    assert from_content("x", as_content(plain)) == plain
    without = from_host(tmp_path / "no-numa")
    assert as_content(without) == {"nodes": [0], "distances": None, "cpus": {}, "memory": {}}
