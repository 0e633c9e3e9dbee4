"""Annotations of pods that define what their containers do, and what they use."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra http")

from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.core.usage import Amount, Usage
from devicemanager.observe.metrics.kubelet import resource_text
from devicemanager.observe.web import answers
from tests.cluster.world import World

REQUESTS = {"requests": {"cpu": "500m", "memory": "1Gi"}}
SPEC = {"containers": [{"name": "main", "image": "i:1", "resources": REQUESTS}]}
CONTAINER = '{container="main",namespace="default",pod="web"}'


@pytest.fixture
def world() -> World:
    return World()


def annotate(world: World, name: str, **values: str) -> None:
    """Annotate a pod, as ``kubectl annotate`` does."""
    notes = {f"devicemanager.io/{key.replace('_', '-')}": text for key, text in values.items()}
    path = f"/api/v1/namespaces/default/pods/{name}"
    world.call("PATCH", path, {"metadata": {"annotations": notes}}, patch="merge")
    world.settle()


def metrics(world: World) -> dict[str, float]:
    lines = resource_text(world.nodes["n"].kubelet).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_metrics_have_the_usage_of_running_containers(world: World) -> None:
    world.join(behaviour=ContainerBehaviour(usage=Usage(memory=Amount.parse("50%"))))
    world.run("web", annotations={"devicemanager.io/cpu-usage": "80%"}, **SPEC)
    world.pass_time(10.0)
    found = metrics(world)
    assert found[f"container_cpu_usage_seconds_total{CONTAINER}"] == pytest.approx(4.0)
    assert found[f"container_memory_working_set_bytes{CONTAINER}"] == 1 << 29
    assert found['pod_cpu_usage_seconds_total{namespace="default",pod="web"}'] == pytest.approx(4.0)
    assert found["node_memory_working_set_bytes"] == (1 << 29) + (1 << 20)

    annotate(world, "web", cpu_usage="2")
    world.pass_time(10.0)
    found, before = metrics(world), found
    assert found[f"container_cpu_usage_seconds_total{CONTAINER}"] == pytest.approx(24.0)
    assert found["node_cpu_usage_seconds_total"] > before["node_cpu_usage_seconds_total"]

    world.delete("web")
    world.pass_time(10.0)
    after = metrics(world)
    assert not [name for name in after if "web" in name]
    # The counter of a node does not decrease when its pods end.
    assert after["node_cpu_usage_seconds_total"] > found["node_cpu_usage_seconds_total"]


def test_summary_has_the_usage_of_the_node_and_its_pods(world: World) -> None:
    node = world.join()
    notes = {"devicemanager.io/cpu-usage": "500m", "devicemanager.io/memory-usage": "100Mi"}
    uid = world.run("web", annotations=notes, **SPEC)
    world.pass_time(10.0)
    summary = json.loads(answers.summary(node.kubelet))
    (pod,) = summary["pods"]
    assert pod["podRef"] == {"name": "web", "namespace": "default", "uid": uid}
    assert pod["cpu"]["usageNanoCores"] == 500_000_000
    assert pod["containers"][0]["memory"]["workingSetBytes"] == 100 << 20
    assert summary["node"]["cpu"]["usageNanoCores"] == 501_000_000


def test_metrics_path_is_announced_with_the_port(world: World) -> None:
    world.join(port=10250)
    path = world.node()["metadata"]["annotations"]["metrics.k8s.io/resource-metrics-path"]
    assert path == "/nodes/n/metrics/resource"
    world.join("quiet")
    assert (
        "metrics.k8s.io/resource-metrics-path" not in world.node("quiet")["metadata"]["annotations"]
    )


def test_changed_annotations_apply_to_a_running_pod(world: World) -> None:
    node = world.join()
    world.run("web", restartPolicy="Never", **SPEC)
    annotate(world, "web", never_ready="true")
    (status,) = world.status("web")["containerStatuses"]
    assert not status["ready"]
    annotate(world, "web", cpu_usage="lots")
    assert world.warnings == [
        "pod default/web: annotation devicemanager.io/cpu-usage: invalid usage 'lots': use a form "
        "such as 250m, 1Gi, or 80% of the request"
    ]
    annotate(world, "web", run_for="5s", exit_code="4", log="ready\nsteady")
    assert node.kubelet.telemetry.pod("default", "web").log == "ready\nsteady"
    world.pass_time(6.0)
    (status,) = world.status("web")["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 4


def test_image_that_cannot_be_pulled_is_tried_again(world: World) -> None:
    world.join()
    world.run("web", annotations={"devicemanager.io/image-pull-fails": "true"}, **SPEC)

    def waiting() -> str:
        (status,) = world.status("web")["containerStatuses"]
        reason: str = status["state"].get("waiting", {}).get("reason", "")
        return reason

    assert (world.status("web")["phase"], waiting()) == ("Pending", "ErrImagePull")
    assert [each["message"] for each in world.events("Failed")] == [
        'Error: Failed to pull image "i:1"'
    ]
    world.pass_time(11.0)
    assert waiting() == "ImagePullBackOff"
    annotate(world, "web", image_pull_fails="false")
    world.pass_time(11.0)
    assert (world.status("web")["phase"], waiting()) == ("Running", "")
