"""Responses of the kubelet's endpoints."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from kubernetes.client import ApiClient
from prometheus_client.parser import text_string_to_metric_families

from devicemanager import EventKind, ManualClock, MockKubelet, Settings, StartError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.kubelet.pods.usage import ContainerStats, NodeStats, PodStats, Used
from devicemanager.kubelet.process import RegistrationServer
from devicemanager.objects.status.podstatus import pod_object
from devicemanager.observe.web import answers
from devicemanager.observe.web.health import checks_of
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest

FAILED = "device plugin registration gRPC server failed and no device plugins can register"


@pytest.fixture
def kubelet(tmp_path):
    """Return a function that makes a stopped kubelet of a version."""
    return lambda version: MockKubelet(tmp_path / "r", Settings(kubelet_version=version))


def device_plugin(kubelet):
    """Return the failure of the check ``device-plugin``; None if the version has no such check."""
    return {check.name: check.failure() for check in checks_of(kubelet)}.get("device-plugin")


@pytest.mark.parametrize(
    ("version", "before"),
    [
        ("1.31", None),
        ("1.32.0", FAILED),
        ("1.32.10", FAILED),
        ("1.32.11", ""),
        ("1.33.6", FAILED),
        ("1.33.7", ""),
        ("1.34.2", FAILED),
        ("1.34.3", ""),
        ("1.35.0", ""),
    ],
)
def test_h5_h6_device_plugin_check_before_first_start(kubelet, version, before):
    assert device_plugin(kubelet(version)) == before


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.31", None),
        ("1.32.10", FAILED),
        ("1.32.11", f"device plugin registration error: {FAILED}: no room"),
    ],
)
def test_h5_h6_device_plugin_check_after_registration_server_failure(
    make_mock_kubelet, monkeypatch, version, text
):
    def fails(_):
        raise StartError("no room")

    kubelet = make_mock_kubelet(Settings(kubelet_version=version))
    well = None if text is None else ""
    assert device_plugin(kubelet) == well
    with monkeypatch.context() as patch:
        patch.setattr(RegistrationServer, "start", fails)
        with pytest.raises(StartError):
            kubelet.faults.set("recreate-kubelet-socket")
    assert device_plugin(kubelet) == text
    kubelet.faults.set("recreate-kubelet-socket")
    assert device_plugin(kubelet) == well
    kubelet.stop()
    assert device_plugin(kubelet) == well


def test_metrics_are_prometheus_text(get, mock_kubelet):
    for path in ("/metrics", "/metrics/resource"):
        answer = get(path)
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert list(text_string_to_metric_families(answer.text))
    mock_kubelet.stop()
    assert 'kubelet_node_name{node="mock"} 1.0' in get("/metrics").text


def test_configz_contains_configured_fields(get, tmp_path):
    assert get("/configz").json() == {
        "kubeletconfig": {"topologyManagerPolicy": "none", "topologyManagerScope": "container"}
    }
    settings = Settings(
        topology_policy="restricted",
        topology_scope="pod",
        topology_options={"max-allowable-numa-nodes": "9"},
        feature_gates={"ResourceHealthStatus": False},
    )
    configuration = json.loads(answers.configuration(MockKubelet(tmp_path / "r", settings)))
    assert configuration["kubeletconfig"] == {
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"},
        "featureGates": {"ResourceHealthStatus": False},
    }


def test_summary_of_a_node_without_usage_has_only_its_name(mock_kubelet):
    assert json.loads(answers.summary(mock_kubelet)) == {
        "node": {"nodeName": "mock"},
        "pods": [],
    }


def test_summary_has_the_usage_of_node_pods_and_containers():
    def usage(now):
        assert now == 1000.0
        train = Pod(PodUid("u"), "train", "ml", (Container(ContainerName("main"), {}),))
        main = ContainerStats("main", 900.0, Used(1.5, 0.25, 100))
        pods = [
            PodStats(train, 800.0, Used(2.0, 0.5, 200), [main]),
            PodStats(train, None, Used(0.0, 0.0, 0), []),
        ]
        return NodeStats(Used(3.0, 1.0, 300), pods)

    kubelet = SimpleNamespace(
        clock=ManualClock(1000.0),
        settings=Settings(node_name="n"),
        telemetry=SimpleNamespace(usage=usage),
    )

    def used(nano_seconds, nano_cores, memory):
        at = "1970-01-01T00:16:40Z"
        return {
            "cpu": {
                "time": at,
                "usageNanoCores": nano_cores,
                "usageCoreNanoSeconds": nano_seconds,
            },
            "memory": {"time": at, "usageBytes": memory, "workingSetBytes": memory},
        }

    ref = {"name": "train", "namespace": "ml", "uid": "u"}
    assert json.loads(answers.summary(kubelet)) == {
        "node": {"nodeName": "n", **used(3_000_000_000, 1_000_000_000, 300)},
        "pods": [
            {
                "podRef": ref,
                "startTime": "1970-01-01T00:13:20Z",
                "containers": [
                    {
                        "name": "main",
                        "startTime": "1970-01-01T00:15:00Z",
                        **used(1_500_000_000, 250_000_000, 100),
                    }
                ],
                **used(2_000_000_000, 500_000_000, 200),
            },
            {"podRef": ref, "startTime": None, "containers": [], **used(0, 0, 0)},
        ],
    }


# -- /pods ------------------------------------------------------------------------------

GPU = "vendor.com/gpu"


def pods(get):
    """Return the pods by name, parsed by the official client."""
    answer = get("/pods")
    assert answer.headers["content-type"] == "application/json"
    listed = ApiClient().deserialize(answer.text, "V1PodList", "application/json")
    assert (listed.kind, listed.api_version) == ("PodList", "v1")
    return {pod.metadata.name: pod for pod in listed.items}


def test_pods_endpoint_has_statuses(get, mock_kubelet, simulated_plugin):
    assert pods(get) == {}
    plugin = simulated_plugin(GPU, 2)
    train = pod_manifest("train", {GPU: 1}, uid="train")
    train["spec"]["initContainers"] = [{"name": "init", "image": "i", "resources": {}}]
    train["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1500m"
    mock_kubelet.wait_for_resource(GPU, 2)
    mock_kubelet.admit(train)
    mock_kubelet.admit(pod_manifest("greedy", {GPU: 2}))
    plugin.set_health("gpu-mock-0", "Unhealthy")
    mock_kubelet.wait_for_event(EventKind.DEVICE_HEALTH)

    found = pods(get)
    pod = found["train"]
    (main,) = pod.status.container_statuses
    (init,) = pod.status.init_container_statuses
    assert pod.spec.node_name == "mock"
    assert pod.spec.containers[0].resources.limits == {GPU: "1", "cpu": "1500m"}
    assert [each.name for each in pod.spec.init_containers] == ["init"]
    assert pod.status.phase == "Running"
    assert {each.type: each.status for each in pod.status.conditions} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    assert main.ready and main.state.running.started_at.timestamp() == 1000
    assert init.state.terminated.reason == "Completed"
    (resource,) = main.allocated_resources_status
    (device,) = resource.resources
    reported = (resource.name, device.resource_id, device.health)
    assert reported == (GPU, "gpu-mock-0", "Unhealthy")
    status = found["greedy"].status
    assert (status.phase, status.reason) == ("Failed", "UnexpectedAdmissionError")
    assert "Requested: 2, Available: 1" in status.message

    mock_kubelet.delete("train", 30)
    assert pods(get)["train"].metadata.deletion_grace_period_seconds == 30
    mock_kubelet.stop()
    (stopped,) = pods(get)["train"].status.container_statuses
    assert (stopped.ready, stopped.allocated_resources_status) == (True, None)
    mock_kubelet.start()


@pytest.mark.parametrize(("version", "reported"), [("1.35", False), ("1.36", True)])
def test_h1_pod_status_has_device_health_by_version(make_mock_kubelet, version, reported):
    kubelet = make_mock_kubelet(Settings(kubelet_version=version))
    with SimulatedPlugin(
        SimulationSettings(resource_name=GPU, number_devices=1), kubelet.plugin_dir
    ):
        kubelet.wait_for_resource(GPU, 1)
        kubelet.admit(pod_manifest("train", {GPU: 1}))
        (pod,) = kubelet.telemetry.pods()
    assert bool(pod.status.containers[0].resources) is reported


def test_pod_object_contains_spec():
    described = pod_object(
        Pod(
            PodUid("u"),
            "n",
            "ns",
            (Container(ContainerName("c"), {}, {ResourceName("cpu"): 2000}, claims=("a",)),),
            (Container(ContainerName("i"), restartable=True),),
            resource_claims={"a": "claim", "b": None},
        ),
        {"phase": "Pending"},
        node="mock",
    )
    assert described["metadata"] == {"name": "n", "namespace": "ns", "uid": "u"}
    assert described["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "2"},
        "claims": [{"name": "a"}],
    }
    assert described["spec"]["initContainers"][0]["restartPolicy"] == "Always"
    assert described["spec"]["resourceClaims"] == [
        {"name": "a", "resourceClaimName": "claim"},
        {"name": "b"},
    ]
