"""Invalid device lists, and ListAndWatch streams that break.

| fault | test |
|---|---|
| duplicate IDs, empty IDs, unknown health, NUMA -5, empty topology | test_suspect_list_is_applied_and_reported |
| 100,000 devices | test_hundred_thousand_devices_can_be_allocated |
| more than 4 MiB (Q11), with the limit raised | test_list_over_the_limit_ends_the_stream |
| garbage bytes, IDs that are not UTF-8 | test_garbage_ends_the_stream |
| 1,000 lists a second | test_pods_are_admitted_during_a_flood_of_lists |
| the stream ends or fails, sends nothing (Q12) | test_broken_stream_is_reported |
| NUMA nodes that do not exist, under each policy | test_nonexistent_numa_nodes_do_not_affect_the_kubelet |
"""  # noqa: E501

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest

from devicemanager.core.topology import NumaTopology
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.plugin.simulated import ListFault, SimulatedPlugin, SimulationSettings
from devicemanager.plugin.simulated.faults import faulty_lists
from protos import deviceplugin_v1beta1 as dp
from tests.hostile import hostile
from tests.hostile.conftest import PATIENT, Start, pod

R = hostile.RESOURCE


@contextmanager
def simulated(kubelet: MockKubelet, fault: ListFault, count: int = 4) -> Iterator[SimulatedPlugin]:
    settings = SimulationSettings(resource_name=R, number_devices=count, list_fault=fault)
    with SimulatedPlugin(settings, kubelet.plugin_dir) as plugin:
        yield plugin


@contextmanager
def raw(kubelet: MockKubelet, lists: hostile.Lists) -> Iterator[hostile.RawPlugin]:
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock", lists=lists) as plugin:
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        yield plugin


@pytest.mark.parametrize(
    ("fault", "capacity", "allocatable", "complaint"),
    [
        (
            ListFault.DUPLICATE_IDS,
            4,
            4,
            "4 duplicate device IDs: the kubelet can count a device twice",
        ),
        (ListFault.EMPTY_ID, 5, 5, "a device has an empty ID"),
        (ListFault.UNKNOWN_HEALTH, 5, 4, "invalid health 'Sick': counts as Unhealthy"),
        (ListFault.NEGATIVE_NUMA, 5, 5, "invalid NUMA node -5"),
        (ListFault.EMPTY_TOPOLOGY, 5, 5, ""),
    ],
)
def test_suspect_list_is_applied_and_reported(
    kubelet: MockKubelet, fault: ListFault, capacity: int, allocatable: int, complaint: str
) -> None:
    """It is applied as by the kubelet, and an event describes the problem."""
    valid = hostile.devices("d0", "d1", "d2", "d3")
    with raw(kubelet, hostile.lists(*faulty_lists(fault, valid))):
        kubelet.wait_for_resource(R, allocatable)
        assert kubelet.capacity() == {R: capacity}
        if complaint:
            event = kubelet.wait_for_event(EventKind.LIST_SUSPECT, after=0)
            assert event.is_warning
            assert complaint in event.message
        assert kubelet.admit(pod("a", allocatable)).admitted
        assert not kubelet.admit(pod("b")).admitted
        os.link(kubelet.plugin_dir / "p.sock", kubelet.root / "kept.sock")
        kubelet.restart()
        os.link(kubelet.root / "kept.sock", kubelet.plugin_dir / "p.sock")
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, allocatable)
        assert not kubelet.admit(pod("c")).admitted
        assert not kubelet.events.recent(EventKind.CHECKPOINT_SET_ASIDE)


def test_hundred_thousand_devices_can_be_allocated(start: Start) -> None:
    kubelet = start(PATIENT)
    with raw(kubelet, hostile.lists(*faulty_lists(ListFault.HUGE, b""))):
        kubelet.wait_for_resource(R, 100_000, timeout=30)
        assert kubelet.admit(pod("a", 99_999)).admitted
        assert kubelet.admit(pod("b", 1)).admitted
        assert not kubelet.admit(pod("c", 1)).admitted


def test_list_over_the_limit_ends_the_stream(start: Start) -> None:
    """The limit is 4 MiB, as in the kubelet; a setting raises it (Q11)."""
    listed = hostile.lists(hostile.devices("d0", "x" * (4 << 20)))
    kubelet = start()
    with raw(kubelet, listed):
        ended = kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
        assert "a list is larger than 4194304 bytes" in ended.message
        assert "raise Settings.max_list_bytes" in ended.message
        assert (kubelet.capacity(), kubelet.allocatable()) == ({R: 0}, {R: 0})
        kubelet.stop()
    generous = start(attrs.evolve(PATIENT, max_list_bytes=8 << 20))
    with raw(generous, listed):
        generous.wait_for_resource(R, 2)
        assert generous.admit(pod("a")).admitted


