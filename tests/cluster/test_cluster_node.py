"""One node: registration, status, faults and leaving, in virtual time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from devicemanager.apiserver.authorization import Permission
from devicemanager.client.errors import ClusterError
from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.cluster.nodes.faults import Fault, parse_faults
from devicemanager.cluster.nodes.status import NodeStatusUpdater
from devicemanager.core.errors import RequestError
from devicemanager.core.nodestatus.conditions import Pressure
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.inmemory.devices import numbered
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing import pod_manifest
from devicemanager.testing.fakes import FakePlugin
from tests.cluster.world import GPU, World


@pytest.fixture
def world() -> World:
    return World()


def node_patches(world: World) -> list[dict[str, Any]]:
    path = "/api/v1/nodes/n/status"
    return [body["status"] for method, at, body in world.requests if at == path]


# -- joining -------------------------------------------------------------------------------


def test_join_registers_node_as_a_kubelet_does(world: World) -> None:
    taint = {"key": "example.com/t", "value": "v", "effect": "NoSchedule"}
    node = world.join(
        labels={"zone": "a"},
        annotations={"note": "text"},
        taints=(taint,),
        address="127.1.0.1",
        port=10250,
        shard="3",
    )
    found = world.node()
    labels = found["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == "n" and labels["zone"] == "a"
    assert labels["devicemanager.io/virtual"] == "true"
    assert labels["devicemanager.io/shard"] == "3"
    assert found["metadata"]["annotations"]["note"] == "text"
    assert taint in found["spec"]["taints"]
    status = found["status"]
    assert status["capacity"][GPU] == status["allocatable"][GPU] == "4"
    assert status["capacity"]["cpu"] == "64"
    assert status["nodeInfo"]["kubeletVersion"] == "v1.37.0+devicemanager"
    assert world.condition()["reason"] == "KubeletReady"
    assert world.leases.uids == {"n": node.uid} == {"n": found["metadata"]["uid"]}
    assert [each["message"] for each in world.events("NodeReady")] == [
        "Node n status is now: NodeReady"
    ]
    assert world.warnings == [] and node_patches(world) == []


@pytest.mark.parametrize(
    ("selected", "reported"),
    [("1.36", "v1.36.0+devicemanager"), ("v1.34.2", "v1.34.2+devicemanager")],
)
def test_node_reports_the_selected_version(world: World, selected: str, reported: str) -> None:
    world.join(settings=Settings(kubelet_version=selected))
    assert world.node()["status"]["nodeInfo"]["kubeletVersion"] == reported


def test_join_rejects_existing_foreign_node(world: World) -> None:
    world.call("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    with pytest.raises(ClusterError, match=r"^node n exists without the label"):
        world.join()
    assert [method for method, _, _ in world.requests] == ["POST", "GET"]
    assert world.leases.uids == {}


def test_join_takes_over_node_of_an_earlier_process(world: World) -> None:
    world.join(settings=None, gpus=4)
    old = world.node()
    world.nodes.pop("n")._pods.close()
    world.clock.advance(5.0)
    kubelet = InMemoryKubelet(None, {"vendor.com/nic": 2}, clock=world.clock)
    node = world.join(kubelet=kubelet, labels={"zone": "b"}, shard="1")
    found = world.node()
    assert node.uid == old["metadata"]["uid"] == found["metadata"]["uid"]
    assert found["metadata"]["labels"]["zone"] == "b"
    assert found["metadata"]["labels"]["devicemanager.io/shard"] == "1"
    capacity = found["status"]["capacity"]
    assert (capacity[GPU], capacity["vendor.com/nic"]) == ("0", "2"), "removed resources stay at 0"
    times = [each["lastTransitionTime"] for each in old["status"]["conditions"]]
    assert [each["lastTransitionTime"] for each in found["status"]["conditions"]] == times


# -- status ---------------------------------------------------------------------------------


def test_status_is_written_on_change_and_every_five_minutes(world: World) -> None:
    node = world.join()
    world.pass_time(60.0)
    assert node_patches(world) == [], "no change"
    node.kubelet.fail_device(GPU, "gpu-0")
    world.pass_time(11.0)
    (patch,) = node_patches(world)
    assert patch["allocatable"][GPU] == "3" and patch["capacity"][GPU] == "4"
    assert patch["addresses"][-1] == {"$patch": "replace"}
    world.pass_time(290.0)
    assert len(node_patches(world)) == 1
    world.pass_time(11.0)
    assert len(node_patches(world)) == 2, "an unchanged status is written every five minutes"


def test_capacity_that_another_client_changes_during_a_write_is_restored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.join()
    request = world.request

    def racing(method: str, path: str, *args: Any, **options: Any) -> Any:
        found = request(method, path, *args, **options)
        if method == "PATCH" and path.endswith("/nodes/n/status"):
            monkeypatch.undo()
            world.call("PATCH", path, {"status": {"capacity": {"cpu": "1"}}}, patch="merge")
            world.deliver()  # before the node has the response to its write
        return found

    monkeypatch.setattr(world, "request", racing)
    node.kubelet.fail_device(GPU, "gpu-0")
    world.pass_time(10.0)
    assert world.node()["status"]["capacity"]["cpu"] == "1"
    world.pass_time(10.0)
    assert world.node()["status"]["capacity"]["cpu"] == "64"
    assert len(node_patches(world)) == 2


def test_periodic_check_without_a_change_builds_no_status(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.join()
    build, built = NodeStatusUpdater.status, []

    def counted(self: NodeStatusUpdater) -> Any:
        built.append(self)
        return build(self)

    monkeypatch.setattr(NodeStatusUpdater, "status", counted)
    world.pass_time(60.0)
    assert built == []


def test_stopped_plugin_zeroes_capacity_after_the_grace_period(
    world: World,
) -> None:
    node = world.join()
    node.kubelet.stop_plugin(GPU)
    world.pass_time(11.0)
    assert world.node()["status"]["allocatable"][GPU] == "0"
    assert world.node()["status"]["capacity"][GPU] == "4"
    world.pass_time(311.0)
    assert world.node()["status"]["capacity"][GPU] == "0"


# -- what can go wrong ---------------------------------------------------------------------------


def test_not_ready_sets_and_clears_the_condition(world: World) -> None:
    node = world.join()
    node.not_ready("container runtime is down")
    world.settle()
    ready = world.condition()
    assert (ready["status"], ready["reason"], ready["message"]) == (
        "False",
        "KubeletNotReady",
        "container runtime is down",
    )
    node.not_ready("")
    world.settle()
    assert world.condition()["status"] == "True"
    reasons = [each["reason"] for each in world.events()]
    assert reasons.count("NodeNotReady") == 1 and reasons.count("NodeReady") == 1


def test_equal_events_increase_the_count(world: World) -> None:
    node = world.join()
    for number in range(6):
        node.not_ready("broken" if number % 2 == 0 else "")
        world.settle()
    counts = {each["reason"]: each["count"] for each in world.events()}
    assert counts == {"NodeReady": 4, "NodeNotReady": 3}


def test_similar_events_are_combined_and_limited(world: World) -> None:
    node = world.join()
    for number in range(100):
        node.record("Warning", "Odd", f"the {number}th odd thing")
        world.settle()
    odd = world.events("Odd")
    assert len(odd) == 11, "ten individual events, and a combined one"
    assert odd[-1]["message"].startswith("(combined from similar events): ")
    assert sum(each["count"] for each in odd) == 24, "the burst is 25, and NodeReady used one"


def test_node_under_pressure_rejects_pods(world: World) -> None:
    node = world.join()
    node.pressure([Pressure.MEMORY])
    world.settle()
    assert world.condition("MemoryPressure")["status"] == "True"
    assert world.condition()["status"] == "True"
    world.run("poor")
    status = world.status("poor")
    assert (status["reason"], status["message"]) == (
        "Evicted",
        "Pod was rejected: The node had condition: [MemoryPressure]. ",
    )
    node.pressure([])
    world.settle()
    world.run("next")
    assert world.status("next")["phase"] == "Running"


MEMORY_TAINT = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}


@pytest.mark.parametrize(
    ("pressures", "spec", "phase"),
    [
        ([Pressure.MEMORY], {"tolerations": [MEMORY_TAINT]}, "Running"),
        ([Pressure.MEMORY], {"tolerations": [{"operator": "Exists"}]}, "Running"),
        ([Pressure.MEMORY], {"tolerations": [{**MEMORY_TAINT, "effect": "NoExecute"}]}, "Failed"),
        ([Pressure.MEMORY], {"tolerations": [{**MEMORY_TAINT, "key": "x"}]}, "Failed"),
        ([Pressure.MEMORY, Pressure.PID], {"tolerations": [MEMORY_TAINT]}, "Failed"),
        ([Pressure.DISK], {"tolerations": [MEMORY_TAINT]}, "Failed"),
        ([Pressure.MEMORY, Pressure.DISK], {"priority": 2_000_000_000}, "Running"),
        ([Pressure.MEMORY], {"priority": 1_999_999_999}, "Failed"),
    ],
)
def test_pods_that_a_node_under_pressure_admits(
    world: World, pressures: list[Pressure], spec: dict[str, Any], phase: str
) -> None:
    """``evictionManager.Admit``, v1.37."""
    world.join().pressure(pressures)
    world.run("p", **spec)
    assert world.status("p")["phase"] == phase


def test_evict_fails_the_pod(world: World) -> None:
    node = world.join()
    uid = world.run("train")
    node.evict(uid)
    world.settle()
    status = world.status("train")
    low = "The node was low on resource: memory. "
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", low)
    target = next(each for each in status["conditions"] if each["type"] == "DisruptionTarget")
    assert target["reason"] == "TerminationByKubelet"
    assert node.kubelet.inventory()[0].pod is None
    with pytest.raises(RequestError, match=r"^unknown pod UID 'x' on node"):
        node.evict("x")


def test_silent_node_sends_no_request_until_it_resumes(world: World) -> None:
    node = world.join()
    world.run("before")
    node.silent()
    before = len(world.requests)
    node.kubelet.fail_device(GPU, "gpu-0")
    world.run("meanwhile")
    world.delete("before")
    world.pass_time(400.0)
    assert len(world.requests) == before and world.leases.paused == {"n"}
    node.silent(False)
    world.settle()
    assert world.leases.paused == set()
    assert [each["metadata"]["name"] for each in world.all("pods")] == ["meanwhile"]
    assert world.status("meanwhile")["phase"] == "Running"
    assert world.node()["status"]["allocatable"][GPU] == "3"


def test_silent_node_also_writes_no_other_objects(world: World) -> None:
    layout = simulated_driver("gpu.example.com", [None])
    kubelet = InMemoryKubelet(
        None, {GPU: 4}, clock=world.clock, drivers={layout.driver: layout.devices}
    )
    node = world.join(kubelet=kubelet, drivers=(layout,))
    node.silent()
    before = len(world.requests)
    kubelet.admit(pod_manifest("static", {GPU: 1}))
    kubelet.fail_device(layout.driver, "gpu-0")
    node.reboot()
    world.settle()
    world.pass_time(60.0)
    assert len(world.requests) == before
    node.silent(False)
    world.settle()
    assert world.status("static-n")["reason"] == "UnexpectedAdmissionError"
    (rebooted,) = world.events("Rebooted")
    assert rebooted["firstTimestamp"] == "2027-01-15T08:00:00Z"
    world.pass_time(60.0)
    (device,) = world.all("resourceslices")[0]["spec"]["devices"]
    assert device["taints"]


def test_node_that_resumes_writes_only_what_changed(world: World) -> None:
    node = world.join()
    world.run("train")
    node.silent()
    node.silent(False)
    assert {key for _, key, _ in world.work_queue.waiting} == {"node/n"}


def test_reboot_rejects_pods_with_devices(world: World) -> None:
    node = world.join()
    world.run("train")
    world.run("plain", gpus=0)
    node.reboot()
    world.settle()
    assert world.status("train")["reason"] == "UnexpectedAdmissionError"
    (plain,) = world.status("plain")["containerStatuses"]
    assert plain["restartCount"] == 1 and "running" in plain["state"]
    assert world.node()["status"]["nodeInfo"]["bootID"] == "1"
    assert world.events("Rebooted")
    world.run("next", gpus=4)
    assert world.status("next")["phase"] == "Running"


def test_kubelet_restart_writes_no_status(world: World) -> None:
    node = world.join()
    world.run("train")
    node.restart()
    world.pass_time(20.0)
    assert world.patches("train") == 1 and node_patches(world) == []


DEVICE_CALLS = [
    ("fail_device", (GPU, "gpu-0"), ("4", "3")),
    ("recover_device", (GPU, "gpu-0"), ("4", "4")),
    ("lose_device", (GPU, "gpu-1"), ("3", "3")),
    ("return_device", (GPU, "gpu-1"), ("4", "4")),
    ("zero_capacity", (GPU,), ("0", "0")),
    ("zero_capacity", (GPU, False), ("4", "4")),
    ("stop_plugin", (GPU,), ("4", "0")),
    ("start_plugin", (GPU,), ("4", "4")),
]


def test_device_calls_update_the_status_at_once(world: World) -> None:
    """Each call writes the status itself: no time passes, so the periodic check does not run."""
    node = world.join()
    for call, arguments, expected in DEVICE_CALLS:
        getattr(node, call)(*arguments)
        world.settle()
        status = world.node()["status"]
        assert (status["capacity"][GPU], status["allocatable"][GPU]) == expected, call


def test_mock_kubelet_node_has_the_devices_of_its_plugin(world: World, tmp_path: Path) -> None:
    with MockKubelet(tmp_path / "k", clock=world.clock) as kubelet:
        node = world.join(kubelet=kubelet)
        plugin = FakePlugin(GPU)
        plugin.register(kubelet.manager.plugins)
        plugin.send_list(numbered(GPU, (None, None)).values())
        world.pass_time(11.0)
        assert world.node()["status"]["allocatable"][GPU] == "2"
        with pytest.raises(
            RequestError, match=r"^cannot change devices of node n: its kubelet has real plugins"
        ):
            node.fail_device(GPU, "gpu-0")
        uid = world.run("train")
        assert world.status("train")["phase"] == "Running"
        node.exit(uid, "main", 1)
        world.settle()
        assert world.status("train")["containerStatuses"][0]["restartCount"] == 1
        world.delete("train")
        assert kubelet.pods() == {} and world.warnings == []
        node.leave()


# -- by annotation ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ()),
        (" ; ", ()),
        ("not-ready", (Fault("not-ready"),)),
        (
            "not-ready=down; device-lost=v.com/gpu/g-1",
            (Fault("not-ready", "down"), Fault("device-lost", "v.com/gpu/g-1")),
        ),
        ("plugin-gone=v.com/gpu;silent", (Fault("plugin-gone", "v.com/gpu"), Fault("silent"))),
    ],
)
def test_parse_faults_and_back(text: str, faults: tuple[Fault, ...]) -> None:
    assert parse_faults(text) == faults
    assert parse_faults("; ".join(map(str, faults))) == faults


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("broken", "^unknown fault 'broken': use one of device-unhealthy, device-lost"),
        ("silent=yes", "^invalid fault 'silent=yes': expected silent$"),
        ("plugin-gone", "^invalid fault 'plugin-gone': expected plugin-gone=RESOURCE$"),
        ("device-lost=gpu-1", "expected a form such as device-lost=vendor.com/gpu/gpu-2"),
    ],
)
def test_parse_faults_rejects_invalid_text(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_faults(text)


def test_annotation_sets_and_clears_device_faults(world: World) -> None:
    world.join()

    def counts() -> tuple[str, str]:
        status = world.node()["status"]
        return status["capacity"][GPU], status["allocatable"][GPU]

    world.annotate(f"device-unhealthy={GPU}/gpu-0; device-lost={GPU}/gpu-1")
    assert counts() == ("3", "2")
    world.annotate(f"device-lost={GPU}/gpu-1")
    assert counts() == ("3", "3")
    world.annotate(f"capacity-zero={GPU}")
    assert counts() == ("0", "0")
    world.annotate(f"plugin-gone={GPU}")
    assert counts() == ("4", "0")
    world.annotate(None)
    assert counts() == ("4", "4") and world.warnings == []


@pytest.mark.parametrize(
    "fault", ["prepare-fails=d:x", "prepare-delay=d:x", "device-lost=vendor.com/none/gpu-0"]
)
def test_fault_that_cannot_be_set_is_reported_once(world: World, fault: str) -> None:
    world.join()
    for number in (1, 2):
        world.annotate(fault)
        assert len(world.warnings) == number
        world.annotate("")
        assert len(world.warnings) == number


def test_annotation_sets_and_clears_node_faults(world: World) -> None:
    node = world.join()
    world.annotate("not-ready; disk-pressure")
    assert world.condition()["message"] == "set to not ready by a fault"
    assert world.condition("DiskPressure")["status"] == "True"
    assert [str(each) for each in node.faults.active] == ["not-ready", "disk-pressure"]
    world.annotate("silent")
    assert world.leases.paused == {"n"}
    world.annotate("")
    assert world.leases.paused == set() and world.condition()["status"] == "True"
    assert world.condition("DiskPressure")["status"] == "False"


def test_reboot_fault_fires_once_per_text(world: World) -> None:
    world.join()
    world.annotate("reboot=1")
    world.annotate("reboot=1; not-ready")
    assert world.node()["status"]["nodeInfo"]["bootID"] == "1"
    world.annotate("reboot=2")
    assert world.node()["status"]["nodeInfo"]["bootID"] == "2"
    world.nodes.pop("n")._pods.close()
    node = world.join()
    assert node.faults.active == (Fault("reboot", "2"),)
    assert world.node()["status"]["nodeInfo"]["bootID"] == "", "the reboot was before this process"


def test_restart_fault_fires_once_per_text(world: World) -> None:
    node = world.join()

    def starts() -> int:
        found = node.kubelet.events.recent(EventKind.STARTED)
        return sum(event.number > latest for event in found)

    for text, expected in (("restart=1", 1), ("restart=1; not-ready", 0), ("restart=2", 1)):
        latest = node.kubelet.events.latest
        world.annotate(text)
        assert starts() == expected, text
    assert world.warnings == []


def test_invalid_faults_warn_and_change_nothing(world: World) -> None:
    world.join()
    world.annotate("not-ready")
    world.annotate("nonsense")
    assert world.condition()["status"] == "False"
    (warning,) = world.warnings
    assert warning.startswith(
        "node n: annotation devicemanager.io/faults ignored: unknown fault 'nonsense'"
    )
    world.annotate(f"device-lost={GPU}/gpu-9")
    assert world.warnings[-1] == (
        f"node n: fault device-lost={GPU}/gpu-9: unknown device 'gpu-9' of {GPU}: the resource has "
        "gpu-0, gpu-1, gpu-2, gpu-3"
    )


def test_node_that_resumes_overwrites_unknown_conditions(world: World) -> None:
    """The node lifecycle controller sets them while a node is silent."""
    node = world.join()
    node.silent()
    unknown = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    world.call("PATCH", "/api/v1/nodes/n/status", {"status": unknown}, patch="strategic")
    world.settle()
    assert world.condition()["status"] == "Unknown"
    node.silent(False)
    world.settle()
    assert world.condition()["status"] == "True"


def test_node_that_falls_silent_and_resumes_at_the_same_time_is_consistent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.join()
    resume = threading.Thread(target=node.silent, args=(False,))
    pause = world.leases.pause

    def pause_while_another_resumes(name: str, paused: bool) -> None:
        if paused:
            resume.start()
            resume.join(0.2)  # it may have to wait until the node is silent
        pause(name, paused)

    monkeypatch.setattr(world.leases, "pause", pause_while_another_resumes)
    node.silent()
    resume.join(20)
    assert not node.is_silent and world.leases.paused == set()
    world.run("train")
    assert world.status("train")["phase"] == "Running"


# -- leaving --------------------------------------------------------------------------------------


def test_deleted_node_leaves(world: World) -> None:
    node = world.join()
    world.call("DELETE", "/api/v1/nodes/n")
    world.settle()
    assert node.is_over and world.left == ["n"] and world.leases.uids == {}
    assert world.warnings == ["node n has left: its Node object was deleted"]
    before = len(world.requests)
    world.pass_time(400.0)
    assert len(world.requests) == before


def test_node_that_was_deleted_without_an_event_leaves_when_it_verifies(world: World) -> None:
    node = world.join()
    world.nodes.clear()  # no events from here
    node.verify()
    world.settle()
    assert not node.is_over
    world.call("DELETE", "/api/v1/nodes/n")
    node.verify()
    world.settle()
    assert node.is_over and world.left == ["n"]


def test_deletion_of_another_node_with_the_same_name_is_ignored(world: World) -> None:
    node = world.join()
    another = {"metadata": {"name": "n", "uid": "of-another"}}
    node.on_node_event("DELETED", another)
    world.settle()
    assert not node.is_over


def test_deleted_node_registers_again_with_on_deleted_register(world: World) -> None:
    node = world.join(on_deleted="register")

    def requests() -> int:
        """Return the number of requests in a time with several periodic status updates."""
        before = len(world.requests)
        world.pass_time(1000.0)
        return len(world.requests) - before

    usual = requests()
    for _ in range(3):
        world.call("DELETE", "/api/v1/nodes/n")
        world.settle()
    assert requests() == usual > 0, "the periodic check must not be started again"
    first = node.uid
    world.call("DELETE", "/api/v1/nodes/n")
    world.settle()
    assert node.uid != first and world.leases.uids == {"n": node.uid}
    world.run("train")
    assert world.status("train")["phase"] == "Running"


@pytest.mark.parametrize("first", ["event", "update", "update and registration"])
def test_deleted_node_registers_again_only_once(world: World, first: str) -> None:
    """The event and a status update, which fails with 404, both find the deletion."""
    layout = simulated_driver("gpu.example.com", [None])
    node = world.join(gpus=0, drivers=(layout,), on_deleted="register")

    def registrations() -> int:
        return [at for method, at, _ in world.requests if method == "POST"].count("/api/v1/nodes")

    assert registrations() == 1
    world.call("DELETE", "/api/v1/nodes/n")
    if first == "event":
        world.deliver()
    node.verify()
    if first == "update and registration":
        _, _, update = world.work_queue.waiting.popleft()
        update()
    world.deliver()
    world.settle()
    assert registrations() == 2
    assert world.node()["metadata"]["uid"] == node.uid
    assert len(world.all("resourceslices")) == 1


def test_node_that_is_deleted_while_it_is_taken_over_registers_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.join().leave("keep")
    request, deleted = world.request, []

    def delete_before_status(method: str, path: str, *args: Any, **options: Any) -> Any:
        if path == "/api/v1/nodes/n/status" and not deleted:
            deleted.append(world.call("DELETE", "/api/v1/nodes/n"))
            world.deliver()  # the new node has no handler yet, so it gets no event
        return request(method, path, *args, **options)

    monkeypatch.setattr(world, "request", delete_before_status)
    node = world.join(on_deleted="register")
    assert deleted and world.node()["metadata"]["uid"] == node.uid


def test_deleted_silent_node_registers_again_when_it_resumes(world: World) -> None:
    node = world.join(on_deleted="register")
    node.silent()
    world.call("DELETE", "/api/v1/nodes/n")
    world.settle()
    assert not world.all("nodes")
    node.silent(False)
    world.settle()
    assert world.node()["metadata"]["uid"] == node.uid


def test_deleted_node_stays_with_on_deleted_stay(world: World) -> None:
    node = world.join(on_deleted="stay")
    world.call("DELETE", "/api/v1/nodes/n")
    world.settle()
    world.pass_time(20.0)
    assert not node.is_over and world.all("nodes") == [] and world.left == []


def test_leave_deletes_the_node_once(world: World) -> None:
    node = world.join()
    node.leave()
    node.leave()
    assert world.all("nodes") == [] and world.leases.uids == {} and world.left == []
    assert [method for method, _, _ in world.requests].count("DELETE") == 1
    world.settle()
    assert world.warnings == []


def test_leave_keep_changes_nothing(world: World) -> None:
    node = world.join()
    world.run("train")
    node.leave("keep")
    assert len(world.all("nodes")) == 1 and world.status("train")["phase"] == "Running"
    assert world.leases.uids == {}


def test_shutdown_fails_pods_and_rejects_new_ones(world: World) -> None:
    node = world.join()
    world.run("train")
    node.shut_down()
    world.settle()
    assert world.condition()["message"] == "node is shutting down"
    status = world.status("train")
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "Terminated",
        "Pod was terminated in response to imminent node shutdown.",
    )
    world.run("late")
    assert (world.status("late")["reason"], world.status("late")["message"]) == (
        "NodeShutdown",
        "Pod was rejected: Pod was rejected as the node is shutting down.",
    )
    node.leave("shutdown")
    assert world.leases.uids == {} and len(world.all("nodes")) == 1


def test_shutdown_is_in_the_status_when_the_node_has_left(world: World) -> None:
    node = world.join()
    world.run("train")
    node.leave("shutdown")
    ready = world.condition()
    assert (ready["status"], ready["message"]) == ("False", "node is shutting down")
    world.settle()
    assert world.status("train")["reason"] == "Terminated"


@pytest.mark.parametrize("how", ["delete", "keep", "shutdown"])
def test_node_that_has_left_does_nothing_when_it_leaves_again(world: World, how: Any) -> None:
    node = world.join()
    node.leave("keep")
    world.requests.clear()
    node.leave(how)
    world.settle()
    assert world.requests == [] and len(world.all("nodes")) == 1


def test_node_without_permission_for_its_node_leaves_with_one_warning(world: World) -> None:
    node = world.join()
    everything = [Permission("", "pods", verb) for verb in ("create", "get", "list", "delete")]
    world.permissions.allowed = frozenset(everything)
    node.not_ready("broken")
    world.settle()
    assert node.is_over and world.left == ["n"]
    (warning,) = world.warnings
    assert warning.startswith("node n has left: nodes is forbidden") and "nodes/status" in warning


def test_nodes_can_share_one_settings_object(world: World) -> None:
    settings = Settings(node_allocatable={"pods": 110})
    nodes = [world.join(f"n-{number}", settings=settings) for number in range(5)]
    assert len(world.all("nodes")) == 5 and len(world.leases.uids) == 5
    for number, node in enumerate(nodes):
        world.run(f"p-{number}", node.name)
    assert {each["status"]["phase"] for each in world.all("pods")} == {"Running"}


def test_status_update_is_retried_after_a_kubelet_restart(world: World) -> None:
    kubelet = InMemoryKubelet(None, {GPU: 4}, clock=world.clock)
    node = world.join(kubelet=kubelet)
    kubelet.stop()
    node.not_ready("broken")
    world.settle()
    assert not node_patches(world)
    kubelet.start()
    world.pass_time(1.0)
    assert node_patches(world)
    assert world.warnings == []


def test_warning_about_a_long_fault_is_truncated(world: World) -> None:
    node = world.join()
    node.faults.update({"devicemanager.io/faults": "plugin-gone=" + "x" * 100_000})
    world.settle()
    (line,) = world.warnings
    assert "fault plugin-gone=xxx" in line and len(line) < 500


def test_capacity_that_another_client_changes_is_restored(world: World) -> None:
    world.join()
    found = world.node()
    for name, amount in (("capacity", "7"), ("allocatable", "0")):
        found["status"][name][GPU] = amount
    world.call("PUT", "/api/v1/nodes/n/status", found)
    world.settle()
    assert world.node()["status"]["capacity"][GPU] == "7"
    world.pass_time(10)
    status = world.node()["status"]
    assert status["capacity"][GPU] == status["allocatable"][GPU] == "4"
    before = len(world.requests)
    world.pass_time(30)
    assert not [path for _, path, _ in world.requests[before:] if path.endswith("/status")]
