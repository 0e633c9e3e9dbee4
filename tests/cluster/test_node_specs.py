"""Names, kubelets and addresses of nodes that are going to join."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.client.errors import ClusterError
from devicemanager.client.rate_limited_warning import RateLimitedWarning
from devicemanager.client.reflector import pages
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.node_specs import NodeSpecs, address
from devicemanager.cluster.options import AMOUNTS, NodeOptions
from devicemanager.core.quantity import Quantity
from devicemanager.kubelet.inmemory import InMemoryKubelet
from devicemanager.objects.manifests import parse

GPU = "vendor.com/gpu"


def specs(count: int, full: int = 0, **options: Any) -> NodeSpecs:
    return NodeSpecs.numbered("n", count, {GPU: 2}, options=NodeOptions(**options), full=full)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (0, "127.1.0.0"),
        (255, "127.1.0.255"),
        (256, "127.1.1.0"),
        (65_536, "127.2.0.0"),
        (99_999, "127.2.134.159"),
    ],
)
def test_address_is_on_loopback_unless_in_a_pod(
    index: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    assert address(index) == expected
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    assert address(index) == "10.0.0.7"


def test_numbered_nodes_share_options_and_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    found = specs(3, port=10250)
    assert list(found.names) == ["n-0", "n-1", "n-2"]
    assert found.indexes == range(3)
    second = found.options_of(1, as_nodes=True, shard=4)
    assert (second.address, second.port, second.as_nodes) == ("127.1.0.1", 10250, True)
    assert (second.shard, found.options_of(1, as_nodes=False).shard) == ("4", "0")
    assert specs(1, address="10.1.1.1").options_of(0, as_nodes=False).address == "10.1.1.1"
    kubelet = found.make(2)
    assert isinstance(kubelet, InMemoryKubelet)
    assert kubelet.settings.node_name == "n-2" and kubelet.allocatable() == {GPU: 2}
    assert kubelet.clock is found.make(1).clock
    found.end(kubelet)
    assert not kubelet.is_serving


@pytest.mark.parametrize(
    ("resource", "amount", "reason"),
    [("cpu", "100", "OutOfcpu"), ("memory", "900Gi", "OutOfmemory"), ("cpu", "1", "")],
)
def test_a_node_rejects_a_pod_that_is_larger_than_the_node(
    resource: str, amount: str, reason: str
) -> None:
    admission = specs(1).make(0).admit(parse(_pod("p", {resource: amount})))
    assert admission.reason == reason


def test_a_node_rejects_pods_beyond_its_number_of_pods() -> None:
    small = specs(1, amounts={**AMOUNTS, "pods": Quantity.parse("2")}).make(0)
    reasons = [small.admit(parse(_pod(name, {}))).reason for name in "abc"]
    assert reasons == ["", "", "OutOfpods"]


def _pod(name: str, requests: Any) -> Any:
    container = {"name": "main", "image": "i:1", "resources": {"requests": requests}}
    metadata = {"name": name, "uid": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }


def test_existing_kubelet_keeps_running_after_its_node_left() -> None:
    kubelet = InMemoryKubelet()
    found = NodeSpecs.single("mine", kubelet)
    assert (found.names, found.make(0)) == (("mine",), kubelet)
    assert (found.options, found.behaviour) == (NodeOptions(), ContainerBehaviour())
    options, behaviour = NodeOptions(port=1), ContainerBehaviour(exit_code_on_delete=1)
    other = NodeSpecs.single("mine", kubelet, options, behaviour)
    assert (other.options, other.behaviour) == (options, behaviour)
    found.end(kubelet)
    assert kubelet.is_serving


def test_maximum_numbers_of_nodes() -> None:
    assert len(specs(100_000).names) == 100_000
    assert specs(100, full=100).indexes == range(100)


@pytest.mark.parametrize(
    ("count", "full", "message"),
    [
        (0, 0, "invalid number of nodes 0: use 1 to 100000"),
        (100_001, 0, "invalid number of nodes 100001: use 1 to 100000"),
        (200, 101, "invalid number of full nodes 101: use 0 to 100"),
        (1, 2, "invalid number of full nodes 2: use 0 to 1"),
        (2, 3, "invalid number of full nodes 3: use 0 to 2"),
        (2, -1, "invalid number of full nodes -1: use 0 to 2"),
    ],
)
def test_numbers_out_of_range_are_rejected(count: int, full: int, message: str) -> None:
    with pytest.raises(ClusterError) as error:
        specs(count, full)
    assert str(error.value) == message


def test_rate_limited_warning_passes_one_line_per_minute() -> None:
    lines: list[str] = []
    now = 0.0
    warn = RateLimitedWarning(lines.append, monotonic=lambda: now)
    for now in (0.0, 59.9, 60.0, 119.9, 120.0):
        warn(f"at {now}")
    assert lines == ["at 0.0", "at 60.0", "at 120.0"]


def test_pages_reads_until_the_last_page() -> None:
    requests: list[Any] = []

    class Api:
        def attempt(self, method: str, path: str, *, query: Any = None) -> Any:
            requests.append((method, path, query))
            return {"metadata": {"continue": "more"}} if len(requests) == 1 else {"items": [1]}

    found = [page.get("items") for page in pages(Api(), "/x", {"labelSelector": "a"})]
    assert found == [None, [1]]
    first = {"labelSelector": "a", "limit": "500"}
    assert requests == [("GET", "/x", first), ("GET", "/x", {**first, "continue": "more"})]
