"""Pods that the kubelet ends, and pods that another kubelet ran before."""

from __future__ import annotations

import attrs
import pytest

import checkpoint
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import PodUid
from devicemanager.core.pods import Pod, RestartPolicy
from devicemanager.core.podstatus.containers import Running, Terminated, Waiting
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.objects.status.podstatus import (
    allocated_devices,
    container_statuses_of,
    status_object,
)
from tests.helpers import container, pod

GPU = "vendor.com/gpu"


@pytest.fixture
def node() -> InMemoryKubelet:
    return InMemoryKubelet(None, {GPU: 4}, clock=ManualClock(100.0))


def train(uid: str = "train", count: int = 1, **fields: object) -> Pod:
    return attrs.evolve(pod(uid, container("app", gpu=count)), **fields)


# -- ended by the kubelet ------------------------------------------------------------------


def test_stop_pod_ends_its_containers(node: InMemoryKubelet) -> None:
    node.admit(train())
    node.clock.advance(5.0)
    assert node.stop_pod("train") == "Failed"
    status = node.pod_status("train")
    assert status.containers[0].status.state == Terminated(143, "Error", 100.0, 105.0)
    assert (status.phase, status.reason) == ("Failed", "")
    assert node.admit(train("next", 4)).admitted, "its devices are free"
    assert node.stop_pod("train", 0) == "Failed", "that does not change any more"
    node.terminate("train")
    with pytest.raises(RequestError, match=r"^no pod has the UID 'train'"):
        node.stop_pod("train")


def test_pod_succeeds_if_its_containers_exit_with_0(node: InMemoryKubelet) -> None:
    node.admit(train())
    assert node.stop_pod("train", 0) == "Succeeded"
    assert node.container_statuses("train")["app"].state.reason == "Completed"


def test_evicted_pod_is_failed_with_any_exit_code(node: InMemoryKubelet) -> None:
    node.admit(train())
    low = "The node was low on resource: memory. "
    assert node.stop_pod("train", 0, reason="Evicted", message=low, disruption=low) == "Failed"
    status = node.pod_status("train")
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", low)
    assert status.conditions[0].type == "DisruptionTarget"


def test_pod_that_never_ran_can_be_stopped(node: InMemoryKubelet) -> None:
    node.admit(train(), start=False)
    assert node.stop_pod("train") == "Failed"
    assert isinstance(node.container_statuses("train")["app"].state, Waiting)
    with pytest.raises(
        RequestError, match=r"^cannot start a container: pod default/train has failed"
    ):
        node.start_pod("train")


# -- taken over ----------------------------------------------------------------------------


def status_of(node: InMemoryKubelet, uid: str) -> dict[str, object]:
    return status_object(PodUid(uid), node.pod_status(uid), now=node.clock.time())


def taken_over(old: InMemoryKubelet, new: InMemoryKubelet, wanted: Pod) -> object:
    status = status_of(old, wanted.uid)
    return new.restore(
        wanted, allocated_devices(status), statuses=container_statuses_of(status), start_time=100.0
    )


def test_restored_pod_keeps_its_devices(node: InMemoryKubelet) -> None:
    for uid in ("a", "b"):
        node.admit(train(uid))
    node.exit_container("b", "app", 1)
    node.clock.advance(5.0)
    new = InMemoryKubelet(None, {GPU: 4}, clock=node.clock)
    assert taken_over(node, new, train("b")).admitted
    assert new.devices("b") == {"app": {GPU: ["gpu-1"]}}
    assert status_of(new, "b") == status_of(node, "b")
    assert new.container_statuses("b")["app"].restart_count == 1
    assert new.admit(train("c", 3)).admitted
    assert not new.admit(train("d")).admitted
    new.self_check()


def test_first_of_two_restored_pods_keeps_a_device(node: InMemoryKubelet) -> None:
    node.restore(train("a"), {"app": {GPU: ["gpu-0"]}})
    answer = node.restore(train("b"), {"app": {GPU: ["gpu-0"]}})
    assert (answer.reason, answer.message) == (
        "UnexpectedAdmissionError",
        "Allocate failed due to device gpu-0 of vendor.com/gpu is already in use by pod a, which "
        "is unexpected",
    )
    assert node.pod_status("b").containers == ()
    twice = pod("c", container("app", gpu=1), container("other", gpu=1))
    devices = {"app": {GPU: ["gpu-1"]}, "other": {GPU: ["gpu-1"]}}
    assert not node.restore(twice, devices).admitted
    assert node.admit(train("d", 3)).admitted, "nothing of what was rejected is held"
    node.self_check()


def test_pod_restored_without_devices_gets_new_ones(node: InMemoryKubelet) -> None:
    assert node.restore(train("a")).admitted
    assert node.devices("a") == {"app": {GPU: ["gpu-0"]}}
    assert node.pod("a").phase == "Running"
    assert node.container_statuses("a")["app"].restart_count == 0


def test_restored_pod_keeps_a_failed_device(node: InMemoryKubelet) -> None:
    node.fail_device(GPU, "gpu-2")
    assert node.restore(train("a"), {"app": {GPU: ["gpu-2"]}}).admitted
    (status,) = node.allocated_resources_status("a")["app"]
    assert status.resources[0].health == "Unhealthy"


def test_sidecar_missing_from_restored_devices_gets_its_own(node: InMemoryKubelet) -> None:
    wanted = pod("p", container("app", gpu=1), init=[container("side", gpu=1, restartable=True)])
    assert node.restore(wanted, {"app": {GPU: ["gpu-0"]}}).admitted
    assert node.devices("p") == {"app": {GPU: ["gpu-0"]}, "side": {GPU: ["gpu-1"]}}


@pytest.mark.parametrize(
    ("policy", "code", "state"), [("Always", 1, Running), ("Never", 0, Terminated)]
)
def test_restored_containers_follow_the_restart_policy(
    node: InMemoryKubelet, policy: str, code: int, state: type
) -> None:
    wanted = train("a", restart_policy=RestartPolicy(policy))
    ended = {
        "app": attrs.evolve(node_status(node, wanted), state=Terminated(code, "Error", 90.0, 95.0))
    }
    new = InMemoryKubelet(None, {GPU: 4}, clock=node.clock)
    new.restore(wanted, {"app": {GPU: ["gpu-0"]}}, statuses=ended)
    assert isinstance(new.container_statuses("a")["app"].state, state)


def node_status(node: InMemoryKubelet, wanted: Pod) -> object:
    node.admit(wanted)
    return node.container_statuses(wanted.uid)["app"]


def test_checkpoint_overrides_restored_devices(node: InMemoryKubelet) -> None:
    held = checkpoint.PodDevicesEntry("a", "app", GPU, {-1: ("gpu-0",)}, b"")
    saved = checkpoint.Checkpoint((held,), {})
    new = InMemoryKubelet(None, {GPU: 4}, clock=node.clock)
    new.manager.restore(saved)
    assert new.restore(train("a"), {"app": {GPU: ["gpu-3"]}}).admitted
    assert new.devices("a") == {"app": {GPU: ["gpu-0"]}}
    assert new.manager.is_sources_ready
