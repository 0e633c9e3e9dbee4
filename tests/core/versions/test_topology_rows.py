"""Topology just below and at the version of each difference."""

from __future__ import annotations

import attrs
import pytest

from tests.helpers import container, device, pod
from tests.node import GPU, NIC, Node

LOCALITY = "Resources cannot be allocated with Topology locality"


@pytest.mark.parametrize(
    ("version", "policy", "affinity"),
    [
        ("1.23", "best-effort", (1,)),
        ("1.23", "restricted", (1,)),
        ("1.24", "best-effort", (0, 1)),
        ("1.24", "restricted", None),
    ],
)
def test_ta1_merge_rule(version: str, policy: str, affinity: tuple[int, ...] | None) -> None:
    # Each resource has a preferred hint, GPUs on both nodes and the NIC on one. Up to 1.23
    # this combination is preferred, too.
    node = Node(kubelet_version=version, topology_policy=policy)
    node.plugin([device("g0", 0), device("g1", 1)])
    node.plugin([device("n1", 1)], NIC, "nic.sock")
    given = node.admit(pod("p", gpu=2, nic=1))
    assert given.message == ("" if affinity else LOCALITY)
    since = "kubelets do this since 1.24 (k/k#108052, k/k#108154)"
    assert (since in given.explain()) is (affinity is None)
    if affinity:
        assert given.containers["app"].affinity == affinity


@pytest.mark.parametrize(("version", "admitted"), [("1.25", False), ("1.26", True)])
def test_ta7_empty_topology(version: str, admitted: bool) -> None:
    node = Node(kubelet_version=version, topology_policy="restricted")
    node.plugin([attrs.evolve(device("a"), numa=())])
    node.plugin([device("n")], NIC, "nic.sock")
    given = node.admit(pod("p", gpu=1))
    assert (given.admitted, given.message) == (admitted, "" if admitted else LOCALITY)
    # A resource without topology has no preference in both versions.
    assert node.admit(pod("q", nic=1)).admitted


@pytest.mark.parametrize(("version", "admitted"), [("1.25", False), ("1.26", True)])
def test_ta7_reuse_with_empty_topology(version: str, admitted: bool) -> None:
    node = Node(kubelet_version=version, topology_policy="restricted")
    plugin = node.plugin([device("a")])
    plugin.before_answer = lambda _: plugin.send_list([attrs.evolve(device("a"), numa=())])
    spec = pod("p", container("app", gpu=1), init=[container("init", gpu=1)])
    assert node.admit(spec).admitted is admitted
    assert node.manager.is_known(GPU)


@pytest.mark.parametrize(("version", "affinity"), [("1.35.4", (0,)), ("1.36", (0, 1))])
def test_ta6_hints_and_nodes_without_devices(version: str, affinity: tuple[int, ...]) -> None:
    node = Node(kubelet_version=version, topology_policy="best-effort")
    node.plugin([device("g0", 0)])
    node.plugin([device("n1", 1)], NIC, "nic.sock")
    given = node.admit(pod("p", gpu=1, nic=1))
    assert given.containers["app"].affinity == affinity
