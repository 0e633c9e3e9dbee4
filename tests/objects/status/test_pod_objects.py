"""Exact JSON of Pod objects and statuses, and the values that are read back from it."""

from __future__ import annotations

from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod, RestartPolicy
from devicemanager.core.podstatus.conditions import Condition, ConditionType
from devicemanager.core.podstatus.containers import ContainerStatus, Running, Terminated, Waiting
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.podstatus.status import ContainerEntry, PodStatus, QosClass
from devicemanager.core.status import Health, ResourceHealth, ResourceStatus
from devicemanager.objects.status.podstatus import (
    allocated_devices,
    container_id,
    container_statuses_of,
    has_health,
    pod_list,
    pod_object,
    status_object,
    with_allocated,
)
from devicemanager.objects.status.times import micro_timestamp, seconds_of, timestamp

UID = PodUid("u-1")
MAIN, SIDE = ContainerName("main"), ContainerName("side")
GPU, CPU = ResourceName("vendor.com/gpu"), ResourceName("cpu")


def test_pod_object_has_fields_of_manifest() -> None:
    pod = Pod(
        UID,
        "train",
        "ml",
        (Container(MAIN, {GPU: 2, CPU: 1500}, {CPU: 2000}, claims=("net",), image="i:1"),),
        (Container(SIDE, restartable=True, image="i:2"),),
        RestartPolicy.ON_FAILURE,
        {"net": "shared", "own": None},
        termination_grace_period=5,
    )
    assert pod_object(pod, {"phase": "Running"}, node="n-1", deletion_grace=3.9) == {
        "metadata": {
            "name": "train",
            "namespace": "ml",
            "uid": "u-1",
            "deletionGracePeriodSeconds": 3,
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "i:1",
                    "resources": {
                        "limits": {"vendor.com/gpu": "2", "cpu": "1500m"},
                        "requests": {"cpu": "2"},
                        "claims": [{"name": "net"}],
                    },
                }
            ],
            "initContainers": [
                {"name": "side", "image": "i:2", "resources": {}, "restartPolicy": "Always"}
            ],
            "nodeName": "n-1",
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 5,
            "resourceClaims": [{"name": "net", "resourceClaimName": "shared"}, {"name": "own"}],
        },
        "status": {"phase": "Running"},
    }


def test_optional_fields_of_pod_are_absent() -> None:
    result = pod_object(Pod(UID, "p", "default", (Container(MAIN),)), {}, node="n")
    assert set(result["metadata"]) == {"name", "namespace", "uid"}
    assert not {"initContainers", "resourceClaims"} & set(result["spec"])


def test_items_of_pod_list_have_no_kind() -> None:
    assert pod_list(iter([{"metadata": {}}])) == {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": [{"metadata": {}}],
    }


def entry(status: ContainerStatus, *resources: ResourceStatus) -> ContainerEntry:
    container = Container(status.name, image="i")
    return ContainerEntry(container, status, status.is_running, resources)


def pod_status(*entries: ContainerEntry, **more: object) -> PodStatus:
    fields = {
        "phase": Phase.RUNNING,
        "reason": "",
        "message": "",
        "start_time": None,
        "qos_class": QosClass.BURSTABLE,
        "conditions": (),
        "init_containers": (),
        "containers": entries,
    }
    return PodStatus(**{**fields, **more})  # type: ignore[arg-type]


def test_status_without_values_has_two_fields() -> None:
    assert status_object(UID, pod_status(), now=1.0, host_ip="127.0.0.1", pod_ip="10.0.0.1") == {
        "phase": "Running",
        "qosClass": "Burstable",
    }


def test_status_has_addresses_once_it_has_conditions() -> None:
    ready = Condition(ConditionType.READY, False, "NotReady", "no")
    since = Condition(ConditionType.INITIALIZED, True, since=7.0)
    status = pod_status(conditions=(ready, since), start_time=3.5, reason="R", message="M")
    assert status_object(UID, status, now=10.0, host_ip="127.0.0.1", pod_ip="10.0.0.1") == {
        "phase": "Running",
        "qosClass": "Burstable",
        "reason": "R",
        "message": "M",
        "startTime": "1970-01-01T00:00:03Z",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": "1970-01-01T00:00:10Z",
                "reason": "NotReady",
                "message": "no",
            },
            {
                "type": "Initialized",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": "1970-01-01T00:00:07Z",
            },
        ],
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
    }


