"""The patch of a pod's status, and the JSON of its parts."""

from __future__ import annotations

import hashlib

import pytest

from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod, RestartPolicy
from devicemanager.core.podstatus.containers import ContainerStatus, Running, Terminated, Waiting
from devicemanager.core.podstatus.merge import is_reported, status_patch
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.podstatus.status import PodFacts, pod_status, qos_class
from devicemanager.core.status import Health, ResourceHealth, ResourceStatus
from devicemanager.objects.status.podstatus import allocated_devices, container_id, status_object
from devicemanager.objects.status.times import micro_timestamp, seconds_of, timestamp

UID = PodUid("u")
LONG_AGO = "2020-01-01T00:00:00Z"
NAME = ContainerName("main")
GPU = ResourceName("vendor.com/gpu")


def pod(*containers: Container) -> Pod:
    return Pod(UID, "p", "default", containers, (), RestartPolicy.NEVER)


def status_of(
    status: ContainerStatus, phase: Phase = Phase.RUNNING, **facts: str
) -> dict[str, object]:
    made = PodFacts(pod(Container(NAME, image="i:1")), phase, start_time=3.5, **facts)
    made = pod_status(made, lambda _: status)
    return status_object(UID, made, now=10.0, host_ip="127.1.0.1", pod_ip="10.1.0.7")


def test_status_of_a_running_container() -> None:
    status = status_of(ContainerStatus(NAME, Running(4.0)))
    assert status["containerStatuses"] == [
        {
            "name": "main",
            "image": "i:1",
            "imageID": f"sha256:{hashlib.sha256(b'i:1').hexdigest()}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "1970-01-01T00:00:04Z"}},
            "lastState": {},
            "containerID": container_id(UID, NAME, 0),
        }
    ]
    assert status["podIPs"] == [{"ip": "10.1.0.7"}] and status["hostIP"] == "127.1.0.1"
    assert status["startTime"] == "1970-01-01T00:00:03Z"
    assert "initContainerStatuses" not in status and "reason" not in status


def test_status_of_a_restarted_container() -> None:
    last = Terminated(1, "Error", 1.0, 2.0)
    (runs,) = status_of(ContainerStatus(NAME, Running(4.0), last, 3))["containerStatuses"]
    assert runs["containerID"] == container_id(UID, NAME, 3)
    assert runs["lastState"]["terminated"]["containerID"] == container_id(UID, NAME, 2)
    waiting = Waiting("CrashLoopBackOff", "back-off 10s")
    (waits,) = status_of(ContainerStatus(NAME, waiting, last, 2))["containerStatuses"]
    assert waits["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert waits["lastState"] == runs["lastState"]
    assert not waits["ready"] and not waits["started"]


def test_status_of_a_pod_terminated_by_the_kubelet() -> None:
    ended = ContainerStatus(NAME, Terminated(137, "Error", 1.0, 2.0))
    status = status_of(ended, Phase.FAILED, reason="Evicted", message="low", disrupted="low")
    assert status["conditions"][0] == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": "1970-01-01T00:00:10Z",
        "reason": "TerminationByKubelet",
        "message": "low",
    }
    assert (status["reason"], status["message"]) == ("Evicted", "low")
    assert is_reported(status, status)
    assert not is_reported({**status, "conditions": status["conditions"][1:]}, status)


def test_patch_keeps_fields_of_other_controllers() -> None:
    status = status_of(ContainerStatus(NAME, Running(4.0)))
    in_api = {
        **status,
        "conditions": [
            {"type": "example.com/gate", "status": "True"},
            *(
                {**each, "lastTransitionTime": "2020-01-01T00:00:00Z"}
                for each in status["conditions"]
            ),
        ],
        "resourceClaimStatuses": [{"name": "c"}],
    }
    assert is_reported(in_api, status)
    patch = status_patch(status)["status"]
    assert "resourceClaimStatuses" not in patch
    assert all("$patch" not in each for each in patch["conditions"])
    assert patch["reason"] is None


@pytest.mark.parametrize(
    "changed",
    [
        {"phase": "Pending"},
        {"containerStatuses": []},
        {"reason": "Strange"},
        {"conditions": []},
        {"startTime": None},
    ],
)
def test_change_by_another_controller_is_detected(changed: dict[str, object]) -> None:
    status = status_of(ContainerStatus(NAME, Running(4.0)))
    assert not is_reported({**status, **changed}, status)


def test_condition_times_in_the_api_are_kept() -> None:
    made = pod_status(
        PodFacts(pod(Container(NAME)), Phase.RUNNING, start_time=None),
        lambda name: ContainerStatus(name, Running(None)),
    )
    status = status_object(UID, made, now=10.0, since={"Ready": LONG_AGO})
    times = {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}
    assert times["Ready"] == LONG_AGO
    assert times["PodScheduled"] == "1970-01-01T00:00:10Z"
    assert "startTime" not in status


def test_health_of_allocated_devices_is_read_back() -> None:
    resources = {
        NAME: (ResourceStatus(GPU, (ResourceHealth(DeviceId("gpu-1"), Health.UNHEALTHY),)),)
    }
    made = pod_status(
        PodFacts(pod(Container(NAME)), Phase.RUNNING),
        lambda name: ContainerStatus(name, Running(1.0)),
        resources,
    )
    status = status_object(UID, made, now=10.0)
    (container,) = status["containerStatuses"]
    assert container["allocatedResourcesStatus"] == [
        {"name": GPU, "resources": [{"resourceID": "gpu-1", "health": "Unhealthy"}]}
    ]
    assert allocated_devices(status) == {"main": {"vendor.com/gpu": ["gpu-1"]}}
    assert allocated_devices({}) == {}


CPU, MEMORY = ResourceName("cpu"), ResourceName("memory")


@pytest.mark.parametrize(
    ("limits", "requests", "qos"),
    [
        ({}, {}, "BestEffort"),
        ({GPU: 1}, {GPU: 1}, "BestEffort"),
        ({CPU: 0}, {CPU: 0}, "BestEffort"),
        ({}, {CPU: 100}, "Burstable"),
        ({CPU: 100}, {CPU: 100}, "Burstable"),
        ({CPU: 100, MEMORY: 5}, {CPU: 100, MEMORY: 5}, "Guaranteed"),
        ({CPU: 100, MEMORY: 5}, {CPU: 50, MEMORY: 5}, "Burstable"),
    ],
)
def test_qos_classes(
    limits: dict[ResourceName, int], requests: dict[ResourceName, int], qos: str
) -> None:
    assert qos_class(pod(Container(NAME, limits, requests))) == qos


def test_one_container_without_limits_makes_the_pod_burstable() -> None:
    both = {CPU: 100, MEMORY: 5}
    assert qos_class(pod(Container(NAME, both, both), Container(ContainerName("b")))) == "Burstable"


def test_times_are_formatted_as_in_the_api() -> None:
    assert timestamp(1767323045.9) == "2026-01-02T03:04:05Z"
    assert micro_timestamp(1767323045.25) == "2026-01-02T03:04:05.250000Z"
    assert seconds_of("2026-01-02T03:04:05Z") == 1767323045
    assert seconds_of("2026-01-02T03:04:05.250000Z") == 1767323045.25
    assert seconds_of("soon") is None and seconds_of(None) is None
