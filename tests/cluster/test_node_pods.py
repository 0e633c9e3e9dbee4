"""Pods of one node, from binding to deletion, without sockets and in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.apiserver import registry
from devicemanager.apiserver.resources import HAVE_GENERATION
from devicemanager.client.errors import ClusterError
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.durations import Range
from devicemanager.core.errors import RequestError
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings
from tests.cluster.world import GPU, World


@pytest.fixture
def world() -> World:
    return World()


def allocated(world: World, name: str = "n") -> int:
    """Return the number of allocated devices on a node."""
    kubelet = world.nodes[name].kubelet
    kubelet.manager.self_check()
    return sum(each.pod is not None for each in kubelet.inventory())


def main(world: World, name: str) -> dict[str, Any]:
    (status,) = world.status(name)["containerStatuses"]
    return status


def test_pod_runs_with_one_patch(world: World) -> None:
    world.join(address="127.1.0.1")
    world.run("train")
    status = world.status("train")
    assert status["phase"] == "Running" and world.patches("train") == 1
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    assert main(world, "train")["allocatedResourcesStatus"] == [
        {"name": GPU, "resources": [{"resourceID": "gpu-0", "health": "Healthy"}]}
    ]
    assert main(world, "train")["image"] == "i:1"
    assert status["hostIP"] == "127.1.0.1" and status["podIP"].startswith("198.")
    world.pass_time(30.0)
    assert world.patches("train") == 1, "no change"
    assert allocated(world) == 1 and world.warnings == []


def test_pod_without_free_device_is_rejected(world: World) -> None:
    world.join(gpus=1)
    world.run("first")
    world.run("second")
    status = world.status("second")
    message = (
        "Allocate failed due to requested number of devices unavailable for vendor.com/gpu. "
        "Requested: 1, Available: 0, which is unexpected"
    )
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert status["message"] == f"Pod was rejected: {message}"
    assert not status.get("conditions") and not status.get("containerStatuses")
    (event,) = world.events("UnexpectedAdmissionError")
    assert (event["type"], event["message"]) == ("Warning", message)
    assert event["involvedObject"]["name"] == "second"
    assert event["source"] == {"component": "kubelet", "host": "n"}
    world.delete("second")
    assert [each["metadata"]["name"] for each in world.all("pods")] == ["first"]
    assert allocated(world) == 1


def test_pod_that_cannot_be_aligned_is_rejected(world: World) -> None:
    settings = Settings(topology_policy="single-numa-node", numa=NumaTopology.of([0, 1]))
    world.join(gpus="4@0,1", settings=settings)
    world.run("wide", gpus=3)
    status = world.status("wide")
    assert (status["reason"], status["message"]) == (
        "TopologyAffinityError",
        "Pod was rejected: Resources cannot be allocated with Topology locality",
    )


def test_node_check_comes_after_device_allocation(world: World) -> None:
    world.join(settings=Settings(node_allocatable={"pods": 1}))
    world.run("one")
    world.run("two")
    assert world.status("two")["reason"] == "OutOfpods"
    assert allocated(world) == 1, "the device of the rejected pod is free"


# -- deletion ------------------------------------------------------------------------------


def test_deleted_pod_is_stopped_then_removed(world: World) -> None:
    world.join(all_events=True)
    uid = world.run("train", terminationGracePeriodSeconds=5)
    before = len(world.requests)
    world.delete("train")
    assert world.all("pods") == [] and allocated(world) == 0
    methods = [
        (method, path.rpartition("/")[2], body)
        for method, path, body in world.requests[before:]
        if "events" not in path
    ]
    (patch, delete) = methods
    status = patch[2]["status"]
    assert patch[:2] == ("PATCH", "status") and patch[2]["metadata"] == {"uid": uid}
    assert status["phase"] == "Failed", "a terminal phase comes before the deletion"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
    assert delete == ("DELETE", "train", body)
    reasons = {each["reason"]: each["message"] for each in world.events()}
    assert reasons["Pulled"] == 'Container image "i:1" already present on machine'
    assert reasons["Killing"] == "Stopping container main"
    assert {"Created", "Started", "NodeReady"} <= reasons.keys()


def test_finalizer_keeps_the_object_but_not_the_devices(world: World) -> None:
    world.join()
    world.run("train")
    path = "/api/v1/namespaces/default/pods/train"
    finalizers = {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}
    world.call("PATCH", path, finalizers, patch="merge")
    world.delete("train")
    assert world.status("train")["phase"] == "Failed" and allocated(world) == 0
    assert world.nodes["n"].kubelet.pods() == {}
    before = len(world.requests)
    world.pass_time(60.0)
    assert len(world.requests) == before, "deleted once"
    world.call("PATCH", path, {"metadata": {"finalizers": None}}, patch="merge")
    world.settle()
    assert world.all("pods") == []


def test_last_status_of_a_forced_deletion_is_written_later(world: World) -> None:
    """Written at once, kube-apiserver could delete the next pod with this name."""
    world.join()
    world.run("train")
    path = "/api/v1/namespaces/default/pods/train"
    finalizers = {"metadata": {"finalizers": ["example.com/keep"]}}
    world.call("PATCH", path, finalizers, patch="merge")
    before = world.patches("train")
    world.delete("train", 0)
    assert world.patches("train") == before
    world.pass_time(1.0)
    assert world.patches("train") == before + 1
    assert "terminated" in world.status("train")["containerStatuses"][0]["state"]
    assert allocated(world) == 0


def test_forced_deletion_frees_devices(world: World) -> None:
    world.join()
    world.run("train")
    world.delete("train", grace=0)
    assert allocated(world) == 0 and world.nodes["n"]._pods.pods() == ()


def test_pod_missing_from_a_list_is_removed(world: World) -> None:
    node = world.join()
    world.run("train")
    node.on_pod_list([])
    world.settle()
    assert allocated(world) == 0


def test_exit_code_on_delete_0_makes_pods_succeed(world: World) -> None:
    world.join(behaviour=ContainerBehaviour(exit_code_on_delete=0))
    world.run("train")
    world.delete("train")
    phases = [body["status"]["phase"] for m, _, body in world.requests if m == "PATCH"]
    assert phases[-1] == "Succeeded"


# -- what containers do ----------------------------------------------------------------------


def test_pod_of_a_job_succeeds_after_its_duration(world: World) -> None:
    world.join()
    world.run("work", owner="Job", restartPolicy="Never")
    world.pass_time(0.5)
    assert world.status("work")["phase"] == "Running"
    world.pass_time(1.0)
    status = world.status("work")
    assert status["phase"] == "Succeeded" and allocated(world) == 0
    ready = {each["type"]: each.get("reason") for each in status["conditions"]}
    assert ready["Ready"] == "PodCompleted" == ready["Initialized"]
    assert main(world, "work")["state"]["terminated"]["reason"] == "Completed"


def test_deleted_pod_of_a_job_fails(world: World) -> None:
    world.join()
    world.run("work", owner="Job", restartPolicy="Never")
    world.delete("work")
    phases = [body["status"]["phase"] for m, _, body in world.requests if m == "PATCH"]
    assert phases[-1] == "Failed"


def test_annotations_control_delay_duration_and_exit_code(world: World) -> None:
    world.join()
    values = {"run-for": "30s", "exit-code": "3", "start-delay": "2s"}
    notes = {f"devicemanager.io/{name}": text for name, text in values.items()}
    world.run("train", annotations=notes, restartPolicy="Never")
    status = world.status("train")
    assert status["phase"] == "Pending"
    assert main(world, "train")["state"] == {"waiting": {"reason": "ContainerCreating"}}
    world.pass_time(2.0)
    assert world.status("train")["phase"] == "Running" and world.patches("train") == 2
    world.pass_time(29.0)
    assert world.status("train")["phase"] == "Running"
    world.pass_time(2.0)
    assert world.status("train")["phase"] == "Failed"
    assert main(world, "train")["state"]["terminated"]["exitCode"] == 3


def test_never_ready_pod_runs_but_is_not_ready(world: World) -> None:
    world.join()
    world.run("train", annotations={"devicemanager.io/never-ready": "true"})
    assert world.status("train")["phase"] == "Running" and not main(world, "train")["ready"]
    ready = {each["type"]: each["status"] for each in world.status("train")["conditions"]}
    assert ready["Ready"] == "False"


def test_invalid_annotations_warn_and_are_ignored(world: World) -> None:
    world.join()
    notes = {"devicemanager.io/run-for": "soon", "devicemanager.io/exit-code": "-1"}
    world.run("train", annotations=notes)
    assert world.status("train")["phase"] == "Running"
    assert world.warnings == [
        "pod default/train: annotation devicemanager.io/run-for: invalid duration 'soon': use a "
        "form such as 30s, 1m30s or 500ms",
        "pod default/train: annotation devicemanager.io/exit-code: invalid exit code '-1': use a "
        "number from 0 to 255",
    ]


def test_crashed_container_restarts_with_backoff(world: World) -> None:
    node = world.join()
    uid = world.run("train")
    node.exit(uid, "main", 1)
    world.settle()
    assert main(world, "train")["restartCount"] == 1
    node.exit(uid, "main", 1)
    world.settle()
    waiting = main(world, "train")["state"]["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff" and "back-off 10s" in waiting["message"]
    assert world.status("train")["phase"] == "Running" and allocated(world) == 1
    world.pass_time(10.0)
    assert main(world, "train")["restartCount"] == 2
    with pytest.raises(RequestError, match=r"^unknown pod UID 'x' on node"):
        node.exit("x", "main", 1)


def test_run_for_applies_to_each_restart(world: World) -> None:
    world.join(behaviour=ContainerBehaviour(run_for=Range(5.0), exit_code=1))
    world.run("train")
    world.pass_time(5.0)
    assert main(world, "train")["restartCount"] == 1
    world.pass_time(5.0)
    assert "waiting" in main(world, "train")["state"]
    world.pass_time(10.0)
    assert main(world, "train")["restartCount"] == 2
    assert "running" in main(world, "train")["state"]


def test_timer_of_an_earlier_run_does_not_end_the_container(world: World) -> None:
    node = world.join(behaviour=ContainerBehaviour(run_for=Range(10.0), exit_code=1))
    uid = world.run("train")
    world.pass_time(5.0)
    node.exit(uid, "main", 1)
    world.pass_time(6.0)
    assert main(world, "train")["restartCount"] == 1
    assert "running" in main(world, "train")["state"], "the first timer was for 10 s"
    world.pass_time(5.0)
    assert "waiting" in main(world, "train")["state"], "the second timer was for 15 s"


def test_init_containers_end_and_sidecars_run(world: World) -> None:
    world.join()
    init = [
        {"name": "setup", "image": "i"},
        {"name": "side", "image": "i", "restartPolicy": "Always"},
    ]
    world.run("train", initContainers=init, restartPolicy="Never")
    setup, side = world.status("train")["initContainerStatuses"]
    assert setup["state"]["terminated"]["reason"] == "Completed" and setup["ready"]
    assert "running" in side["state"] and side["started"]
    uid = world.pod("train")["metadata"]["uid"]
    world.nodes["n"].exit(uid, "main", 0)
    world.settle()
    assert world.status("train")["phase"] == "Succeeded"
    assert "terminated" in world.status("train")["initContainerStatuses"][1]["state"]


# -- health ----------------------------------------------------------------------------------


def test_health_of_allocated_devices_is_in_the_pod_status(world: World) -> None:
    node = world.join()
    world.run("train")
    node.kubelet.fail_device(GPU, "gpu-0")
    node.kubelet.fail_device(GPU, "gpu-3")
    world.settle()
    (resource,) = main(world, "train")["allocatedResourcesStatus"]
    assert resource["resources"] == [{"resourceID": "gpu-0", "health": "Unhealthy"}]
    assert world.patches("train") == 2
    assert node.kubelet.health_updates.empty()
    world.pass_time(11.0)
    assert world.node()["status"]["allocatable"][GPU] == "2"


def test_server_without_resource_health_causes_one_warning() -> None:
    world = World(stores_resource_health=False)
    node = world.join()
    world.run("one")
    world.run("two")
    node.kubelet.fail_device(GPU, "gpu-0")
    world.settle()
    world.pass_time(60.0)
    assert [each for each in world.warnings if "allocatedResourcesStatus" in each] == [
        "the API server does not store allocatedResourcesStatus: pods do not show the health of "
        "devices; enable the feature gate ResourceHealthStatus"
    ]
    assert world.patches("two") == 1 and world.patches("one") == 1


# -- other clients ----------------------------------------------------------------------------


def test_status_changed_by_another_client_is_written_again_later(world: World) -> None:
    world.join()
    world.run("train")
    path = "/api/v1/namespaces/default/pods/train/status"
    world.call("PATCH", path, {"status": {"phase": "Pending"}}, patch="merge")
    world.settle()
    assert world.status("train")["phase"] == "Pending", "not at once, or two writers would compete"
    world.pass_time(11.0)
    assert world.status("train")["phase"] == "Running" and world.patches("train") == 2


def test_foreign_conditions_stay_and_readiness_gates_count(world: World) -> None:
    world.join()
    world.run("train", readinessGates=[{"conditionType": "example.com/gate"}])

    def ready() -> dict[str, Any]:
        return {each["type"]: each["status"] for each in world.status("train")["conditions"]}

    assert ready()["Ready"] == "False" and ready()["ContainersReady"] == "True"
    path = "/api/v1/namespaces/default/pods/train/status"
    gate = {"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}}
    world.call("PATCH", path, gate, patch="strategic")
    world.settle()
    world.pass_time(11.0)
    assert ready()["Ready"] == "True" and ready()["example.com/gate"] == "True"


def test_status_write_for_a_deleted_pod_removes_it(world: World) -> None:
    node = world.join()
    uid = world.run("train")
    node.exit(uid, "main", 1)
    # Its next status is written after the deletion.
    world.call("DELETE", "/api/v1/namespaces/default/pods/train", {"gracePeriodSeconds": 0})
    world.work_queue.run()
    world.settle()
    assert allocated(world) == 0 and world.warnings == []


def fails_status_of(world: World, name: str, code: int, times: int | None = None) -> None:
    world.faults.fail(
        code,
        lambda request: request.subresource == "status" and request.name == name,
        times=times,
    )


def test_denied_write_of_a_pod_does_not_end_the_node(world: World) -> None:
    """NodeRestriction denies it if the pod's name returned on another node."""
    node = world.join()
    fails_status_of(world, "moved", 403)
    world.run("moved")
    world.run("other")
    assert not node.is_over and world.left == []
    assert world.status("other")["phase"] == "Running"
    (warning,) = world.warnings
    assert warning == "node n: cannot write the status of pod default/moved: injected fault"


