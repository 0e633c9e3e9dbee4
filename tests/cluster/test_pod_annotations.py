"""Annotations of pods that define what their containers do, and what they use."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra http")

from prometheus_client.parser import text_string_to_metric_families

from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.core.usage import Amount, Usage
from devicemanager.kubelet.settings import Settings
from devicemanager.observe.metrics.kubelet import gpu_text, resource_text
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
        "such as 250m, 1Gi or 80% (of the request)"
    ]
    annotate(world, "web", run_for="5s", exit_code="4", log="ready\nsteady")
    assert node.kubelet.telemetry.pod("default", "web").responses.log == "ready\nsteady"
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


INIT = {**SPEC, "initContainers": [{"name": "setup", "image": "i:2"}]}


def init_state(world: World) -> tuple[str, str, int]:
    """Return the phase of the pod, and the state and the restarts of its init container."""
    status = world.status("web")
    (found,) = status["initContainerStatuses"]
    ((state, detail),) = found["state"].items()
    return status["phase"], detail.get("reason", state), found["restartCount"]


def test_failing_init_container_restarts_with_back_off(world: World) -> None:
    world.join()
    world.run("web", annotations={"devicemanager.io/init-exit-code": "3"}, **INIT)
    assert init_state(world) == ("Pending", "CrashLoopBackOff", 1)
    status = world.status("web")
    assert status["initContainerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
    world.pass_time(11.0)
    assert init_state(world) == ("Pending", "CrashLoopBackOff", 2)
    annotate(world, "web", init_exit_code="0")
    world.pass_time(18.0)
    assert init_state(world) == ("Pending", "CrashLoopBackOff", 2)
    world.pass_time(2.0)
    assert init_state(world) == ("Running", "Completed", 3)


def test_failing_init_container_fails_a_pod_that_never_restarts(world: World) -> None:
    node = world.join()
    notes = {"devicemanager.io/init-exit-code": "3:1 | 0:0"}
    world.run("web", annotations=notes, restartPolicy="Never", **INIT)
    assert init_state(world) == ("Failed", "Error", 0)
    assert all(device.pod is None for device in node.kubelet.inventory())


def test_init_container_fails_again_after_another_process_took_over(world: World) -> None:
    node = world.join()
    world.run("web", annotations={"devicemanager.io/init-exit-code": "3"}, **INIT)
    node.leave("keep")
    world.settle()
    world.join()
    # A restarted kubelet has forgotten its back-off, so it restarts the container at once.
    assert init_state(world)[:2] == ("Pending", "CrashLoopBackOff")
    assert init_state(world)[2] > 1
    annotate(world, "web", init_exit_code="0")
    world.pass_time(11.0)
    assert init_state(world)[:2] == ("Running", "Completed")


def gpus(world: World) -> dict[tuple[str, str], float]:
    """Return the values of the GPU metrics by name and pod."""
    families = text_string_to_metric_families(gpu_text(world.nodes["n"].kubelet).decode())
    samples = [sample for family in families for sample in family.samples]
    assert all(each.labels["Hostname"] == "n" for each in samples)
    return {
        (each.name[12:], each.labels["pod"] or each.labels["UUID"]): each.value for each in samples
    }


def test_gpu_metrics_have_names_and_labels_of_dcgm_exporter(world: World) -> None:
    labels = {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40000"}
    world.join(gpus=2, labels=labels, settings=Settings(node_name="n"))
    notes = {"devicemanager.io/gpu-usage": "75%", "devicemanager.io/gpu-memory-usage": "10%"}
    world.run("web", annotations=notes)
    text = gpu_text(world.nodes["n"].kubelet).decode()
    assert (
        'DCGM_FI_DEV_GPU_UTIL{Hostname="n",UUID="gpu-0",container="main",device="nvidia0",gpu="0",'
        'modelName="A100",namespace="default",pod="web"} 75.0'
    ) in text
    assert gpus(world) == {
        ("GPU_UTIL", "web"): 75.0,
        ("FB_USED", "web"): 4000.0,
        ("FB_FREE", "web"): 36000.0,
        ("GPU_UTIL", "gpu-1"): 0.0,
        ("FB_USED", "gpu-1"): 0.0,
        ("FB_FREE", "gpu-1"): 40000.0,
    }
    annotate(world, "web", gpu_usage="1", gpu_memory_usage="1Ti")
    (warning,) = world.warnings
    assert warning.endswith(
        "gpu-usage: invalid usage '1': use a percentage up to 100%, such as 80%"
    )
    found = gpus(world)
    assert (found["GPU_UTIL", "web"], found["FB_FREE", "web"]) == (0.0, 0.0)
    world.delete("web")
    assert ("GPU_UTIL", "gpu-0") in gpus(world)
    world.nodes["n"].kubelet.stop()
    assert gpu_text(world.nodes["n"].kubelet) == b""
