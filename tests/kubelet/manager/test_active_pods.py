"""The manager's record of a pod: made when there is something to say, gone when there is not."""

from __future__ import annotations

from devicemanager.core.allocation.container import PodAllocation
from devicemanager.core.endpoints import Endpoints
from devicemanager.core.ids import PodUid
from devicemanager.core.ledger import Ledger
from devicemanager.kubelet.manager.state import PodStates
from tests.helpers import pod

P, Q = PodUid("p"), PodUid("q")


def test_inactive_pods_are_in_order():
    states = PodStates()
    states.deactivate(Q)
    states.deactivate(P)
    assert states.inactive() == [P, Q]


def test_a_pod_that_is_forgotten_is_not_inactive_any_more():
    states = PodStates()
    states.deactivate(P)
    states.forget(P)
    assert states.inactive() == []


def test_pci_devices_in_use_are_those_of_all_pods():
    states = PodStates()
    states.set_host_devices(P, frozenset({"0000:01:00.0"}))
    states.set_host_devices(Q, frozenset({"0000:02:00.0"}))
    assert states.host_devices_in_use() == {"0000:01:00.0", "0000:02:00.0"}
    states.forget(P)
    assert states.host_devices_in_use() == {"0000:02:00.0"}
    states.set_host_devices(Q, frozenset())
    assert states.host_devices_in_use() == frozenset()


def test_only_an_admission_under_way_learns_that_its_pod_was_deleted():
    states = PodStates()
    states.delete(P)
    assert not states.get(P).is_deleted


def test_nothing_is_kept_of_a_pod_of_which_there_is_nothing_to_say():
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