def test_conflict_of_a_deletion_is_retried(world: World) -> None:
    world.join()
    world.run("train")
    world.call("DELETE", "/api/v1/namespaces/default/pods/train", {})
    world.faults.fail(409, lambda request: request.verb == "delete", times=2)
    world.settle()
    assert len(world.all("pods")) == 1
    world.pass_time(2.0)
    assert world.all("pods") == [] and allocated(world) == 0


def test_conflict_is_retried_and_does_not_lose_the_pod(world: World) -> None:
    world.join()
    fails_status_of(world, "train", 409, times=2)
    world.run("train")
    assert world.status("train")["phase"] == "Pending"
    world.pass_time(2.0)
    assert world.status("train")["phase"] == "Running" and allocated(world) == 1


def test_pod_with_the_name_of_an_earlier_one_keeps_its_status(world: World) -> None:
    """The API server answers 422 to a status with the UID of the earlier pod."""
    node = world.join()
    uid = world.run("train")
    node.exit(uid, "main", 1)
    pods = "/api/v1/namespaces/default/pods"
    world.call("DELETE", f"{pods}/train", {"gracePeriodSeconds": 0})
    world.run("train", settle=False)
    world.work_queue.run()
    assert world.warnings == []
    world.settle()
    assert world.status("train")["phase"] == "Running" and allocated(world) == 1


