"""The node's pods, and which of their containers run."""

from __future__ import annotations

import pytest

from devicemanager.core.allocation.container import AdmissionContext
from devicemanager.core.errors import RequestError
from devicemanager.core.pods import Pod
from devicemanager.pods.records import Phase, PodStore, title
from tests.helpers import container, pod

SPEC = pod("p", container("app"), init=[container("init"), container("side", restartable=True)])


def test_added_found_removed():
    store = PodStore()
    record = store.add(SPEC)
    assert store.known("p") is store.get(SPEC.uid) is record
    assert list(store) == [record]
    assert store.remove(SPEC.uid) is record
    assert store.remove(SPEC.uid) is None
    assert list(store) == [] and store.get(SPEC.uid) is None


def test_pods_come_in_their_order_even_while_one_is_removed():
    store = PodStore()
    for uid in "cab":
        store.add(pod(uid))
    seen = []
    for record in store:
        seen.append(record.pod.uid)
        store.remove(record.pod.uid)
    assert seen == ["c", "a", "b"]


def test_an_unknown_pod():
    with pytest.raises(RequestError, match="no pod has the UID 'x': it was not admitted"):
        PodStore().known("x")


def test_a_uid_that_is_taken():
    store = PodStore()
    store.add(pod("p"))
    with pytest.raises(RequestError, match="pod default/p is admitted already: terminate it"):
        store.add(pod("p"))
    other = Pod(SPEC.uid, "other", "default", ())
    with pytest.raises(RequestError, match="has the UID p of pod default/p: give every pod"):
        store.add(other)
    assert len(list(store)) == 1


def test_a_failed_pod_may_be_replaced():
    store = PodStore()
    old = store.add(SPEC)
    old.fail("OutOfCpu", "too little")
    new = store.add(SPEC)
    assert new is not old and list(store) == [new]


def test_started():
    record = PodStore().add(SPEC)
    assert (record.phase, record.is_active) == (Phase.PENDING, True)
    for each, is_init in SPEC.all_containers():
        record.started(each, is_init)
        if each.name == "init":
            assert record.phase is Phase.PENDING
    assert record.running == {"side", "app"} and record.finished == {"init"}
    assert record.phase is Phase.RUNNING


def test_all_started():
    record = PodStore().add(SPEC)
    record.all_started()
    assert record.context(False, frozenset({"Q5"})) == AdmissionContext(
        False, frozenset({"side", "app"}), frozenset({"init"}), frozenset({"Q5"})
    )


def test_failed():
    record = PodStore().add(SPEC)
    record.all_started()
    record.fail("UnexpectedAdmissionError", "why")
    assert (record.phase, record.reason, record.message) == (
        Phase.FAILED, "UnexpectedAdmissionError", "why",
    )  # fmt: skip
    assert not record.is_active and record.running == set()


def test_a_container_by_name():
    record = PodStore().add(SPEC)
    assert record.container("init") == (SPEC.init_containers[0], True)
    assert record.container("app") == (SPEC.containers[0], False)
    with pytest.raises(RequestError, match="pod default/p has no container 'x': it has init, side"):
        record.container("x")


def test_title():
    assert title(SPEC) == "default/p"
