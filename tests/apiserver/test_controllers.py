"""Scheduler, Job controller and node lifecycle of the fake API server, one step at a time."""

import pytest

from devicemanager.apiserver import FakeApiServer
from devicemanager.apiserver.controllers import (
    Controllers,
    NodeLifecycle,
    reconcile_jobs,
)
from devicemanager.apiserver.scheduler import schedule, tolerates
from tests.timing import wait_until

GPU = "vendor.com/gpu"
MINE = {"key": "mine", "value": "true", "effect": "NoSchedule"}


@pytest.fixture
def apiserver():
    """Not started: these tests need no HTTP."""
    return FakeApiServer()


def node(apiserver, name, gpus=2, *, taints=(), ready="True", labels=None, **sizes):
    apiserver.create("nodes", {"metadata": {"name": name, "labels": labels or {}}})

    def given(value):
        value["spec"]["taints"] = list(taints)
        return value

    def status(value):
        value["status"] = {
            "allocatable": {GPU: str(gpus), "pods": "110", **sizes},
            "conditions": [{"type": "Ready", "status": ready}],
        }
        return value

    apiserver.change("nodes", name, given)
    apiserver.change("nodes", name, status, subresource="status")


def pod(apiserver, name, gpus=1, **spec):
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    apiserver.create(
        "pods", {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    )


def placed(apiserver):
    return {
        each["metadata"]["name"]: each["spec"].get("nodeName") for each in apiserver.all("pods")
    }


def test_scheduler_spreads_pods_over_nodes_with_room(apiserver):
    node(apiserver, "a")
    node(apiserver, "b")
    for name in ("p", "q", "r", "s", "t"):
        pod(apiserver, name)
    schedule(apiserver)
    found = list(placed(apiserver).values())
    assert found.count("a") == found.count("b") == 2
    assert found.count(None) == 1
    (waiting,) = (each for each in apiserver.all("pods") if not each["spec"].get("nodeName"))
    assert waiting["status"]["conditions"][0]["reason"] == "Unschedulable"


def test_scheduler_counts_cpu_and_memory_of_nodes_that_have_them(apiserver):
    node(apiserver, "a", cpu="1500m", memory="2Gi")

    def sized(name, **requests):
        containers = [{"name": "c", "resources": {"requests": requests}}]
        apiserver.create("pods", {"metadata": {"name": name}, "spec": {"containers": containers}})

    for name in ("p", "q"):
        sized(name, cpu="1", memory="1Gi")
    sized("r", cpu="100m", memory="1025Mi")
    sized("s", cpu="500m", memory="1Gi")
    schedule(apiserver)
    assert placed(apiserver) == {"p": "a", "q": None, "r": None, "s": "a"}
    node(apiserver, "b")
    schedule(apiserver)
    assert placed(apiserver) == {"p": "a", "q": "b", "r": "b", "s": "a"}


def test_scheduler_respects_taints_and_labels(apiserver):
    node(apiserver, "a", taints=[MINE], labels={"k": "v"})
    pod(apiserver, "p")
    pod(apiserver, "q", tolerations=[{"key": "mine", "operator": "Equal", "value": "true"}])
    pod(apiserver, "r", tolerations=[{"operator": "Exists"}], nodeSelector={"k": "v"})
    pod(apiserver, "s", tolerations=[{"operator": "Exists"}], nodeSelector={"k": "w"})
    schedule(apiserver)
    assert placed(apiserver) == {"p": None, "q": "a", "r": "a", "s": None}


def test_scheduler_replaces_its_condition_and_leaves_the_pods_of_others(apiserver):
    pod(apiserver, "a")
    pod(apiserver, "b", schedulerName="other")
    schedule(apiserver)
    assert apiserver.get("pods", "a")["status"]["conditions"][0]["status"] == "False"
    node(apiserver, "n")
    schedule(apiserver)
    (condition,) = apiserver.get("pods", "a")["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert "nodeName" not in apiserver.get("pods", "b")["spec"]


def test_lifecycle_removes_the_taint_and_expires_leases(apiserver):
    node(apiserver, "a", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    lifecycle = NodeLifecycle(grace=0.0)
    lifecycle.reconcile(apiserver)
    assert apiserver.get("nodes", "a")["spec"]["taints"] == []
    lifecycle.reconcile(apiserver)
    assert apiserver.get("nodes", "a")["status"]["conditions"][0]["status"] == "Unknown"
    assert lifecycle.not_ready == 1
    lifecycle.reconcile(apiserver)
    assert lifecycle.not_ready == 1


def test_pods_of_a_missing_node_are_deleted(apiserver):
    pod(apiserver, "p", nodeName="nowhere")
    NodeLifecycle(50).reconcile(apiserver)
    assert apiserver.all("pods") == []


def job(apiserver, **spec):
    template = {"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}
    apiserver.create("jobs", {"metadata": {"name": "j"}, "spec": {"template": template, **spec}})


def end_pods(apiserver, phase):
    for each in apiserver.all("pods"):
        if each["status"]["phase"] == "Pending":
            name = each["metadata"]["name"]
            apiserver.change(
                "pods",
                name,
                lambda value: {**value, "status": {"phase": phase}},
                subresource="status",
            )


def test_job_runs_to_completion(apiserver):
    job(apiserver, completions=3, parallelism=2)
    reconcile_jobs(apiserver)
    assert len(apiserver.all("pods")) == 2
    end_pods(apiserver, "Succeeded")
    reconcile_jobs(apiserver)
    assert len(apiserver.all("pods")) == 3
    end_pods(apiserver, "Succeeded")
    reconcile_jobs(apiserver)
    status = apiserver.get("jobs", "j")["status"]
    assert status["succeeded"] == 3
    assert status["conditions"] == [{"type": "Complete", "status": "True"}]
    assert all(not each["metadata"]["finalizers"] for each in apiserver.all("pods"))


def test_job_fails_after_its_backoff_limit(apiserver):
    job(apiserver, completions=1, backoffLimit=1)
    for _ in range(2):
        reconcile_jobs(apiserver)
        end_pods(apiserver, "Failed")
    reconcile_jobs(apiserver)
    assert apiserver.get("jobs", "j")["status"]["conditions"][0]["type"] == "Failed"
    assert len(apiserver.all("pods")) == 2


def test_controllers_run_inside_their_block_only(apiserver):
    pod(apiserver, "p")
    with Controllers(apiserver) as controllers:
        assert [thread.name for thread in controllers._threads] == [
            "lifecycle",
            "scheduler",
            "jobs",
            "claims",
        ]
        node(apiserver, "a")
        wait_until(lambda: placed(apiserver) == {"p": "a"})
    assert not any(thread.is_alive() for thread in controllers._threads)


@pytest.mark.parametrize("value", [{}, {"value": ""}])
@pytest.mark.parametrize("taint_value", [{}, {"value": ""}])
def test_missing_values_of_taints_and_tolerations_are_empty(value, taint_value):
    pod = {"spec": {"tolerations": [{"key": "k", "operator": "Equal", **value}]}}
    assert tolerates(pod, [{"key": "k", "effect": "NoSchedule", **taint_value}])
    assert not tolerates(pod, [{"key": "k", "effect": "NoSchedule", "value": "v"}])