def test_deletion_is_not_mistaken_for_our_own_write(world: World) -> None:
    """The response to a patch without effect has the resource version of the deletion."""
    node = world.join()
    world.run("train")
    (pod,) = node._pods.pods()
    pod.needs_reconcile = True
    world.call("DELETE", "/api/v1/namespaces/default/pods/train", {})
    node._pods.reconcile()
    world.work_queue.run()
    assert pod.version == world.pod("train")["metadata"]["resourceVersion"]
    world.settle()
    assert world.all("pods") == [] and allocated(world) == 0


def test_decisions_are_retried_after_a_kubelet_restart(world: World) -> None:
    node = world.join()
    world.run("runs")
    node.kubelet.stop()
    world.run("comes")
    world.delete("runs")
    assert len(world.all("pods")) == 2
    node.kubelet.start()
    world.pass_time(2.0)
    assert [each["metadata"]["name"] for each in world.all("pods")] == ["comes"]
    assert world.status("comes")["phase"] == "Running" and world.warnings == []


def test_bug_in_the_sync_loop_does_not_affect_other_pods(world: World) -> None:
    node = world.join()
    node.do(lambda: 1 / 0)
    world.run("train")
    assert world.status("train")["phase"] == "Running"
    assert world.warnings == ["node n: unexpected ZeroDivisionError: division by zero (a bug)"]