def test_status_of_a_container_has_these_fields() -> None:
    def made(status: ContainerStatus) -> dict[str, object]:
        shown = status_object(UID, pod_status(entry(status)), now=1.0)
        (found,) = shown["containerStatuses"]
        assert isinstance(found, dict)
        return found

    assert made(ContainerStatus(MAIN, Waiting("ContainerCreating", ""))) == {
        "name": "main",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "ContainerCreating"}},
        "lastState": {},
        "started": False,
    }
    image = "sha256:de7d1b721a1e0632b7cf04edf5032c8ecffa9f9a08492152b926f1a5a7e765d7"
    running = made(ContainerStatus(MAIN, Running(1.0), Terminated(3, "Error", 0.0, 1.0, "why"), 2))
    assert running == {
        "name": "main",
        "image": "i",
        "imageID": image,
        "containerID": container_id(UID, MAIN, 2),
        "ready": True,
        "restartCount": 2,
        "state": {"running": {"startedAt": "1970-01-01T00:00:01Z"}},
        "lastState": {
            "terminated": {
                "exitCode": 3,
                "reason": "Error",
                "message": "why",
                "startedAt": "1970-01-01T00:00:00Z",
                "finishedAt": "1970-01-01T00:00:01Z",
                "containerID": container_id(UID, MAIN, 1),
            }
        },
        "started": True,
    }


def test_statuses_of_containers_are_listed_by_kind() -> None:
    fields = {
        "init_containers": "initContainerStatuses",
        "containers": "containerStatuses",
        "ephemeral_containers": "ephemeralContainerStatuses",
    }
    entries = {
        field: (entry(ContainerStatus(ContainerName(field), Running(1.0))),) for field in fields
    }
    made = status_object(UID, pod_status(**entries), now=1.0)
    assert {field: made[name][0]["name"] for field, name in fields.items()} == {
        field: field for field in fields
    }
    ids = {container_id(UID, ContainerName(field), 0) for field in fields}
    assert {made[name][0]["containerID"] for name in fields.values()} == ids
    assert set(container_statuses_of(made)) == set(fields)
    resources = status_object(UID, pod_status(**entries), now=1.0, with_resources=True)
    assert [resources[name][0]["resources"] for name in fields.values()] == [{}, {}, {}]
    for field, name in fields.items():
        one = status_object(UID, pod_status(**{"containers": (), field: entries[field]}), now=1.0)
        assert set(one) == {"phase", "qosClass", name}


def test_status_without_addresses_has_none() -> None:
    status = pod_status(conditions=(Condition(ConditionType.READY, True),))
    assert set(status_object(UID, status, now=1.0)) == {"phase", "qosClass", "conditions"}
    for argument, fields in (("host_ip", {"hostIP", "hostIPs"}), ("pod_ip", {"podIP", "podIPs"})):
        made = status_object(UID, status, now=1.0, **{argument: "10.0.0.1"})
        assert set(made) == {"phase", "qosClass", "conditions", *fields}


def test_status_has_the_generation_of_the_pod_that_it_describes() -> None:
    older = Condition(ConditionType.READY, True, generation=2)
    status = pod_status(conditions=(older, Condition(ConditionType.INITIALIZED, True)))
    made = status_object(UID, status, now=1.0, generation=3)
    assert made["observedGeneration"] == 3
    assert [each["observedGeneration"] for each in made["conditions"]] == [2, 3]
    without = status_object(UID, status, now=1.0)
    assert not any("observedGeneration" in each for each in (without, *without["conditions"]))


def test_transition_time_that_the_server_has_is_kept() -> None:
    status = pod_status(conditions=(Condition(ConditionType.READY, True, since=7.0),))
    (ready,) = status_object(UID, status, now=1.0, since={"Ready": "before"})["conditions"]
    assert ready["lastTransitionTime"] == "before"


def test_started_containers_have_their_resources() -> None:
    spec = Container(MAIN, {CPU: 2000, GPU: 1}, {CPU: 1500, GPU: 1}, image="i")
    actual = Container(MAIN, {CPU: 1000}, {CPU: 500}, image="i")
    bare = Container(SIDE, image="i")
    running = ContainerStatus(MAIN, Running(1.0))
    waiting = ContainerStatus(MAIN, Waiting("ContainerCreating", ""))

    def made(container: Container, status: ContainerStatus, **more: object) -> dict[str, object]:
        entry = ContainerEntry(container, status, True, (), **more)  # type: ignore[arg-type]
        shown = status_object(UID, pod_status(entry), now=1.0, with_resources=True)
        (found,) = shown["containerStatuses"]
        return {name: found.get(name) for name in ("resources", "allocatedResources")}

    requests = {"cpu": "1500m", "vendor.com/gpu": "1"}
    limits = {"cpu": "2", "vendor.com/gpu": "1"}
    assert made(spec, running) == {
        "resources": {"limits": limits, "requests": requests},
        "allocatedResources": requests,
    }
    assert made(spec, running, actual=actual) == {
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}},
        "allocatedResources": requests,
    }
    assert made(bare, running) == {"resources": {}, "allocatedResources": None}
    assert made(spec, waiting) == {"resources": None, "allocatedResources": None}


def test_allocated_cpu_and_memory_replace_those_of_the_spec() -> None:
    resources = {
        "limits": {"cpu": "2", "memory": "2Gi", "vendor.com/gpu": "1"},
        "requests": {"cpu": "1", "vendor.com/gpu": "1"},
        "claims": [{"name": "net"}],
    }
    containers = [{"name": "main", "resources": resources}, {"name": "other", "image": "i"}]
    spec = {"containers": containers, "initContainers": [{"name": "side"}]}
    main = {
        "name": "main",
        "resources": {"limits": {"cpu": "4", "vendor.com/gpu": "9"}},
        "allocatedResources": {"cpu": "3", "memory": "1Gi"},
    }
    side = {"name": "side", "resources": {}, "allocatedResources": {"cpu": "1"}}
    found = {"spec": spec, "status": {"containerStatuses": [main, {"name": "other"}]}}
    assert with_allocated(found) == {
        **found,
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "resources": {
                        "limits": {"vendor.com/gpu": "1", "cpu": "4"},
                        "requests": {"vendor.com/gpu": "1", "cpu": "3", "memory": "1Gi"},
                        "claims": [{"name": "net"}],
                    },
                },
                containers[1],
            ],
            "initContainers": [{"name": "side"}],
        },
    }
    side["resources"] = {"limits": {"cpu": "2"}}
    sidecars = {"spec": spec, "status": {"initContainerStatuses": [side]}}
    (init,) = with_allocated(sidecars)["spec"]["initContainers"]
    assert init["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    unchanged = {"spec": spec, "status": {"containerStatuses": [{"name": "main"}]}}
    assert with_allocated(unchanged) is unchanged


def test_started_containers_are_read_back() -> None:
    ended = Terminated(137, "Error", 1.0, 2.0)
    containers = (
        ContainerStatus(MAIN, Running(4.0), ended, 3),
        ContainerStatus(SIDE, Waiting("CrashLoopBackOff", "back-off 10s"), ended, 2),
        ContainerStatus(ContainerName("new"), Waiting("ContainerCreating", "")),
    )
    init = ContainerStatus(ContainerName("init"), Terminated(0, "Completed", 0.0, 1.0))
    status = pod_status(*map(entry, containers), init_containers=(entry(init),))
    result = status_object(UID, status, now=10.0)
    assert container_statuses_of(result) == {each.name: each for each in (init, *containers[:2])}
    main, side, new = result["containerStatuses"]
    assert main["containerID"] == container_id(UID, MAIN, 3)
    # The last terminated run is the previous one if the container runs again, else the latest.
    assert main["lastState"]["terminated"]["containerID"] == container_id(UID, MAIN, 2)
    assert side["lastState"]["terminated"]["containerID"] == container_id(UID, SIDE, 2)
    assert "containerID" not in new and new["lastState"] == {}


def test_missing_values_of_status_are_read_as_defaults() -> None:
    found = {
        "initContainerStatuses": None,
        "containerStatuses": [
            {"name": "main", "state": {"running": {}}},
            {"name": "side", "lastState": {"terminated": {}}},
            {"name": "new", "state": {"waiting": {}}},
        ],
    }
    assert container_statuses_of(found) == {
        MAIN: ContainerStatus(MAIN, Running(None), None, 0),
        SIDE: ContainerStatus(
            SIDE, Waiting("ContainerCreating", ""), Terminated(0, "", None, None), 0
        ),
    }


def test_allocated_devices_are_read_back() -> None:
    health = (ResourceHealth(DeviceId("g0"), Health.HEALTHY),)
    resources = (ResourceStatus(GPU, health), ResourceStatus(CPU, ()))
    result = status_object(
        UID, pod_status(entry(ContainerStatus(MAIN, Running(1.0)), *resources)), now=1.0
    )
    (main,) = result["containerStatuses"]
    assert main["allocatedResourcesStatus"] == [
        {"name": GPU, "resources": [{"resourceID": "g0", "health": "Healthy"}]},
        {"name": CPU, "resources": []},
    ]
    assert allocated_devices(result) == {"main": {"vendor.com/gpu": ["g0"]}}
    assert allocated_devices({}) == {}
    # Entries of claims are not those of a plugin.
    main["allocatedResourcesStatus"][0]["name"] = "claim:gpu"
    assert allocated_devices(result) == {}


def test_one_container_with_health_is_enough() -> None:
    healthy = {"name": "main", "allocatedResourcesStatus": [{"name": "a"}]}
    assert has_health({"containerStatuses": [{"name": "side"}, healthy]})
    assert not has_health({"containerStatuses": [{"name": "side"}]})
    assert not has_health({"containerStatuses": None})


def test_container_ids_depend_on_pod_container_and_run() -> None:
    ids = [
        container_id(UID, MAIN, 0),
        container_id(UID, MAIN, 1),
        container_id(UID, SIDE, 0),
        container_id(PodUid("u-2"), MAIN, 0),
    ]
    assert len(set(ids)) == 4
    assert all(each.startswith("containerd://") and len(each) == 77 for each in ids)
    assert container_id(UID, MAIN, 0) == ids[0]


def test_times_have_both_forms_of_api() -> None:
    assert timestamp(1.999) == "1970-01-01T00:00:01Z"
    assert micro_timestamp(1.25) == "1970-01-01T00:00:01.250000Z"
    assert seconds_of("1970-01-01T00:00:01.25Z") == 1.25
    for each in ("soon", None, "1970-01-01T00:00:01"):  # the last one has no zone
        assert seconds_of(each) is None
