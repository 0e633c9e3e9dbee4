"""Changes of running pods: in-place resize and ephemeral containers, in virtual time."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from devicemanager.client.errors import ApiError
from devicemanager.client.protocol import JsonObject
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings
from tests.cluster.world import World


def settings(version: str = "1.37") -> Settings:
    """A node with 4 CPUs and 4 GiB."""
    return Settings(kubelet_version=version, node_allocatable={"cpu": "4", "memory": "4Gi"})


@pytest.fixture
def world() -> World:
    world = World()
    world.join(settings=settings())
    return world


def run(
    world: World,
    name: str,
    cpu: str = "1",
    *,
    policy: str | None = None,
    annotations: dict[str, str] | None = None,
) -> None:
    container: JsonObject = {
        "name": "main",
        "image": "i:1",
        "resources": {"limits": {"cpu": "80", "memory": "1Gi"}, "requests": {"cpu": cpu}},
    }
    if policy is not None:
        container["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": policy}]
    world.run(name, containers=[container], annotations=annotations)


def resize(world: World, name: str, settle: bool = True, **requests: str) -> JsonObject:
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
    path = f"/api/v1/namespaces/default/pods/{name}/resize"
    found = world.call("PATCH", path, body, patch="strategic")
    if settle:
        world.settle()
    return found


def main(world: World, name: str) -> dict[str, Any]:
    status: dict[str, Any] = world.status(name)["containerStatuses"][0]
    return status


def conditions(world: World, name: str) -> dict[str, dict[str, Any]]:
    found = {each["type"]: each for each in world.status(name)["conditions"]}
    return {kind: each for kind, each in found.items() if kind.startswith("PodResize")}


def reasons(world: World) -> list[str]:
    return [each["reason"] for each in world.events() if each["reason"].startswith("Resize")]


def test_resize_that_fits_is_done_at_once(world: World) -> None:
    run(world, "a")
    assert main(world, "a")["allocatedResources"] == {"cpu": "1", "memory": "1Gi"}
    assert resize(world, "a", cpu="3")["metadata"]["generation"] == 2
    status = main(world, "a")
    assert status["allocatedResources"]["cpu"] == "3"
    assert status["resources"]["requests"]["cpu"] == "3"
    assert status["restartCount"] == 0 and conditions(world, "a") == {}
    assert world.status("a")["observedGeneration"] == 2
    assert reasons(world) == ["ResizeStarted", "ResizeCompleted"]
    started = next(each for each in world.events() if each["reason"] == "ResizeStarted")
    what, _, summary = started["message"].partition(": ")
    assert what == "Pod resize started"
    assert json.loads(summary)["generation"] == 2
    assert json.loads(summary)["containers"][0]["resources"]["requests"]["cpu"] == "3"


def test_resize_that_does_not_fit_waits_for_free_resources(world: World) -> None:
    run(world, "a", "2")
    run(world, "b", "1")
    resize(world, "b", cpu="3")
    pending = conditions(world, "b")["PodResizePending"]
    assert pending["status"] == "True" and pending["reason"] == "Deferred"
    assert pending["message"] == (
        "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    )
    assert pending["observedGeneration"] == 2
    assert main(world, "b")["allocatedResources"]["cpu"] == "1"
    world.delete("a")
    assert main(world, "b")["allocatedResources"]["cpu"] == "3" and conditions(world, "b") == {}
    assert reasons(world) == ["ResizeDeferred", "ResizeStarted", "ResizeCompleted"]


def test_withdrawn_resize_is_not_pending(world: World) -> None:
    run(world, "a", "2")
    run(world, "b", "1")
    resize(world, "b", cpu="3")
    assert conditions(world, "b")
    resize(world, "b", cpu="1")
    assert conditions(world, "b") == {}
    world.delete("a")
    assert main(world, "b")["allocatedResources"]["cpu"] == "1"


def test_smaller_pod_makes_room(world: World) -> None:
    run(world, "a", "2")
    run(world, "b", "1")
    resize(world, "b", cpu="3")
    resize(world, "a", cpu="1")
    assert main(world, "b")["allocatedResources"]["cpu"] == "3" and conditions(world, "b") == {}


def test_resize_policy_restarts_the_container(world: World) -> None:
    run(world, "a", policy="RestartContainer")
    resize(world, "a", cpu="2")
    status = main(world, "a")
    assert status["restartCount"] == 1 and "running" in status["state"]
    resize(world, "a", cpu="2", memory="512Mi")
    assert main(world, "a")["restartCount"] == 1, "only cpu restarts it"


def test_slow_resize_is_in_progress(world: World) -> None:
    run(world, "a", annotations={"devicemanager.io/resize-delay": "5s"})
    resize(world, "a", cpu="2")
    progress = conditions(world, "a")["PodResizeInProgress"]
    assert progress["status"] == "True" and progress["observedGeneration"] == 2
    assert "reason" not in progress
    assert main(world, "a")["allocatedResources"]["cpu"] == "2"
    assert main(world, "a")["resources"]["requests"]["cpu"] == "1"
    world.pass_time(6.0)
    assert conditions(world, "a") == {}
    assert main(world, "a")["resources"]["requests"]["cpu"] == "2"


def test_resize_above_the_node_is_infeasible_before_1_36() -> None:
    world = World()
    world.join(settings=settings("1.35"))
    run(world, "a")
    resize(world, "a", cpu="5")
    pending = conditions(world, "a")["PodResizePending"]
    assert pending["reason"] == "Infeasible"
    text = "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"
    assert pending["message"] == text
    assert reasons(world) == ["ResizeInfeasible"]


def test_old_kubelets_resize_nothing() -> None:
    world = World()
    world.join(settings=settings("1.32"))
    run(world, "a")
    with pytest.raises(ApiError, match="Pod running on node without support for resize"):
        resize(world, "a", cpu="2")


def test_next_process_keeps_the_allocation_and_the_pending_resize(world: World) -> None:
    run(world, "a", "2")
    run(world, "b", "1")
    resize(world, "b", cpu="3")
    world.nodes.pop("n").leave("keep")
    world.settle()
    world.join(settings=settings())
    assert main(world, "b")["allocatedResources"]["cpu"] == "1"
    assert conditions(world, "b")["PodResizePending"]["reason"] == "Deferred"
    world.delete("a")
    assert main(world, "b")["allocatedResources"]["cpu"] == "3" and conditions(world, "b") == {}


def test_ended_pod_has_no_resize_conditions(world: World) -> None:
    run(world, "a", "2")
    run(world, "b", "1")
    resize(world, "b", cpu="3")
    uid = world.pod("b")["metadata"]["uid"]
    world.nodes["n"].evict(uid)
    world.settle()
    assert world.status("b")["phase"] == "Failed" and conditions(world, "b") == {}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cpu": "1", "vendor.com/gpu": "1"}, "only cpu and memory resources are mutable"),
        ({"cpu": "81"}, "must be less than or equal to cpu limit of 80"),
        ({"cpu": None}, "Pod QOS Class may not change"),
        ({"cpu": "80"}, "Pod QOS Class may not change"),
        ({"cpu": "65"}, "node didn't have enough allocatable resources: cpu"),
    ],
)
def test_invalid_resizes_are_rejected(world: World, change: dict[str, Any], text: str) -> None:
    run(world, "a")
    with pytest.raises(ApiError, match=text):
        resize(world, "a", **change)


def test_node_declares_its_features(world: World) -> None:
    assert world.node()["status"]["declaredFeatures"] == [
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ]
    world.join("old", settings=settings("1.35"))
    assert "declaredFeatures" not in world.node("old")["status"]


# -- ephemeral containers ----------------------------------------------------------------


def debug(world: World, name: str, *containers: str) -> None:
    path = f"/api/v1/namespaces/default/pods/{name}/ephemeralcontainers"
    added = [
        {"name": each, "image": "busybox", "targetContainerName": "main"} for each in containers
    ]
    world.call("PATCH", path, {"spec": {"ephemeralContainers": added}}, patch="strategic")
    world.settle()


def test_ephemeral_container_runs(world: World) -> None:
    run(world, "a")
    debug(world, "a", "shell")
    (status,) = world.status("a")["ephemeralContainerStatuses"]
    assert status["name"] == "shell" and "running" in status["state"]
    assert status["image"] == "busybox" and status["ready"] is False and "started" not in status
    assert status["containerID"].startswith("containerd://")
    assert world.status("a")["phase"] == "Running" and main(world, "a")["restartCount"] == 0


def test_ephemeral_container_runs_if_the_server_sets_no_generation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As API servers up to 1.32."""
    monkeypatch.setattr("devicemanager.apiserver.registry.HAVE_GENERATION", frozenset())
    run(world, "a")
    debug(world, "a", "shell")
    (status,) = world.status("a")["ephemeralContainerStatuses"]
    assert "running" in status["state"]
    debug(world, "a", "shell", "second")
    assert len(world.status("a")["ephemeralContainerStatuses"]) == 2


