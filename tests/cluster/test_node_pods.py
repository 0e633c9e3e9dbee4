"""Pods on a node in the cluster, from binding to deletion, without sockets and in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.cluster.client.errors import ClusterError
from devicemanager.cluster.facts import Facts, Range
from devicemanager.core.errors import RequestError
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings
from tests.cluster.world import GPU, World


@pytest.fixture
def world() -> World:
    return World()


def held(world: World, name: str = "n") -> int:
    """Devices that somebody holds on a node."""
    kubelet = world.nodes[name].kubelet
    kubelet.manager.self_check()
    return sum(each.pod is not None for each in kubelet.inventory())


def main(world: World, name: str) -> dict[str, Any]:
    (status,) = world.status(name)["containerStatuses"]
    return status


def test_a_pod_runs_with_one_patch(world: World) -> None:
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
    assert world.patches("train") == 1, "nothing has changed"
    assert held(world) == 1 and world.warnings == []


def test_a_pod_that_does_not_fit_is_rejected(world: World) -> None:
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
    assert held(world) == 1


def test_a_pod_that_cannot_be_aligned_is_rejected(world: World) -> None:
    settings = Settings(topology_policy="single-numa-node", numa=NumaTopology.of([0, 1]))
    world.join(gpus="4@0,1", settings=settings)
    world.run("wide", gpus=3)
    status = world.status("wide")
    assert (status["reason"], status["message"]) == (
        "TopologyAffinityError",
        "Pod was rejected: Resources cannot be allocated with Topology locality",
    )


def test_the_node_check_comes_after_the_devices(world: World) -> None:
    world.join(settings=Settings(node_allocatable={"pods": 1}))
    world.run("one")
    world.run("two")
    assert world.status("two")["reason"] == "OutOfpods"
    assert held(world) == 1, "the second has given its device back"


# -- deletion ------------------------------------------------------------------------------


def test_a_deleted_pod_ends_and_is_removed(world: World) -> None:
    world.join(all_events=True)
    uid = world.run("train", terminationGracePeriodSeconds=5)
    asked = len(world.asked)
    world.delete("train")
    assert world.all("pods") == [] and held(world) == 0
    methods = [
        (method, path.rpartition("/")[2], body)
        for method, path, body in world.asked[asked:]
        if "events" not in path
    ]
    (patch, delete) = methods
    status = patch[2]["status"]
    assert patch[:2] == ("PATCH", "status") and patch[2]["metadata"] == {"uid": uid}
    assert status["phase"] == "Failed", "a terminal phase before the end"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
    assert delete == ("DELETE", "train", body)
    reasons = {each["reason"]: each["message"] for each in world.events()}
    assert reasons["Pulled"] == 'Container image "i:1" already present on machine'
    assert reasons["Killing"] == "Stopping container main"
    assert {"Created", "Started", "NodeReady"} <= reasons.keys()


def test_a_finalizer_keeps_the_object_but_not_the_devices(world: World) -> None:
    world.join()
    world.run("train")
    path = "/api/v1/namespaces/default/pods/train"
    finalizers = {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}
    world.ask("PATCH", path, finalizers, patch="merge")
    world.delete("train")
    assert world.status("train")["phase"] == "Failed" and held(world) == 0
    assert world.nodes["n"].kubelet.pods() == {}
    asked = len(world.asked)
    world.pass_time(60.0)
    assert len(world.asked) == asked, "deleted once, and then it waits"
    world.ask("PATCH", path, {"metadata": {"finalizers": None}}, patch="merge")
    world.settle()
    assert world.all("pods") == []


def test_a_pod_deleted_by_force_frees_its_devices(world: World) -> None:
    world.join()
    world.run("train")
    world.delete("train", grace=0)
    assert held(world) == 0 and world.nodes["n"].pods.pods() == ()


def test_a_pod_that_is_missing_from_a_list_is_gone(world: World) -> None:
    node = world.join()
    world.run("train")
    node.pods.listed([])
    world.settle()
    assert held(world) == 0


def test_containers_may_end_well_when_they_are_told_to(world: World) -> None:
    world.join(facts=Facts(exit_code_on_delete=0))
    world.run("train")
    world.delete("train")
    phases = [body["status"]["phase"] for m, _, body in world.asked if m == "PATCH"]
    assert phases[-1] == "Succeeded"


# -- what containers do ----------------------------------------------------------------------


def test_a_job_ends_after_a_while(world: World) -> None:
    world.join()
    world.run("work", owner="Job", restartPolicy="Never")
    world.pass_time(0.5)
    assert world.status("work")["phase"] == "Running"
    world.pass_time(1.0)
    status = world.status("work")
    assert status["phase"] == "Succeeded" and held(world) == 0
    ready = {each["type"]: each.get("reason") for each in status["conditions"]}
    assert ready["Ready"] == "PodCompleted" == ready["Initialized"]
    assert main(world, "work")["state"]["terminated"]["reason"] == "Completed"


def test_a_deleted_pod_of_a_job_is_no_completion(world: World) -> None:
    world.join()
    world.run("work", owner="Job", restartPolicy="Never")
    world.delete("work")
    phases = [body["status"]["phase"] for m, _, body in world.asked if m == "PATCH"]
    assert phases[-1] == "Failed"


def test_what_a_pod_says_of_itself(world: World) -> None:
    world.join()
    said = {"run-for": "30s", "exit-code": "3", "start-delay": "2s"}
    notes = {f"devicemanager.io/{name}": text for name, text in said.items()}
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


def test_a_pod_that_never_gets_ready(world: World) -> None:
    world.join()
    world.run("train", annotations={"devicemanager.io/never-ready": "true"})
    assert world.status("train")["phase"] == "Running" and not main(world, "train")["ready"]
    ready = {each["type"]: each["status"] for each in world.status("train")["conditions"]}
    assert ready["Ready"] == "False"


def test_wrong_annotations_are_said_and_left_out(world: World) -> None:
    world.join()
    notes = {"devicemanager.io/run-for": "soon", "devicemanager.io/exit-code": "-1"}
    world.run("train", annotations=notes)
    assert world.status("train")["phase"] == "Running"
    assert world.warnings == [
        "pod default/train: annotation devicemanager.io/run-for: 'soon' is not a time such as "
        "30s, 1m30s or 500ms",
        "pod default/train: annotation devicemanager.io/exit-code: '-1' is not a number from 0 "
        "to 255",
    ]


def test_a_container_crashes_and_is_started_again_later_and_later(world: World) -> None:
    node = world.join()
    uid = world.run("train")
    node.pods.exit(uid, "main", 1)
    world.settle()
    assert main(world, "train")["restartCount"] == 1
    node.pods.exit(uid, "main", 1)
    world.settle()
    waiting = main(world, "train")["state"]["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff" and "back-off 10s" in waiting["message"]
    assert world.status("train")["phase"] == "Running" and held(world) == 1
    world.pass_time(10.0)
    assert main(world, "train")["restartCount"] == 2
    with pytest.raises(RequestError, match="has no pod with the UID 'x'"):
        node.pods.exit("x", "main", 1)


def test_a_container_that_runs_for_a_while_does_so_again_and_again(world: World) -> None:
    world.join(facts=Facts(run_for=Range(5.0), exit_code=1))
    world.run("train")
    world.pass_time(5.0)
    assert main(world, "train")["restartCount"] == 1
    world.pass_time(5.0)
    assert "waiting" in main(world, "train")["state"]
    world.pass_time(10.0)
    assert main(world, "train")["restartCount"] == 2
    assert "running" in main(world, "train")["state"]


def test_init_containers_and_sidecars(world: World) -> None:
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
    world.nodes["n"].pods.exit(uid, "main", 0)
    world.settle()
    assert world.status("train")["phase"] == "Succeeded"
    assert "terminated" in world.status("train")["initContainerStatuses"][1]["state"]


# -- health ----------------------------------------------------------------------------------


def test_the_health_of_held_devices_is_told(world: World) -> None:
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


def test_a_server_that_does_not_keep_it_is_told_once() -> None:
    world = World(keeps_health=False)
    node = world.join()
    world.run("one")
    world.run("two")
    node.kubelet.fail_device(GPU, "gpu-0")
    world.settle()
    world.pass_time(60.0)
    assert [each for each in world.warnings if "allocatedResourcesStatus" in each] == [
        "the API server does not keep allocatedResourcesStatus: the health of devices is not "
        "shown in pods (feature gate ResourceHealthStatus)"
    ]
    assert world.patches("two") == 1 and world.patches("one") == 1


# -- somebody else ----------------------------------------------------------------------------


def test_a_status_that_somebody_changed_is_put_back(world: World) -> None:
    world.join()
    world.run("train")
    path = "/api/v1/namespaces/default/pods/train/status"
    world.ask("PATCH", path, {"status": {"phase": "Pending"}}, patch="merge")
    world.settle()
    assert world.status("train")["phase"] == "Pending", "not at once: nobody gets hot"
    world.pass_time(11.0)
    assert world.status("train")["phase"] == "Running" and world.patches("train") == 2


def test_conditions_of_others_stay_and_gates_are_followed(world: World) -> None:
    world.join()
    world.run("train", readinessGates=[{"conditionType": "example.com/gate"}])

    def ready() -> dict[str, Any]:
        return {each["type"]: each["status"] for each in world.status("train")["conditions"]}

    assert ready()["Ready"] == "False" and ready()["ContainersReady"] == "True"
    path = "/api/v1/namespaces/default/pods/train/status"
    gate = {"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}}
    world.ask("PATCH", path, gate, patch="strategic")
    world.settle()
    world.pass_time(11.0)
    assert ready()["Ready"] == "True" and ready()["example.com/gate"] == "True"


def test_a_pod_that_went_away_in_the_same_moment(world: World) -> None:
    node = world.join()
    uid = world.run("train")
    node.pods.exit(uid, "main", 1)
    # Its next status meets nobody.
    world.ask("DELETE", "/api/v1/namespaces/default/pods/train", {"gracePeriodSeconds": 0})
    world.lane.run()
    world.settle()
    assert held(world) == 0 and world.warnings == []


def test_a_deletion_is_not_taken_for_our_own_words(world: World) -> None:
    """Words that change nothing are answered with the version that the deletion made."""
    node = world.join()
    world.run("train")
    (pod,) = node.pods.pods()
    pod.needs_reconcile = True
    world.ask("DELETE", "/api/v1/namespaces/default/pods/train", {})
    node.pods.look()
    world.lane.run()
    assert pod.version == world.pod("train")["metadata"]["resourceVersion"]
    world.settle()
    assert world.all("pods") == [] and held(world) == 0


def test_what_a_kubelet_that_restarts_cannot_do_is_done_later(world: World) -> None:
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


def test_what_goes_wrong_with_one_pod_costs_no_other(world: World) -> None:
    node = world.join()
    node.pods.do(lambda: 1 / 0)
    world.run("train")
    assert world.status("train")["phase"] == "Running"
    assert world.warnings == ["node n: unexpected ZeroDivisionError: division by zero (a bug)"]


def test_a_field_that_we_do_not_know_is_the_api_servers_business(world: World) -> None:
    world.join()
    world.run("train", newInKubernetes99={"yes": True})
    assert world.status("train")["phase"] == "Running"


def test_a_pod_that_cannot_be_read_stays_as_it_is(world: World) -> None:
    world.join()
    world.run("train", restartPolicy="Sometimes")
    assert world.status("train")["phase"] == "Pending"
    (warning,) = world.warnings
    assert warning.startswith("node n: pod default/train: spec.restartPolicy: Unsupported value")


# -- another process ---------------------------------------------------------------------------


def again(world: World, kubelet: InMemoryKubelet | None = None) -> None:
    """The node's process is another one: nothing is known but what the API says."""
    world.nodes.pop("n").pods.close()
    world.join(kubelet=kubelet)


def test_pods_go_on_under_the_next_process(world: World) -> None:
    world.join()
    world.run("one", gpus=2)
    uid = world.run("two")
    world.delete("one")
    world.nodes["n"].pods.exit(uid, "main", 1)
    world.settle()
    before = world.status("two")
    world.clock.advance(100.0)
    again(world)
    after = world.status("two")
    assert after["containerStatuses"] == before["containerStatuses"]
    assert after["startTime"] == before["startTime"]
    assert world.nodes["n"].kubelet.devices(uid) == {"main": {GPU: ["gpu-2"]}}
    assert held(world) == 1 and world.warnings == []


def test_without_their_devices_in_the_api_pods_are_admitted_by_age() -> None:
    world = World(keeps_health=False)
    world.join(gpus=2)
    world.run("b")
    world.run("a")
    world.run("c")
    again(world)
    assert held(world) == 2
    assert [world.status(name)["phase"] for name in "bac"] == ["Running", "Running", "Failed"]


def test_the_oldest_of_a_list_comes_first(world: World) -> None:
    node = world.join(gpus=1)
    pods = []
    for name, age in (("young", "2026-01-02"), ("old", "2026-01-01")):
        uid = world.run(name, node="elsewhere")
        pod = world.pod(name)
        pod["metadata"]["creationTimestamp"] = f"{age}T00:00:00Z"
        pods.append(pod)
        assert uid
    node.pods.listed(pods)
    world.settle()
    assert world.status("old")["phase"] == "Running"
    assert world.status("young")["phase"] == "Failed"