def test_devices_of_a_list_grown_over_the_limit_are_unhealthy(kubelet: MockKubelet) -> None:
    """Devices listed before stay known, but cannot be allocated."""
    big = hostile.devices("d0", "x" * (4 << 20))
    with raw(kubelet, hostile.lists(hostile.devices("d0", "d1"), big)):
        kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
        assert (kubelet.capacity(), kubelet.allocatable()) == ({R: 2}, {R: 0})


NOT_UTF8 = b"\x0a\x0e\x0a\x02\xff\xfe\x12\x07Healthy" + b"\x0a\x03"


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xff\xff garbage", NOT_UTF8[:-2] + b"\0", b"\x0a\x0d\x0a\x02\xff\xfe\x12\x07Healthy"],
)
def test_garbage_ends_the_stream(kubelet: MockKubelet, garbage: bytes) -> None:
    """The stream is closed with one line; the next registration works."""
    with raw(kubelet, hostile.lists(hostile.devices("d0"), garbage)) as plugin:
        ended = kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
        assert "invalid ListAndWatchResponse of" in ended.message
        assert "the plugin is broken" in ended.message
        assert (kubelet.capacity(), kubelet.allocatable()) == ({R: 1}, {R: 0})
        plugin.lists = hostile.TWO_DEVICES
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 2)
        assert kubelet.admit(pod("a", 2)).admitted


def test_pods_are_admitted_during_a_flood_of_lists(kubelet: MockKubelet) -> None:
    """The health of the last device changes a thousand times a second."""
    with simulated(kubelet, ListFault.FLOOD):
        kubelet.wait_for(lambda: len(kubelet.events.recent(EventKind.DEVICES_UPDATED)) > 50, 20)
        for number in range(20):
            admission = kubelet.admit(pod(f"p{number}", 3, uid=f"u{number}"))
            assert admission.admitted, admission.message
            kubelet.terminate(f"u{number}")
        assert kubelet.capacity() == {R: 4}


def test_equal_lists_change_nothing(kubelet: MockKubelet) -> None:
    same = [hostile.devices("d0", "d1")] * 5000
    with raw(kubelet, hostile.lists(*same, hostile.devices("d0"))):
        kubelet.wait_for_resource(R, 1)
        assert len(kubelet.events.recent(EventKind.DEVICES_UPDATED)) == 2


@pytest.mark.parametrize(
    ("fault", "cause"),
    [(ListFault.CLOSE, "the plugin ended it"), (ListFault.ABORT, "simulated end of the stream")],
)
def test_broken_stream_is_reported(kubelet: MockKubelet, fault: ListFault, cause: str) -> None:
    """It is noticed at once and published as event (Q12); pods keep their devices."""
    with simulated(kubelet, ListFault.NONE) as plugin:
        kubelet.wait_for_resource(R, 4)
        assert kubelet.admit(pod("a", 2, uid="a")).admitted
        plugin.faults.lists = fault
        kubelet.restart()
        ended = kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
        assert cause in ended.message
        assert ended.is_warning
        plugin.faults.clear()
        kubelet.wait_for_resource(R, 4)
        assert len(kubelet.devices("a")["main"][R]) == 2
        assert kubelet.admit(pod("b", 2)).admitted


def test_stream_that_ends_before_its_first_list(kubelet: MockKubelet) -> None:
    with raw(kubelet, hostile.lists(stay=False)):
        kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
        assert (kubelet.capacity(), kubelet.allocatable()) == ({R: 0}, {R: 0})
        assert kubelet.admit(pod("a")).reason == f"OutOf{R}"


def test_plugin_that_never_sends_a_list(kubelet: MockKubelet) -> None:
    """The kubelet does not know the resource yet: it admits the pod without a device."""
    with simulated(kubelet, ListFault.SILENT):
        kubelet.wait_for_event(EventKind.REGISTERED, after=0)
        assert (kubelet.capacity(), kubelet.allocatable()) == ({}, {})
        admission = kubelet.admit(pod("a"))
        assert admission.admitted
        assert admission.containers["main"].devices == {}
        [event] = kubelet.events.recent(EventKind.UNKNOWN_RESOURCE)
        assert "the container runs without the resource" in event.message


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("node", [-5, -(2**63), 63, 64, 2**40, 2**63 - 1])
def test_nonexistent_numa_nodes_do_not_affect_the_kubelet(
    start: Start, policy: str, node: int
) -> None:
    """They can make the plugin's devices unusable, but do not affect the kubelet."""
    settings = attrs.evolve(PATIENT, topology_policy=policy, numa=NumaTopology.of([0, 1]))
    kubelet = start(settings)
    message = dp.ListAndWatchResponse()
    for index, numa in enumerate((0, node)):
        device = message.devices.add(ID=f"d{index}", health="Healthy")
        device.topology.nodes.add(ID=numa)
    with raw(kubelet, hostile.lists(message.SerializeToString())):
        kubelet.wait_for_resource(R, 2)
        first = kubelet.admit(pod("a", 1))
        assert first.admitted, first.message
        kubelet.admit(pod("b", 1))
        kubelet.manager.self_check()
        assert kubelet.checkpoint_path.stat().st_size < 10_000