def test_ephemeral_container_is_not_restarted(world: World) -> None:
    run(world, "a")
    debug(world, "a", "shell")
    uid = world.pod("a")["metadata"]["uid"]
    world.nodes["n"].exit(uid, "shell", 1)
    world.settle()
    (status,) = world.status("a")["ephemeralContainerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 1 and status["restartCount"] == 0
    assert world.status("a")["phase"] == "Running"
    debug(world, "a", "second")
    first, second = world.status("a")["ephemeralContainerStatuses"]
    assert (first["name"], second["name"]) == ("second", "shell")
    assert "running" in first["state"] and "terminated" in second["state"]


def test_next_process_knows_the_ephemeral_container(world: World) -> None:
    run(world, "a")
    debug(world, "a", "shell")
    before = world.status("a")["ephemeralContainerStatuses"]
    world.nodes.pop("n").leave("keep")
    world.settle()
    world.join(settings=settings())
    debug(world, "a", "second")
    assert world.status("a")["ephemeralContainerStatuses"][1:] == before


def test_ephemeral_containers_cannot_be_removed_or_changed(world: World) -> None:
    run(world, "a")
    debug(world, "a", "shell")
    path = "/api/v1/namespaces/default/pods/a/ephemeralcontainers"
    for change, text in (([], "removed"), ([{"name": "shell", "image": "other"}], "changed")):
        body = {"spec": {"ephemeralContainers": change}}
        with pytest.raises(ApiError, match=f'"shell" may not be {text}'):
            world.call("PATCH", path, body, patch="merge")


# -- the kubelet alone -------------------------------------------------------------------


def test_exclusive_cpus_are_not_resized() -> None:
    cpus = CpuProvider(NumaTopology.up_to(0), {0: 0b1111})
    for version, text in (
        ("1.34", "alongside CPU Manager static policy"),
        ("1.37", 'alongside CPU Manager policy "static"'),
    ):
        kubelet = InMemoryKubelet(attrs.evolve(settings(version), providers=(cpus,)))
        pod = guaranteed("2")
        uid = kubelet.admit(pod).uid
        kubelet.update_pod(guaranteed("3"), 2)
        condition = kubelet.pod_status(uid).conditions[0]
        assert (condition.type, condition.reason) == ("PodResizePending", "Infeasible")
        assert condition.message == f"Resize is infeasible for Guaranteed Pods {text}"
        kubelet.update_pod(pod, 3)
        assert kubelet.pod_status(uid).conditions[0].type != "PodResizePending"


def guaranteed(cpu: str) -> JsonObject:
    resources = {"limits": {"cpu": cpu, "memory": "1Gi"}}
    container = {"name": "main", "image": "i:1", "resources": resources}
    metadata = {"name": "g", "uid": "g"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }
