"""Names, kubelets and addresses of nodes before they join; and what is said rarely."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.cluster.client.errors import ClusterError
from devicemanager.cluster.client.listing import pages
from devicemanager.cluster.client.rate_limited_warning import RateLimitedWarning
from devicemanager.cluster.facts import Facts
from devicemanager.cluster.node_specs import Members, address, light_members
from devicemanager.cluster.options import NodeOptions
from devicemanager.cluster.pods.state import made_up_ip
from devicemanager.kubelet.inmemory import InMemoryKubelet

GPU = "vendor.com/gpu"


def members(count: int, full: int = 0, **options: Any) -> Members:
    return light_members("n", count, {GPU: 2}, None, NodeOptions(**options), Facts(), full=full)


@pytest.mark.parametrize(
    ("index", "expected"),
    [(0, "127.1.0.0"), (255, "127.1.0.255"), (256, "127.1.1.0"), (65_536, "127.2.0.0")],
)
def test_each_node_has_an_address_of_loopback(
    index: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    assert address(index) == expected
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    assert address(index) == "10.0.0.7"


def test_nodes_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    found = members(3, port=10250)
    assert list(found.names) == ["n-0", "n-1", "n-2"] == [found.name(each) for each in range(3)]
    assert found.indexes == range(3)
    second = found.options_of(1, as_nodes=True, shard=4)
    assert (second.address, second.port, second.as_nodes) == ("127.1.0.1", 10250, True)
    assert (second.shard, found.options_of(1, as_nodes=False).shard) == ("4", "0")
    assert members(1, address="10.1.1.1").options_of(0, as_nodes=False).address == "10.1.1.1"
    kubelet = found.make(2)
    assert isinstance(kubelet, InMemoryKubelet)
    assert kubelet.settings.node_name == "n-2" and kubelet.allocatable() == {GPU: 2}
    assert kubelet.clock is found.make(1).clock
    found.end(kubelet)
    assert not kubelet.is_serving


def test_a_kubelet_that_is_there_already_stays_when_its_node_has_left() -> None:
    kubelet = InMemoryKubelet()
    found = Members.single("mine", kubelet, NodeOptions(), Facts())
    assert (found.names, found.make(0)) == (("mine",), kubelet)
    found.end(kubelet)
    assert kubelet.is_serving


def test_as_many_nodes_as_there_can_be() -> None:
    assert len(members(100_000).names) == 100_000
    assert members(100, full=100).indexes == range(100)


@pytest.mark.parametrize(
    ("count", "full", "said"),
    [
        (0, 0, "0 nodes: give a number from 1 to 100000"),
        (100_001, 0, "100001 nodes: give a number from 1 to 100000"),
        (200, 101, "101 full nodes: give a number from 0 to 100"),
        (2, 3, "3 full nodes: give a number from 0 to 2"),
        (2, -1, "-1 full nodes: give a number from 0 to 2"),
    ],
)
def test_numbers_that_cannot_be(count: int, full: int, said: str) -> None:
    with pytest.raises(ClusterError) as error:
        members(count, full)
    assert str(error.value) == said


def test_a_pods_address_is_of_those_that_are_kept_for_tests() -> None:
    # crc32: 0xe8b7be43 and 0x352441c2
    assert made_up_ip("a") == f"198.19.190.{1 + 0xE8B7BE43 % 254}"
    assert made_up_ip("abc") == f"198.18.65.{1 + 0x352441C2 % 254}"


def test_a_line_at_most_once_a_minute() -> None:
    said: list[str] = []
    now = 0.0
    rarely = RateLimitedWarning(said.append, monotonic=lambda: now)
    for now in (0.0, 59.9, 60.0, 119.9, 120.0):
        rarely(f"at {now}")
    assert said == ["at 0.0", "at 60.0", "at 120.0"]


def test_pages_are_asked_for_until_none_is_left() -> None:
    asked: list[Any] = []

    class Api:
        def attempt(self, method: str, path: str, *, query: Any = None) -> Any:
            asked.append((method, path, query))
            return {"metadata": {"continue": "more"}} if len(asked) == 1 else {"items": [1]}

    found = [page.get("items") for page in pages(Api(), "/x", {"labelSelector": "a"})]
    assert found == [None, [1]]
    first = {"labelSelector": "a", "limit": "500"}
    assert asked == [("GET", "/x", first), ("GET", "/x", {**first, "continue": "more"})]
