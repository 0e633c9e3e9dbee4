"""Static pods of a node and their mirror pods."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.client.errors import NotFound
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from tests.cluster.world import GPU, World

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def kubelet(world: World) -> InMemoryKubelet:
    return InMemoryKubelet(None, {GPU: 2}, clock=world.clock)


def manifest(name: str = "static") -> dict[str, Any]:
    limits = {GPU: 1, "cpu": "500m"}
    container = {"name": "main", "image": "i:1", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]},
    }


def names(world: World) -> list[str]:
    return [each["metadata"]["name"] for each in world.all("pods")]


def test_static_pod_gets_a_mirror_pod(world: World, kubelet: InMemoryKubelet) -> None:
    node = world.join(kubelet=kubelet, address="127.1.0.1")
    uid = kubelet.admit(manifest()).uid
    world.work_queue.run()  # the watch has not reported the mirror pod yet
    found = world.pod("static-n")
    sent = [(method, path) for method, path, _ in world.requests if path.startswith(PODS)]
    assert sent == [("POST", PODS), ("PATCH", f"{PODS}/static-n/status")]
    assert found["metadata"]["annotations"] == {
        "kubernetes.io/config.source": "file",
        "kubernetes.io/config.seen": "2027-01-15T08:00:00Z",
        "kubernetes.io/config.hash": uid,
        "kubernetes.io/config.mirror": uid,
    }
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node.uid, "controller": True}
    ]
    (container,) = found["spec"]["containers"]
    assert container["resources"]["limits"] == {GPU: "1", "cpu": "500m"}
    status = found["status"]
    assert status["phase"] == "Running"
    (main,) = status["containerStatuses"]
    assert main["allocatedResourcesStatus"][0]["resources"][0]["resourceID"] == "gpu-0"
    assert found["metadata"]["uid"] != uid and kubelet.devices(uid)
    kubelet.exit_container(uid, "main", 1)
    world.settle()
    assert world.status("static-n")["containerStatuses"][0]["restartCount"] == 1


def test_static_pod_from_before_the_join_gets_a_mirror_pod(
    world: World, kubelet: InMemoryKubelet
) -> None:
    kubelet.admit(manifest())
    world.join(kubelet=kubelet)
    assert world.status("static-n")["phase"] == "Running"


def test_mirror_pod_is_deleted_with_its_static_pod(world: World, kubelet: InMemoryKubelet) -> None:
    world.join(kubelet=kubelet)
    uid = kubelet.admit(manifest()).uid
    world.settle()
    kubelet.terminate(uid)
    world.settle()
    assert names(world) == [] and world.warnings == []


@pytest.mark.parametrize("grace", [None, 0])
def test_deleted_mirror_pod_is_recreated(
    world: World, kubelet: InMemoryKubelet, grace: int | None
) -> None:
    world.join(kubelet=kubelet)
    uid = kubelet.admit(manifest()).uid
    world.settle()
    first = world.pod("static-n")["metadata"]["uid"]
    world.delete("static-n", grace)
    assert world.pod("static-n")["metadata"]["uid"] != first
    assert world.status("static-n")["phase"] == "Running"
    assert kubelet.devices(uid) == {"main": {GPU: ["gpu-0"]}}, "the static pod keeps its device"


def test_existing_mirror_pod_is_adopted_and_an_orphan_deleted(
    world: World, kubelet: InMemoryKubelet
) -> None:
    world.join(kubelet=kubelet)
    kubelet.admit(manifest())
    kubelet.admit(manifest("other"))
    world.settle()
    uid = world.pod("static-n")["metadata"]["uid"]
    world.nodes.pop("n")._pods.close()
    new = InMemoryKubelet(None, {GPU: 2}, clock=world.clock)
    new.admit(manifest())
    world.join(kubelet=new)
    assert names(world) == ["static-n"]
    assert world.pod("static-n")["metadata"]["uid"] == uid
    assert world.patches("other-n") == 1


def test_name_of_another_pod_causes_a_warning(world: World, kubelet: InMemoryKubelet) -> None:
    world.run("static-n", node="elsewhere")
    world.join(kubelet=kubelet)
    kubelet.admit(manifest())
    world.settle()
    assert world.warnings == [
        "node n: pod default/static-n exists and is not a mirror pod: the static pod has no "
        "mirror pod"
    ]


def test_mirror_pod_of_another_static_pod_is_replaced(
    world: World, kubelet: InMemoryKubelet
) -> None:
    mirror = {"kubernetes.io/config.mirror": "another"}
    old = world.run("static-n", node="elsewhere", annotations=mirror)
    world.join(kubelet=kubelet)
    kubelet.admit(manifest())
    world.settle()
    assert world.pod("static-n")["metadata"]["uid"] != old
    assert world.status("static-n")["phase"] == "Running"


def test_missing_namespace_causes_a_warning(
    world: World, kubelet: InMemoryKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.join(kubelet=kubelet)
    send = world.request

    def request(method: str, path: str, *args: Any, **more: Any) -> Any:
        if (method, path) == ("POST", PODS):
            raise NotFound(404, "NotFound", 'namespaces "default" not found', method, path)
        return send(method, path, *args, **more)

    monkeypatch.setattr(world, "request", request)
    kubelet.admit(manifest())
    world.settle()
    assert world.warnings == [
        'node n: cannot create the mirror pod of static-n: namespaces "default" not found'
    ]


def test_mirror_pod_of_a_rejected_static_pod_is_failed(
    world: World, kubelet: InMemoryKubelet
) -> None:
    world.join(kubelet=kubelet)
    world.run("train", gpus=2)
    kubelet.admit(manifest())
    world.settle()
    status = world.status("static-n")
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