def test_unknown_pod_fields_are_accepted(world: World) -> None:
    world.join()
    world.run("train", newInKubernetes99={"yes": True})
    assert world.status("train")["phase"] == "Running"


def test_invalid_pod_is_ignored_with_a_warning(world: World) -> None:
    world.join()
    world.run("train", restartPolicy="Sometimes")
    assert world.status("train")["phase"] == "Pending"
    (warning,) = world.warnings
    assert warning.startswith("node n: pod default/train: spec.restartPolicy: Unsupported value")


# -- another process ---------------------------------------------------------------------------


def restart_process(world: World, kubelet: InMemoryKubelet | None = None) -> None:
    """Let a new process take the node over; it only knows what the API server has."""
    world.nodes.pop("n")._pods.close()
    world.join(kubelet=kubelet)


def test_next_process_restores_pods_and_devices(world: World) -> None:
    world.join()
    world.run("one", gpus=2)
    uid = world.run("two")
    world.delete("one")
    world.nodes["n"].exit(uid, "main", 1)
    world.settle()
    before = world.status("two")
    world.clock.advance(100.0)
    restart_process(world)
    after = world.status("two")
    assert after["containerStatuses"] == before["containerStatuses"]
    assert after["startTime"] == before["startTime"]
    assert world.nodes["n"].kubelet.devices(uid) == {"main": {GPU: ["gpu-2"]}}
    assert allocated(world) == 1 and world.warnings == []


