"""The small scheduler, Job controller and node lifecycle, a step at a time."""

import pytest

from devicemanager.cluster.fake_apiserver import FakeApiServer, jobs, scheduling
from devicemanager.cluster.fake_apiserver.lifecycle import Lifecycle

GPU = "vendor.com/gpu"
MINE = {"key": "mine", "value": "true", "effect": "NoSchedule"}


@pytest.fixture
def stub():
    """Not started: nobody speaks HTTP to it."""
    return FakeApiServer()


def node(stub, name, gpus=2, *, taints=(), ready="True", labels=None):
    stub.create("nodes", {"metadata": {"name": name, "labels": labels or {}}})

    def given(value):
        value["spec"]["taints"] = list(taints)
        return value

    def status(value):
        value["status"] = {
            "allocatable": {GPU: str(gpus), "pods": "110"},
            "conditions": [{"type": "Ready", "status": ready}],
        }
        return value

    from devicemanager.cluster.fake_apiserver.kinds import KINDS, Target

    stub.objects.change(Target(KINDS["nodes"], "", name), given)
    stub.objects.change(Target(KINDS["nodes"], "", name, "status"), status)


def pod(stub, name, gpus=1, **spec):
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    stub.create("pods", {"metadata": {"name": name}, "spec": {"containers": [container], **spec}})


def placed(stub):
    return {each["metadata"]["name"]: each["spec"].get("nodeName") for each in stub.all("pods")}


def test_pods_go_where_there_is_room(stub):
    node(stub, "a")
    node(stub, "b")
    for name in ("p", "q", "r", "s", "t"):
        pod(stub, name)
    scheduling.step(stub)
    found = list(placed(stub).values())
    assert found.count("a") == found.count("b") == 2
    assert found.count(None) == 1
    (waiting,) = (each for each in stub.all("pods") if not each["spec"].get("nodeName"))
    assert waiting["status"]["conditions"][0]["reason"] == "Unschedulable"


def test_taints_cordons_and_labels(stub):
    node(stub, "a", taints=[MINE], labels={"k": "v"})
    pod(stub, "p")
    pod(stub, "q", tolerations=[{"key": "mine", "operator": "Equal", "value": "true"}])
    pod(stub, "r", tolerations=[{"operator": "Exists"}], nodeSelector={"k": "v"})
    pod(stub, "s", tolerations=[{"operator": "Exists"}], nodeSelector={"k": "w"})
    scheduling.step(stub)
    assert placed(stub) == {"p": None, "q": "a", "r": "a", "s": None}


def test_a_ready_node_loses_its_taint_and_one_nobody_hears_of_its_conditions(stub):
    node(stub, "a", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    lifecycle = Lifecycle(grace=0.0)
    lifecycle.step(stub)
    assert stub.get("nodes", "a")["spec"]["taints"] == []
    lifecycle.step(stub)
    assert stub.get("nodes", "a")["status"]["conditions"][0]["status"] == "Unknown"
    assert lifecycle.not_ready == 1
    lifecycle.step(stub)
    assert lifecycle.not_ready == 1


def test_pods_of_a_node_that_is_gone_go_too(stub):
    pod(stub, "p", nodeName="nowhere")
    Lifecycle(50).step(stub)
    assert stub.all("pods") == []


def job(stub, **spec):
    template = {"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}
    stub.create("jobs", {"metadata": {"name": "j"}, "spec": {"template": template, **spec}})


def ended(stub, phase):
    from devicemanager.cluster.fake_apiserver.kinds import KINDS, Target

    for each in stub.all("pods"):
        if each["status"]["phase"] == "Pending":
            name = each["metadata"]["name"]
            target = Target(KINDS["pods"], "default", name, "status")
            stub.objects.change(target, lambda value: {**value, "status": {"phase": phase}})


def test_a_job_runs_to_its_end(stub):
    job(stub, completions=3, parallelism=2)
    jobs.step(stub)
    assert len(stub.all("pods")) == 2
    ended(stub, "Succeeded")
    jobs.step(stub)
    assert len(stub.all("pods")) == 3
    ended(stub, "Succeeded")
    jobs.step(stub)
    status = stub.get("jobs", "j")["status"]
    assert status["succeeded"] == 3
    assert status["conditions"] == [{"type": "Complete", "status": "True"}]
    assert all(not each["metadata"]["finalizers"] for each in stub.all("pods"))


def test_a_job_gives_up(stub):
    job(stub, completions=1, backoffLimit=1)
    for _ in range(2):
        jobs.step(stub)
        ended(stub, "Failed")
    jobs.step(stub)
    assert stub.get("jobs", "j")["status"]["conditions"][0]["type"] == "Failed"
    assert len(stub.all("pods")) == 2
