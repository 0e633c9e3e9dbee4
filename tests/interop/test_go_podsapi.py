"""The published client of the Pods API in Go, which reads pods with ``v1.Pod.Unmarshal``."""

from __future__ import annotations

import json
import subprocess

import pytest

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing import pod_manifest
from devicemanager.testing.fakes import FakePlugin
from podresources.pods_api import PodsClient
from tests.helpers import devices

GPU = "vendor.com/gpu"


@pytest.fixture
def kubelet():
    settings = Settings(kubelet_version="1.37", node_allocatable={"cpu": 8000})
    with MockKubelet(settings=settings) as started:
        plugin = FakePlugin(GPU)
        plugin.register(started.manager.plugins)
        plugin.send_list(devices("a", "b"))
        yield started


@pytest.fixture
def query(podsapi, kubelet):
    def run(*words):
        done = subprocess.run(
            [podsapi, "-socket", kubelet.pods_api_socket, *words],
            capture_output=True,
            text=True,
            timeout=40,
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def watch(spawn, podsapi, kubelet):
    """Function that returns the next event of a watch."""
    process = spawn(podsapi, "-socket", kubelet.pods_api_socket, "watch")
    return lambda kind: process.wait_for(kind)["pod"]


def manifest(uid, resources):
    made = pod_manifest(uid, resources, uid=uid)
    made["spec"]["initContainers"] = [
        {"name": "side", "image": "i", "restartPolicy": "Always"},
        {"name": "init", "image": "i"},
    ]
    return made


def without_empty(value):
    """Remove what Go's JSON omits or adds: empty values, and times that are unknown."""
    if isinstance(value, dict):
        cleaned = {key: without_empty(each) for key, each in value.items()}
        return {key: each for key, each in cleaned.items() if each not in (None, "", [], {}, 0)}
    return [without_empty(each) for each in value] if isinstance(value, list) else value


def test_go_reads_every_field_of_a_pod(kubelet, query):
    """What Go reads equals what was described, as JSON."""
    kubelet.admit(manifest("train", {GPU: 2, "cpu": "250m"}))
    kubelet.admit(manifest("large", {"cpu": "9001"}))
    kubelet.admit(pod_manifest("ended", {}, uid="ended"))
    kubelet.delete("train", 5)
    with PodsClient(kubelet.pods_api_socket) as client:
        ours = client.list_pods()
    found = query("list")
    assert [pod["metadata"]["uid"] for pod in found] == ["ended", "large", "train"]
    assert without_empty(found) == without_empty(list(ours))
    (main,) = found[2]["status"]["containerStatuses"]
    assert main["allocatedResourcesStatus"][0]["resources"][1] == {
        "resourceID": "b",
        "health": "Healthy",
    }
    assert found[2]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "250m", GPU: "2"}
    assert found[2]["metadata"]["deletionGracePeriodSeconds"] == 5
    assert found[1]["status"]["reason"] == "OutOfcpu"


def test_go_gets_a_pod_and_the_kubelets_errors(kubelet, query):
    kubelet.admit(manifest("train", {}))
    assert query("get", "train")["metadata"]["name"] == "train"
    assert query("get", "other") == {
        "error": {"code": "NotFound", "message": "pod with UID other not found"}
    }


def test_go_watches(kubelet, watch):
    kubelet.admit(manifest("before", {}))
    assert watch("INITIAL_SYNC_COMPLETE") is None
    kubelet.admit(manifest("train", {GPU: 1}))
    assert watch("MODIFIED")["metadata"]["uid"] == "train"
    kubelet.terminate("before")
    gone = watch("DELETED")
    assert gone["metadata"] == {"name": "before", "namespace": "default", "uid": "before"}
    assert not gone["spec"]["containers"]


def test_go_gets_the_error_of_a_dropped_watch(kubelet, podsapi):
    command = [podsapi, "-socket", kubelet.pods_api_socket, "watch"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert json.loads(process.stdout.readline())["event"] == "INITIAL_SYNC_COMPLETE"
        kubelet.faults.set("end-pod-watches")
        assert json.loads(process.stdout.readline()) == {
            "error": {"code": "ResourceExhausted", "message": "watch client channel closed"}
        }
        assert process.wait(20) == 1
