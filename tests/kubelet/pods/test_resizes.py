"""In-place resizes and new ephemeral containers of pods, without a cluster."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.errors import RequestError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.podstatus.containers import Running
from devicemanager.core.podstatus.resize import PendingResize, Resize, ResizeInProgress
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.pods.records import PodRecord
from tests.node import Node, cpus_and_memory

CPU, MEMORY = ResourceName("cpu"), ResourceName("memory")
MAIN = ContainerName("main")
RESIZES = (EventKind.RESIZE_PENDING, EventKind.RESIZE_STARTED, EventKind.RESIZE_COMPLETED)


def pod(uid: str, cpu: int = 1000, **fields: object) -> Pod:
    """Return a burstable pod that requests CPU in thousandths."""
    main = Container(MAIN, {CPU: 9000}, {CPU: cpu}, image="i", **fields)  # type: ignore[arg-type]
    return Pod(PodUid(uid), uid, "default", (main,))


def node_with(*pods: Pod, version: str = "1.37", **fields: object) -> Node:
    """Return a node with 4 CPUs that runs these pods."""
    node = Node(kubelet_version=version, node_allocatable={"cpu": "4", "memory": "4Gi"}, **fields)
    for each in pods:
        assert node.admit(each, start=True).admitted
    return node


def record_of(node: Node, uid: str) -> PodRecord:
    return node.pods.known(PodUid(uid))


def cpu_of(node: Node, uid: str) -> int:
    return record_of(node, uid).pod.containers[0].requests[CPU]


def texts(node: Node) -> list[str]:
    return [event.message for event in node.events.recent(*RESIZES)]


def test_resize_that_fits_is_started_and_completed() -> None:
    node = node_with(pod("a"))
    node.workers.update(pod("a", 3000), 2)
    assert cpu_of(node, "a") == 3000 and record_of(node, "a").resize is None
    assert texts(node) == [
        "pod default/a: resize started",
        "pod default/a: resize completed",
    ]
    assert [event.pod for event in node.events.recent(*RESIZES)] == ["a", "a"]
    assert record_of(node, "a").status(MAIN).restart_count == 0


def test_update_without_a_change_of_resources_starts_nothing() -> None:
    node = node_with(pod("a"))
    node.workers.update(attrs.evolve(pod("a"), termination_grace_period=7), 2)
    assert texts(node) == [] and record_of(node, "a").resize is None


def test_resize_that_does_not_fit_is_deferred_until_there_is_room() -> None:
    node = node_with(pod("a", 2000), pod("b"))
    wanted = pod("b", 3000)
    node.workers.update(wanted, 5)
    text = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    pending = PendingResize(wanted, "Deferred", text, 5, 1000.0)
    assert record_of(node, "b").resize == Resize(pending)
    assert cpu_of(node, "b") == 1000
    assert texts(node) == [f"pod default/b: resize deferred: {text}"]
    # Nothing has changed, so there is no second event, and the time stays.
    node.clock.advance(5.0)
    node.workers.update(wanted, 5)
    assert record_of(node, "b").resize == Resize(pending) and len(texts(node)) == 1
    node.terminate("a")
    assert cpu_of(node, "b") == 3000 and record_of(node, "b").resize is None
    assert texts(node)[1:] == ["pod default/b: resize started", "pod default/b: resize completed"]
    # It is not tried once more.
    node.admit(pod("c"), start=True)
    node.terminate("c")
    assert len(texts(node)) == 3


def test_smaller_pod_makes_room_for_deferred_resizes_in_their_order() -> None:
    node = node_with(pod("a", 2000), pod("b"), pod("c", 500))
    node.workers.update(pod("b", 2000), 2)
    node.workers.update(pod("c", 2500), 2)
    node.workers.update(pod("a", 500), 2)
    assert [cpu_of(node, uid) for uid in "abc"] == [500, 2000, 500]
    assert [event.pod for event in node.events.recent(EventKind.RESIZE_STARTED)] == ["a", "b"]
    assert record_of(node, "c").resize is not None


def test_withdrawn_resize_is_not_pending() -> None:
    node = node_with(pod("a", 2000), pod("b"))
    node.workers.update(pod("b", 3000), 2)
    node.workers.update(pod("b"), 3)
    assert record_of(node, "b").resize is None
    assert texts(node)[1:] == ["pod default/b: resize withdrawn"]
    node.terminate("a")
    assert cpu_of(node, "b") == 1000


def test_deferred_resize_of_a_pod_that_has_gone_is_forgotten() -> None:
    node = node_with(pod("a", 2000), pod("b"), pod("c", 500))
    node.workers.update(pod("b", 3000), 2)
    node.workers.update(pod("c", 2500), 2)
    node.workers.stop("b", 1)
    assert cpu_of(node, "b") == 1000
    node.terminate("b")
    node.terminate("a")
    assert cpu_of(node, "c") == 2500


@pytest.mark.parametrize(("version", "reason"), [("1.35", "Infeasible"), ("1.36", "Deferred")])
def test_resize_above_the_node_is_infeasible_before_1_36(version: str, reason: str) -> None:
    node = node_with(pod("a"), version=version)
    node.workers.update(pod("a", 5000), 2)
    resize = record_of(node, "a").resize
    assert resize is not None and resize.pending is not None
    assert resize.pending.reason == reason
    if reason == "Infeasible":
        text = "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"
        assert texts(node) == [f"pod default/a: resize infeasible: {text}"]
    # Another reason has its own time.
    node.clock.advance(5.0)
    node.admit(pod("b", 2500), start=True)
    node.workers.update(pod("a", 3000), 3)
    assert record_of(node, "a").resize == Resize(
        PendingResize(
            pod("a", 3000),
            "Deferred",
            "Node didn't have enough resource: cpu, requested: 3000, used: 2500, capacity: 4000",
            3,
            1005.0 if reason == "Infeasible" else 1000.0,
        )
    )


def test_kubelet_without_resizes_changes_nothing() -> None:
    node = node_with(pod("a"), version="1.32")
    node.workers.update(pod("a", 3000), 2)
    assert cpu_of(node, "a") == 1000 and texts(node) == []


def test_resize_that_waits_is_in_progress_until_it_is_completed() -> None:
    node = node_with(pod("a"))
    record = record_of(node, "a")
    record.resize_waits = True
    before = record.pod
    node.workers.update(pod("a", 2000), 4)
    assert record.resize == Resize(None, ResizeInProgress(before, 4, 1000.0))
    assert cpu_of(node, "a") == 2000
    node.workers.update(pod("a", 5000), 5)
    assert record.resize is not None and record.resize.in_progress is not None
    assert record.resize.pending is not None
    node.workers.complete_resize("a")
    assert record.resize is not None
    assert record.resize.in_progress is None and record.resize.pending is not None
    assert texts(node)[-1] == "pod default/a: resize completed"
    # Nothing is in progress now.
    node.workers.complete_resize("a")
    assert texts(node).count("pod default/a: resize completed") == 1
    with pytest.raises(RequestError, match=r"^no pod has the UID 'unknown'"):
        node.workers.complete_resize("unknown")


def test_resize_of_an_ended_pod_is_not_completed() -> None:
    node = node_with(pod("a"))
    record_of(node, "a").resize_waits = True
    node.workers.update(pod("a", 2000), 2)
    node.workers.stop("a", 1)
    node.workers.complete_resize("a")
    assert texts(node) == ["pod default/a: resize started"]
    # An update of a pod that has ended is ignored.
    node.workers.update(pod("a", 500), 3)
    assert cpu_of(node, "a") == 2000


def test_policy_restarts_a_running_container() -> None:
    node = node_with(pod("a", restarts_on_resize=("cpu",)), pod("b"))
    node.clock.advance(9.0)
    for uid in ("a", "b"):
        node.workers.update(
            pod(uid, 1500, **({"restarts_on_resize": ("cpu",)} if uid == "a" else {})), 2
        )
    a, b = (record_of(node, uid).status(MAIN) for uid in ("a", "b"))
    assert (a.restart_count, b.restart_count) == (1, 0)
    assert a.state == Running(1009.0) and b.state == Running(1000.0)


def test_container_that_does_not_run_is_not_restarted() -> None:
    node = node_with()
    node.admit(pod("a", restarts_on_resize=("cpu",)))
    node.workers.update(pod("a", 1500, restarts_on_resize=("cpu",)), 2)
    assert not record_of(node, "a").running and cpu_of(node, "a") == 1500


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({CPU: 2000, MEMORY: 1 << 30}, ("CPU Manager", "static")),
        ({CPU: 1000, MEMORY: 2 << 30}, ("Memory Manager", "Static")),
        ({CPU: 1000, MEMORY: 1 << 30}, None),
    ],
)
def test_exclusive_cpus_and_memory_cannot_be_resized(
    wanted: dict[ResourceName, int], text: tuple[str, str] | None
) -> None:
    def guaranteed(amounts: dict[ResourceName, int]) -> Pod:
        return Pod(PodUid("a"), "a", "default", (Container(MAIN, amounts, amounts, image="i"),))

    before, after = guaranteed({CPU: 1000, MEMORY: 1 << 30}), guaranteed(wanted)
    node = Node(providers=cpus_and_memory())
    assert node.manager.static_resources(before, after) == text
    assert Node().manager.static_resources(before, after) is None
    burstable = attrs.evolve(
        after, containers=(attrs.evolve(after.containers[0], requests={CPU: 1}),)
    )
    assert node.manager.static_resources(before, burstable) is None
    node.admit(before, start=True)
    node.workers.update(after, 2)
    how = "" if text is None else f'alongside {text[0]} policy "{text[1]}"'
    pending = f"pod default/a: resize infeasible: Resize is infeasible for Guaranteed Pods {how}"
    assert texts(node) == ([pending] if how else [])


def test_new_ephemeral_container_is_started_once() -> None:
    node = node_with(pod("a"))
    shell = Container(ContainerName("shell"), image="busybox", is_ephemeral=True)
    with_shell = attrs.evolve(pod("a"), ephemeral_containers=(shell,))
    node.workers.update(with_shell, 2)
    record = record_of(node, "a")
    assert record.pod.ephemeral_containers == (shell,)
    assert record.status(shell.name).state == Running(1000.0)
    node.clock.advance(9.0)
    second = attrs.evolve(shell, name=ContainerName("second"))
    node.workers.update(attrs.evolve(with_shell, ephemeral_containers=(shell, second)), 3)
    assert record.status(shell.name).state == Running(1000.0)
    assert record.status(second.name).state == Running(1009.0)
    assert texts(node) == []
