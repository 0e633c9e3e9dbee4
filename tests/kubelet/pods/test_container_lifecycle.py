"""Containers that exit and are restarted, and pods that are deleted, in virtual time."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.errors import AllocationError, RequestError, RpcError
from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Container, Pod, RestartPolicy
from devicemanager.core.podstatus.containers import Running, Terminated, Waiting
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.pods.records import PodRecord
from devicemanager.testing.fakes import PRE_START_CONTAINER, FakePlugin
from tests.helpers import container, devices, pod
from tests.node import GPU, Node


def train(policy: RestartPolicy = RestartPolicy.ALWAYS, *more: Container) -> Pod:
    return attrs.evolve(pod("train", container("app", gpu=1), *more), restart_policy=policy)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def plugin(node: Node) -> FakePlugin:
    return node.plugin(devices("g0", "g1"), pre_start_required=True)


def record(node: Node) -> PodRecord:
    return node.pods.known("train")


def state(node: Node, name: str = "app") -> object:
    return record(node).status(ContainerName(name)).state


def crash(node: Node, code: int = 1, name: str = "app", reason: str = "") -> None:
    node.workers.life.exited("train", name, code, reason)


def restarts(node: Node) -> int:
    return record(node).status(ContainerName("app")).restart_count


def kinds(node: Node) -> list[str]:
    noise = ("checkpoint-written", "allocated", "devices-updated", "registered")
    return [event.kind.value for event in node.events.recent() if event.kind not in noise]


def test_repeated_crashes_double_the_backoff(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(), start=True)
    calls_before = len(plugin.calls)
    crash(node)
    assert isinstance(state(node), Running) and restarts(node) == 1, "the first one at once"
    for wait, text in ((10, "10s"), (20, "20s"), (40, "40s"), (80, "1m20s"), (160, "2m40s")):
        crash(node)
        waits = state(node)
        assert waits == Waiting(
            "CrashLoopBackOff",
            f"back-off {text} restarting failed container=app pod=train_default(train)",
        )
        assert record(node).phase == "Running"
        node.clock.advance(wait - 0.5)
        assert state(node) == waits
        node.clock.advance(0.5)
        assert state(node) == Running(node.clock.time())
    assert restarts(node) == 6
    last = record(node).status(ContainerName("app")).last_termination
    assert last is not None and (last.exit_code, last.reason) == (1, "Error")
    assert [call.method for call in plugin.calls[calls_before:]] == [PRE_START_CONTAINER] * 6
    assert node.devices("train")["app"]
    node.clock.advance(601)
    crash(node)
    assert isinstance(state(node), Running), "it ran for more than ten minutes"


def test_completed_container_is_restarted_with_policy_always(
    node: Node, plugin: FakePlugin
) -> None:
    node.admit(train(), start=True)
    crash(node, 0)
    crash(node, 0)
    assert isinstance(state(node), Waiting)
    exited = [event for event in node.events.recent() if event.kind is EventKind.CONTAINER_EXITED]
    assert exited[0].message == ("pod default/train container app exited with code 0 (Completed)")
    assert exited[0].details == {"container": "app", "exit_code": 0, "reason": "Completed"}


@pytest.mark.parametrize(
    ("policy", "codes", "phase"),
    [
        (RestartPolicy.NEVER, (0, 0), "Succeeded"),
        (RestartPolicy.NEVER, (0, 9), "Failed"),
        (RestartPolicy.NEVER, (9, 0), "Failed"),
        (RestartPolicy.ON_FAILURE, (0, 0), "Succeeded"),
    ],
)
def test_pod_ends_with_its_last_container(
    node: Node, plugin: FakePlugin, policy: RestartPolicy, codes: tuple[int, int], phase: str
) -> None:
    side = Container(ContainerName("side"), restartable=True)
    spec = attrs.evolve(train(policy, container("b", gpu=1)), init_containers=(side,))
    node.admit(spec, start=True)
    crash(node, codes[0])
    assert record(node).phase == "Running"
    assert node.manager.capacity().allocatable == {GPU: 2}
    assert not node.admit(pod("other", gpu=1)).admitted
    crash(node, codes[1], "b", "OOMKilled")
    assert record(node).phase == phase
    ended = state(node, "b")
    assert isinstance(ended, Terminated)
    assert (ended.exit_code, ended.reason) == (codes[1], "OOMKilled")
    assert isinstance(state(node, "side"), Terminated)
    assert node.admit(pod("another", gpu=2)).admitted, "its devices are free"
    assert kinds(node).count("finished") == 1
    with pytest.raises(
        RequestError, match=r"^container app of pod default/train is terminated: expected a running"
    ):
        crash(node)


def test_policy_on_failure_restarts_only_failed_containers(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(RestartPolicy.ON_FAILURE, container("b")), start=True)
    crash(node, 0)
    crash(node, 2, "b")
    assert isinstance(state(node, "b"), Running)
    crash(node, 0, "b")
    assert record(node).phase == "Succeeded"


def test_sidecar_is_always_restarted(node: Node, plugin: FakePlugin) -> None:
    side = Container(ContainerName("side"), restartable=True)
    spec = attrs.evolve(train(RestartPolicy.NEVER), init_containers=(side,))
    node.admit(spec, start=True)
    crash(node, 0, "side")
    assert isinstance(state(node, "side"), Running)


def test_finish_counts_containers_that_have_exited(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(RestartPolicy.NEVER, container("b")), start=True)
    crash(node, 3)
    assert node.workers.finish("train", {"app": 0, "b": 0}) == "Failed"
    assert state(node) != state(node, "b")


def test_failed_start_is_retried(node: Node, plugin: FakePlugin) -> None:
    plugin.pre_start_error = RpcError("Unknown", "busy")
    admission = node.admit(train(), start=True)
    assert "busy" in admission.containers["app"].error
    waits = state(node)
    assert isinstance(waits, Waiting) and waits.reason == "CreateContainerConfigError"
    assert "busy" in waits.message and record(node).phase == "Pending"
    plugin.pre_start_error = None
    node.start("train")
    plugin.pre_start_error = RpcError("Unknown", "busy")
    crash(node)
    assert isinstance(state(node), Waiting)
    node.clock.advance(9)
    plugin.pre_start_error = None
    node.clock.advance(1)
    assert isinstance(state(node), Running) and restarts(node) == 1


def test_deleted_pod_is_not_restarted(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(), start=True)
    crash(node)
    crash(node)
    node.terminate("train")
    node.clock.advance(100)
    node.admit(train(), start=True)
    crash(node)
    assert isinstance(state(node), Running), "another pod of the UID has no back-off yet"
    assert kinds(node).count("container-failed") == 0


# -- restart and reboot --------------------------------------------------------------------


def test_restarted_kubelet_starts_waiting_containers_at_once(
    node: Node, plugin: FakePlugin
) -> None:
    node.admit(train(), start=True)
    crash(node)
    crash(node)
    assert isinstance(state(node), Waiting)
    node.workers.life.close()
    node.new_process()
    node.plugin(devices("g0", "g1"))
    node.workers.readmit()
    assert isinstance(state(node), Running) and restarts(node) == 2
    node.clock.advance(1000)
    assert restarts(node) == 2


def test_restarted_kubelet_starts_containers_that_it_could_not_start_before(
    node: Node, plugin: FakePlugin
) -> None:
    """The pod has a sandbox already, but no container was started in it."""
    plugin.pre_start_error = RpcError("Unknown", "busy")
    node.admit(train())
    with pytest.raises(AllocationError, match=r"^device plugin PreStartContainer rpc failed"):
        node.workers.start_container("train", "app")
    node.workers.life.close()
    node.new_process()
    node.plugin(devices("g0", "g1"), pre_start_required=True)
    node.workers.readmit()
    assert isinstance(state(node), Running) and restarts(node) == 0


def test_pods_are_not_all_known_during_readmission_with_a_lost_checkpoint(
    node: Node, plugin: FakePlugin
) -> None:
    node.admit(train(), start=True)
    node.workers.life.close()
    node.store.data = None
    node.new_process(reboot=True)
    ready: list[bool] = []
    back = node.plugin(devices("g0", "g1"))
    back.before_answer = lambda call: ready.append(node.manager.is_sources_ready)
    node.workers.readmit()
    assert ready and not any(ready)
    assert node.manager.is_sources_ready


def test_reboot_restarts_every_container(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(), start=True)
    node.workers.life.close()
    node.new_process(reboot=True)
    node.plugin(devices("g0", "g1"))
    node.workers.readmit()
    status = record(node).status(ContainerName("app"))
    assert isinstance(status.state, Running) and status.restart_count == 1
    assert status.last_termination == Terminated(255, "Unknown", 1000.0)


# -- deletion ------------------------------------------------------------------------------


def test_deleted_pod_keeps_its_devices_during_the_grace_period(
    node: Node, plugin: FakePlugin
) -> None:
    node.admit(train(RestartPolicy.ALWAYS, container("b", gpu=1)), start=True)
    node.workers.life.delete("train", 30)
    assert kinds(node)[-1] == "deleting"
    assert not node.admit(pod("other", gpu=1)).admitted
    crash(node, 0)
    node.clock.advance(29.5)
    assert isinstance(state(node), Terminated), "nothing is started again"
    with pytest.raises(
        RequestError, match=r"^cannot start a container of pod .*: the pod is being deleted$"
    ):
        node.start("train")
    assert isinstance(state(node, "b"), Running)
    node.clock.advance(0.5)
    assert node.pods.records()[0].pod.name == "other" and len(node.pods.records()) == 1
    killed = [event for event in node.events.recent() if event.kind is EventKind.CONTAINER_EXITED]
    assert killed[-1].message.endswith("container b exited with code 137 (Error)")
    assert kinds(node)[-1] == "terminated"
    assert node.admit(pod("another", gpu=2)).admitted


def test_deletion_ends_early_with_the_last_container(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(), start=True)
    node.workers.life.delete("train", 30)
    crash(node, 143)
    assert node.pods.records() == ()
    node.clock.advance(60)
    assert kinds(node).count("terminated") == 1


def test_grace_period_can_only_be_shortened_to_one_second(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(), start=True)
    node.workers.life.delete("train", 30)
    node.workers.life.delete("train", 60)
    node.workers.life.delete("train", 0)
    node.clock.advance(0.9)
    assert node.pods.records()
    node.clock.advance(0.1)
    assert not node.pods.records()
    assert kinds(node).count("deleting") == 1


def test_pod_without_running_containers_is_deleted_at_once(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(), start=True)
    crash(node)
    crash(node)
    node.workers.life.delete("train", 30)
    assert node.pods.records() == ()


@pytest.mark.parametrize("reboot", [False, True])
def test_restarted_kubelet_continues_a_deletion(
    node: Node, plugin: FakePlugin, reboot: bool
) -> None:
    node.admit(train(), start=True)
    node.workers.life.delete("train", 30)
    node.clock.advance(20)
    node.workers.life.close()
    node.new_process(reboot=reboot)
    node.plugin(devices("g0", "g1"))
    node.workers.readmit()
    if not reboot:
        node.clock.advance(29)
        assert node.pods.records()
        node.clock.advance(1)
    assert node.pods.records() == ()


def test_nothing_happens_after_close(node: Node, plugin: FakePlugin) -> None:
    node.admit(train(), start=True)
    crash(node)
    crash(node)
    node.workers.life.close()
    node.clock.advance(1000)
    assert isinstance(state(node), Waiting)


def test_ephemeral_container_of_a_deleted_pod_is_not_started(node: Node) -> None:
    spec = attrs.evolve(pod("train"), containers=(Container(ContainerName("app")),))
    node.admit(spec, start=True)
    node.workers.life.delete("train", 30)
    node.workers.update(attrs.evolve(spec, ephemeral_containers=(container("debug"),)), 2)
    assert isinstance(state(node), Running)
    assert isinstance(state(node, "debug"), Waiting)