def test_pods_without_device_status_are_admitted_by_age() -> None:
    world = World(stores_resource_health=False)
    world.join(gpus=2)
    world.run("b")
    world.run("a")
    world.run("c")
    restart_process(world)
    assert allocated(world) == 2
    assert [world.status(name)["phase"] for name in "bac"] == ["Running", "Running", "Failed"]


def test_oldest_pod_of_a_list_is_admitted_first(world: World) -> None:
    node = world.join(gpus=1)
    pods = []
    for name, age in (("young", "2026-01-02"), ("old", "2026-01-01")):
        uid = world.run(name, node="elsewhere")
        pod = world.pod(name)
        pod["metadata"]["creationTimestamp"] = f"{age}T00:00:00Z"
        pods.append(pod)
        assert uid
    node.on_pod_list(pods)
    world.settle()
    assert world.status("old")["phase"] == "Running"
    assert world.status("young")["phase"] == "Failed"


def test_next_process_does_not_change_ended_pods(world: World) -> None:
    world.join(gpus=1)
    world.run("done", owner="Job", restartPolicy="Never")
    world.pass_time(2.0)
    world.run("runs")
    world.run("rejected")
    patches = [world.patches(name) for name in ("done", "rejected")]
    restart_process(world, InMemoryKubelet(None, {GPU: 1}, clock=world.clock))
    world.pass_time(30.0)
    assert [world.patches(name) for name in ("done", "rejected")] == patches
    assert allocated(world) == 1
    world.delete("rejected")
    assert {each["metadata"]["name"] for each in world.all("pods")} == {"done", "runs"}


