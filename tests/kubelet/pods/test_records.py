"""The node's pods, and which of their containers run."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.allocation.container import AdmissionContext
from devicemanager.core.errors import RequestError
from devicemanager.core.pods import Pod, RestartPolicy
from devicemanager.kubelet.pods.records import Phase, PodStore, title
from tests.helpers import container, pod

SPEC = pod("p", container("app"), init=[container("init"), container("side", restartable=True)])


def test_pods_are_added_found_and_removed():
    store = PodStore()
    record = store.add(SPEC)
    assert store.known("p") is store.get(SPEC.uid) is record
    assert store.records() == (record,) and store.is_current(record)
    store.remove(record)
    store.remove(record)
    assert store.records() == () and store.get(SPEC.uid) is None and not store.is_current(record)


def test_pods_are_returned_in_order_of_arrival_during_a_removal():
    store = PodStore()
    for uid in "cab":
        store.add(pod(uid))
    seen = []
    for record in store.records():
        seen.append(record.pod.uid)
        store.remove(record)
    assert seen == ["c", "a", "b"]


def test_unknown_uid_is_an_error():
    with pytest.raises(RequestError, match=r"^no pod has the UID 'x': it was not admitted"):
        PodStore().known("x")


def test_uid_of_an_active_pod_is_an_error():
    store = PodStore()
    store.add(pod("p"))
    with pytest.raises(RequestError, match=r"^pod default/p is already admitted: terminate it"):
        store.add(pod("p"))
    other = Pod(SPEC.uid, "other", "default", ())
    with pytest.raises(
        RequestError, match=r"^pod default/other has the UID p of pod default/p: use a unique"
    ):
        store.add(other)
    assert len(store.records()) == 1


def test_failed_pod_can_be_replaced():
    store = PodStore()
    old = store.add(SPEC)
    store.end(old, Phase.FAILED, "OutOfCpu", "too little")
    new = store.add(SPEC)
    assert new is not old and store.records() == (new,)
    assert store.snapshot().inactive == () and store.snapshot().active == (SPEC,)
    # The end of the old pod comes late, when it is no longer current.
    store.end(old, Phase.FAILED)
    store.remove(old)
    assert new.is_active and store.records() == (new,)


def test_started_containers():
    record = PodStore().add(SPEC)
    assert (record.phase, record.is_active) == (Phase.PENDING, True)
    for each, is_init in SPEC.all_containers():
        record.started(each, is_init)
        if each.name == "init":
            assert record.phase is Phase.PENDING
    assert record.running == {"side", "app"} and record.finished == {"init"}
    assert record.phase is Phase.RUNNING


def test_all_started_starts_every_container():
    record = PodStore().add(SPEC)
    record.all_started()
    running, finished = frozenset({"side", "app"}), frozenset({"init"})
    assert record.context(False, frozenset()) == AdmissionContext(False, running, finished)


def test_failed_pod_runs_nothing():
    store = PodStore()
    record = store.add(SPEC)
    record.all_started()
    store.end(record, Phase.FAILED, "UnexpectedAdmissionError", "why")
    assert (record.phase, record.reason, record.message) == (
        Phase.FAILED, "UnexpectedAdmissionError", "why",
    )  # fmt: skip
    assert not record.is_active and record.running == set()


@pytest.mark.parametrize(
    ("policy", "exit_codes", "phase"),
    [
        (RestartPolicy.NEVER, {}, Phase.SUCCEEDED),
        (RestartPolicy.NEVER, {"app": 0}, Phase.SUCCEEDED),
        (RestartPolicy.NEVER, {"app": 137}, Phase.FAILED),
        (RestartPolicy.ON_FAILURE, {"app": 0}, Phase.SUCCEEDED),
    ],
)
def test_phase_after_the_last_container(policy, exit_codes, phase):
    record = PodStore().add(attrs.evolve(SPEC, restart_policy=policy))
    assert record.phase_after(exit_codes) is phase


@pytest.mark.parametrize(
    ("policy", "exit_codes", "text"),
    [
        (
            RestartPolicy.ALWAYS,
            {},
            r"pod default/p cannot finish: with restartPolicy Always the "
            r"kubelet restarts every container",
        ),
        (
            RestartPolicy.ON_FAILURE,
            {"app": 1},
            r"pod default/p cannot finish: with restartPolicy OnFailure "
            r"the kubelet restarts a failed container",
        ),
        (
            RestartPolicy.NEVER,
            {"x": 1},
            "unknown app container 'x' of pod default/p: use one of app$",
        ),
        (RestartPolicy.NEVER, {"init": 1}, "unknown app container 'init' of pod default/p"),
        (RestartPolicy.NEVER, {"side": 0}, "unknown app container 'side' of pod default/p"),
    ],
)
def test_pod_that_would_be_restarted_cannot_finish(policy, exit_codes, text):
    record = PodStore().add(attrs.evolve(SPEC, restart_policy=policy))
    with pytest.raises(RequestError, match="^" + text):
        record.phase_after(exit_codes)


def test_container_by_name():
    debug = container("debug")
    record = PodStore().add(attrs.evolve(SPEC, ephemeral_containers=(debug,)))
    assert record.container("debug") == (debug, False)
    assert record.container("init") == (SPEC.init_containers[0], True)
    assert record.container("app") == (SPEC.containers[0], False)
    with pytest.raises(
        RequestError,
        match=r"^unknown container 'x' of pod default/p: use one of init, side, app, debug$",
    ):
        record.container("x")


def test_title_has_namespace_and_name():
    assert title(SPEC) == "default/p"