def test_what_was_rejected_and_what_has_ended_stays_so(world: World) -> None:
    world.join(gpus=1)
    world.run("done", owner="Job", restartPolicy="Never")
    world.pass_time(2.0)
    world.run("runs")
    world.run("rejected")
    patches = [world.patches(name) for name in ("done", "rejected")]
    again(world, InMemoryKubelet(None, {GPU: 1}, clock=world.clock))
    world.pass_time(30.0)
    assert [world.patches(name) for name in ("done", "rejected")] == patches
    assert held(world) == 1
    world.delete("rejected")
    assert {each["metadata"]["name"] for each in world.all("pods")} == {"done", "runs"}


def test_pods_that_were_deleted_meanwhile_end(world: World) -> None:
    world.join()
    world.run("runs")
    node = world.nodes.pop("n")
    node.pods.close()
    world.run("bound")
    world.delete("runs")
    world.delete("bound")
    assert len(world.all("pods")) == 2
    world.join()
    assert world.all("pods") == [] and held(world) == 0
    phases = [body["status"]["phase"] for m, p, body in world.asked if "pods" in p and m == "PATCH"]
    assert phases[-2:] == ["Failed", "Failed"]


def test_time_that_passed_meanwhile_counts(world: World) -> None:
    facts = Facts(run_for=Range(10.0))
    world.join(facts=facts)
    world.run("train", restartPolicy="Never")
    world.nodes.pop("n").pods.close()
    world.clock.advance(8.0)
    world.join(facts=facts)
    world.pass_time(3.0)
    assert world.status("train")["phase"] == "Succeeded"


def test_a_listed_pod_that_cannot_be_taken_costs_no_other():
    world = World()
    node = world.join()
    world.run("good")
    good = world.pod("good")
    odd = {"metadata": {**good["metadata"], "name": "a", "uid": "odd", "namespace": None}}
    odd["spec"] = {"readinessGates": ["text"], "nodeName": "n"}
    late = {**good, "metadata": {**good["metadata"], "name": "late", "uid": "late"}, "status": {}}
    node.pods.listed([odd, good, late])
    world.lane.run()
    assert any(path.endswith("/pods/late/status") for _, path, _ in world.asked)
    assert any("pod None/a cannot be taken" in line for line in world.warnings)


def test_an_answer_that_is_no_node_joins_none(monkeypatch):
    world = World()
    monkeypatch.setattr(world, "ask", lambda *_, **__: {"metadata": {"name": "n"}})
    with pytest.raises(ClusterError, match=r"answer is no Node: metadata\.uid is no text"):
        world.join()