def test_next_process_ends_pods_that_were_deleted_meanwhile(world: World) -> None:
    world.join()
    world.run("runs")
    node = world.nodes.pop("n")
    node._pods.close()
    world.run("bound")
    world.delete("runs")
    world.delete("bound")
    assert len(world.all("pods")) == 2
    world.join()
    assert world.all("pods") == [] and allocated(world) == 0
    phases = [
        body["status"]["phase"] for m, p, body in world.requests if "pods" in p and m == "PATCH"
    ]
    assert phases[-2:] == ["Failed", "Failed"]


def test_run_for_includes_the_time_between_processes(world: World) -> None:
    behaviour = ContainerBehaviour(run_for=Range(10.0))
    world.join(behaviour=behaviour)
    world.run("train", restartPolicy="Never")
    world.nodes.pop("n")._pods.close()
    world.clock.advance(8.0)
    world.join(behaviour=behaviour)
    world.pass_time(3.0)
    assert world.status("train")["phase"] == "Succeeded"


def test_container_that_should_have_exited_between_processes_exits_at_once(world: World) -> None:
    behaviour = ContainerBehaviour(run_for=Range(10.0))
    world.join(behaviour=behaviour)
    world.run("train", restartPolicy="Never")
    world.nodes.pop("n")._pods.close()
    world.clock.advance(60.0)
    world.join(behaviour=behaviour)
    world.pass_time(0.1)
    assert world.status("train")["phase"] == "Succeeded"


def test_malformed_pod_in_a_list_does_not_affect_others():
    world = World()
    node = world.join()
    world.run("good")
    good = world.pod("good")
    odd = {"metadata": {**good["metadata"], "name": "a", "uid": "odd", "namespace": None}}
    odd["spec"] = {"readinessGates": ["text"], "nodeName": "n"}
    late = {**good, "metadata": {**good["metadata"], "name": "late", "uid": "late"}, "status": {}}
    node.on_pod_list([odd, good, late])
    world.work_queue.run()
    assert any(path.endswith("/pods/late/status") for _, path, _ in world.requests)
    assert any("cannot process pod None/a" in line for line in world.warnings)


def test_join_rejects_a_response_that_is_not_a_node(monkeypatch):
    world = World()
    monkeypatch.setattr(world, "call", lambda *_, **__: {"metadata": {"name": "n"}})
    with pytest.raises(
        ClusterError, match=r"response is not a valid Node object: metadata\.uid is not a string"
    ):
        world.join()


def test_status_has_observed_generation_and_resources(world: World) -> None:
    world.join()
    world.run("a", gpus=2)
    status = world.status("a")
    assert status["observedGeneration"] == 1
    assert {each["observedGeneration"] for each in status["conditions"]} == {1}
    (container,) = status["containerStatuses"]
    assert container["resources"] == {"limits": {GPU: "2"}, "requests": {GPU: "2"}}
    assert container["allocatedResources"] == {GPU: "2"}
    world.run("b", gpus=9)
    assert world.status("b")["phase"] == "Failed" and world.status("b")["observedGeneration"] == 1


def test_a_new_generation_is_reported_at_once(world: World) -> None:
    world.join()
    world.run("a")
    path = "/api/v1/namespaces/default/pods/a"
    body = {"spec": {"activeDeadlineSeconds": 100}}
    assert world.call("PATCH", path, body, patch="merge")["metadata"]["generation"] == 2
    world.settle()
    assert world.status("a")["observedGeneration"] == 2


@pytest.mark.parametrize(("version", "has"), [("1.32", False), ("1.33", True)])
def test_old_kubelets_report_neither(world: World, version: str, has: bool) -> None:
    world.join(settings=Settings(kubelet_version=version))
    world.run("a")
    status = world.status("a")
    assert ("resources" in status["containerStatuses"][0]) is has
    assert "observedGeneration" not in status


def test_old_api_servers_get_neither(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """API servers up to 1.32 set no ``metadata.generation``."""
    monkeypatch.setattr(registry, "HAVE_GENERATION", HAVE_GENERATION - {"Pod"})
    world.join()
    world.run("a")
    status = world.status("a")
    assert "resources" not in status["containerStatuses"][0]
    assert "observedGeneration" not in status
