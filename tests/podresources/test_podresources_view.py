"""Encoded responses: their content, and when they are reused."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from podresources import (
    Allocatable,
    Container,
    ContainerDevices,
    ContainerMemory,
    MemorySource,
    Pod,
    View,
    decoding,
    encoding,
)
from podresources.view import _PerVersion
from protos import podresources_v1 as v1
from protos import podresources_v1alpha1 as v1alpha1

GPU = "vendor.com/gpu"


def pod(name: str, *ids: str, nodes: tuple[int, ...] = ()) -> Pod:
    return Pod(name, "default", (Container("c", (ContainerDevices(GPU, ids, nodes),)),))


def test_device_on_two_nodes_has_two_entries():
    body = View(MemorySource([pod("p", "a", nodes=(0, 1))])).list_v1()
    (listed,) = v1.ListPodResourcesResponse.FromString(body).pod_resources
    entries = listed.containers[0].devices
    assert [list(e.device_ids) for e in entries] == [["a"], ["a"]]
    assert [[n.ID for n in e.topology.nodes] for e in entries] == [[0], [1]]


def test_topology_field_is_absent_without_topology():
    source = MemorySource(
        [Pod("p", "ns", (Container("c", (ContainerDevices(GPU, ("a",)),)),))],
        Allocatable((ContainerDevices(GPU, ("a",)),), memory=(ContainerMemory("memory", 1),)),
    )
    view = View(source)
    (listed,) = v1.ListPodResourcesResponse.FromString(view.list_v1()).pod_resources
    assert not listed.containers[0].devices[0].HasField("topology")
    allocatable = v1.AllocatableResourcesResponse.FromString(view.allocatable_v1())
    assert not allocatable.devices[0].HasField("topology")
    assert not allocatable.memory[0].HasField("topology")


def test_pods_and_containers_without_devices_are_listed_in_order():
    pods = [
        Pod("b", "ns", (Container("side", restartable_init=True), Container("app"))),
        Pod("a", "ns"),
    ]
    view = View(MemorySource(pods))
    assert decoding.pods_from_bytes(view.list_v1()) == tuple(pods)
    alpha = v1alpha1.ListPodResourcesResponse.FromString(view.list_v1alpha1())
    assert [[c.name for c in p.containers] for p in alpha.pod_resources] == [["app"], []]


def test_empty_node_gives_empty_messages():
    view = View(MemorySource())
    assert (view.list_v1(), view.list_v1alpha1(), view.allocatable_v1()) == (b"", b"", b"")


def test_get_returns_last_of_two_pods_with_one_name():
    view = View(MemorySource([pod("p", "old"), pod("p", "new")]))
    assert decoding.pod_from_bytes(view.get_v1("p", "default")) == pod("p", "new")


class CountingSource(MemorySource):
    """A source that counts how often its pods are read."""

    reads = 0

    def pods(self):
        self.reads += 1
        return super().pods()


def test_unchanged_source_is_read_once():
    source = CountingSource([pod("p", "a")])
    view = View(source)
    assert view.list_v1() is view.list_v1()
    view.get_v1("p", "default")
    assert source.reads == 1
    source.replace()
    view.list_v1()
    assert source.reads == 2


def test_only_new_pods_are_encoded(monkeypatch):
    encoded = []
    encode = encoding.pod_to_bytes
    monkeypatch.setattr(
        encoding, "pod_to_bytes", lambda pod: encoded.append(pod.name) or encode(pod)
    )
    stays, leaves = pod("stays", "a"), pod("leaves", "b")
    source = MemorySource([stays, leaves])
    view = View(source)
    view.list_v1()
    source.replace(pods=[pod("new", "b"), stays])
    assert decoding.pods_from_bytes(view.list_v1()) == (pod("new", "b"), stays)
    assert encoded == ["stays", "leaves", "new"]


def test_unchanged_allocatable_is_not_encoded_again(monkeypatch):
    calls = []
    encode = encoding.allocatable_to_bytes
    monkeypatch.setattr(encoding, "allocatable_to_bytes", lambda a: calls.append(a) or encode(a))
    source = MemorySource(allocatable=Allocatable(cpu_ids=(1,)))
    view = View(source)
    view.allocatable_v1()
    source.replace(pods=[pod("p", "a")])
    view.allocatable_v1()
    assert len(calls) == 1
    source.replace(allocatable=Allocatable(cpu_ids=(2,)))
    assert decoding.allocatable_from_bytes(view.allocatable_v1()).cpu_ids == (2,)


class ChangingBeforeRead(MemorySource):
    """A source that changes after its version has been read, but before its pods are."""

    def pods(self):
        if self.version() == 1:
            self.replace(pods=[pod("new", "a")])
        return super().pods()


def test_change_during_build_is_not_missed():
    view = View(ChangingBeforeRead([pod("old", "a")]))
    assert [p.name for p in decoding.pods_from_bytes(view.list_v1())] == ["new"]


class ChangingAfterRead(MemorySource):
    """A source that changes after its pods have been read, but before they are returned."""

    def pods(self):
        read = super().pods()
        if self.version() == 1:
            self.replace(pods=[pod("new", "a")])
        return read


def test_change_after_reading_shows_in_next_response():
    view = View(ChangingAfterRead([pod("old", "a")]))
    first = decoding.pods_from_bytes(view.list_v1())
    second = decoding.pods_from_bytes(view.list_v1())
    assert [p.name for p in first + second] == ["old", "new"]


def test_built_response_is_returned_while_another_is_built():
    value = _PerVersion(lambda: 7, lambda: object())
    built = value.get()
    with value._lock:  # as while a response is built
        assert value.get() is built


class FailingOnce(MemorySource):
    failed = False

    def pods(self):
        if not self.failed:
            self.failed = True
            raise RuntimeError("no state yet")
        return super().pods()


def test_failed_source_is_read_again():
    view = View(FailingOnce([pod("p", "a")]))
    with pytest.raises(RuntimeError, match=r"^no state yet"):
        view.list_v1()
    assert decoding.pods_from_bytes(view.list_v1()) == (pod("p", "a"),)


def test_responses_do_not_mix_versions():
    source = MemorySource([pod("p0", "0"), pod("p1", "0")], Allocatable(cpu_ids=(0, 0)))
    view = View(source)
    latest = [0]

    def read(_: int) -> list[object]:
        wrong: list[object] = []
        reads = 0
        while latest[0] < 400 or reads < 100:
            reads += 1
            before = latest[0]
            listed = decoding.pods_from_bytes(view.list_v1())
            seen = [p.containers[0].devices[0].device_ids[0] for p in listed]
            seen += map(str, decoding.allocatable_from_bytes(view.allocatable_v1()).cpu_ids)
            got = decoding.pod_from_bytes(view.get_v1("p0", "default"))
            newer = [*seen, got.containers[0].devices[0].device_ids[0]]
            if seen[0] != seen[1] or seen[2] != seen[3] or min(map(int, newer)) < before:
                wrong.append((before, newer))
        return wrong

    interval = sys.getswitchinterval()
    # Threads then switch between almost any two steps, so that a race shows.
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            results = [pool.submit(read, n) for n in range(4)]
            # At least 400 versions and 100 reads, however the threads are scheduled.
            while latest[0] < 400 or not all(result.done() for result in results):
                n = latest[0] + 1
                pods = [pod("p0", str(n)), pod("p1", str(n))]
                source.replace(pods=pods, allocatable=Allocatable(cpu_ids=(n, n)))
                latest[0] = n
    finally:
        sys.setswitchinterval(interval)
    assert [result.result() for result in results] == [[]] * 4
