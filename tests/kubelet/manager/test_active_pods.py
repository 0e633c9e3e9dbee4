"""The manager's records of pods, which exist only while they have contents."""

from __future__ import annotations

from devicemanager.core.allocation.container import PodAllocation
from devicemanager.core.endpoints import Endpoints
from devicemanager.core.ids import PodUid
from devicemanager.core.ledger import Ledger
from devicemanager.kubelet.manager.state import PodStates
from tests.helpers import pod

P, Q = PodUid("p"), PodUid("q")


def test_inactive_pods_are_sorted():
    states = PodStates()
    states.deactivate(Q)
    states.deactivate(P)
    assert states.inactive() == [P, Q]


def test_forgotten_pod_is_not_inactive():
    states = PodStates()
    states.deactivate(P)
    states.forget(P)
    assert states.inactive() == []


def test_host_devices_in_use_are_those_of_all_pods():
    states = PodStates()
    states.set_host_devices(P, frozenset({"0000:01:00.0"}))
    states.set_host_devices(Q, frozenset({"0000:02:00.0"}))
    assert states.host_devices_in_use() == {"0000:01:00.0", "0000:02:00.0"}
    states.forget(P)
    assert states.host_devices_in_use() == {"0000:02:00.0"}
    states.set_host_devices(Q, frozenset())
    assert states.host_devices_in_use() == frozenset()


def test_delete_marks_only_pods_with_an_admission_in_progress():
    states = PodStates()
    states.delete(P)
    assert not states.get(P).is_deleted


def test_empty_records_are_not_stored():
    states, nothing = PodStates(), PodStates().get(P)
    states.begin(PodAllocation(pod("p"), Endpoints(), Ledger()))
    assert states.get(P) is not nothing
    states.end(P)
    assert states.get(P) is nothing
    for change in (
        lambda: states.set_affinities(P, {}),
        lambda: states.set_host_devices(P, frozenset()),
    ):
        change()
        assert states.get(P) is nothing
    states.set_host_devices(P, frozenset({"0000:01:00.0"}))
    states.forget(P)
    assert states.get(P) is nothing
