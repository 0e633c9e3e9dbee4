"""DRA on virtual nodes: claims are prepared before the sandbox, slices are published and wiped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from devicemanager.client.protocol import JsonObject
from devicemanager.cluster.dra.node import NodeDra
from devicemanager.cluster.driver_layouts import DriverLayout, simulated_driver
from devicemanager.cluster.durations import Range
from devicemanager.core.dra.model import ClaimInfo, DriverState, PreparedDevice
from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.settings import Settings
from tests.cluster.world import World

DRIVER = "gpu.example.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PREPARE = "FailedPrepareDynamicResources"


def layout(count: int = 2) -> DriverLayout:
    return simulated_driver(DRIVER, [None] * count)


@pytest.fixture
def world() -> World:
    return World()


def join(world: World, **options: Any) -> Any:
    return world.join(gpus=0, **{"drivers": (layout(),), **options})


def claim(world: World, name: str, *devices: str, pod: str = "", pool: str = "n") -> JsonObject:
    """Create a claim that is allocated, and reserved for the pod with a UID."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    made = world.call(
        "POST", CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    )
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": device} for device in devices
    ]
    made["status"] = {"allocation": {"devices": {"results": results}}}
    if pod:
        made["status"]["reservedFor"] = [{"resource": "pods", "name": "a", "uid": pod}]
    return world.call("PUT", f"{CLAIMS}/{name}/status", made)


def pod(world: World, name: str, *claims: str) -> str:
    """Create a pod with claims, which does not start before ``world.settle``."""
    containers = [
        {
            "name": "main",
            "image": "i:1",
            "resources": {"claims": [{"name": each} for each in claims]},
        }
    ]
    entries = [{"name": each, "resourceClaimName": each} for each in claims]
    return world.run(name, gpus=0, settle=False, containers=containers, resourceClaims=entries)


def run(world: World, name: str, *devices: str, pool: str = "n") -> str:
    """Run a pod with a claim of the same name."""
    uid = pod(world, name, name)
    claim(world, name, *devices, pod=uid, pool=pool)
    world.settle()
    return uid


def is_running(node: Any, uid: str) -> bool:
    return bool(node.kubelet.pod_store.known(uid).running)


def wait(node: Any, test: Callable[[], bool]) -> None:
    """Wait for a retry of the kubelet, which has its own thread."""
    assert node.kubelet.events.wait_for(test, 20)


def slices(world: World) -> list[JsonObject]:
    return world.all("resourceslices")


def published(world: World) -> list[str]:
    found = (each["spec"].get("devices") or () for each in slices(world))
    return [device["name"] for devices in found for device in devices]


# -- claims ------------------------------------------------------------------------------


def test_pod_with_prepared_claim_runs(world: World) -> None:
    node = join(world)
    uid = run(world, "a", "gpu-0")
    status = world.status("a")
    assert status["phase"] == "Running"
    (resource,) = status["containerStatuses"][0]["allocatedResourcesStatus"]
    claim_uid = world.call("GET", f"{CLAIMS}/a")["metadata"]["uid"]
    assert resource == {
        "name": "claim:a",
        "resources": [{"resourceID": f"k8s.{DRIVER}/claim={claim_uid}-gpu-0", "health": "Healthy"}],
    }
    (held,) = node.kubelet.held_claims(uid)
    assert held.prepared and [each.device for each in held.drivers[DRIVER].devices] == ["gpu-0"]


def why_pending(world: World, name: str) -> str:
    """Check that a pod is Pending without a sandbox, and return the text of its event."""
    status = world.status(name)
    assert status["phase"] == "Pending" and "podIP" not in status
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["PodReadyToStartContainers"] == "False"
    (event,) = world.events(PREPARE)
    assert event["involvedObject"]["name"] == name
    head = "Failed to prepare dynamic resources: prepare dynamic resources: "
    assert event["message"].startswith(head)
    return str(event["message"]).removeprefix(head)


def test_pod_without_its_claim_stays_pending(world: World) -> None:
    join(world)
    pod(world, "a", "a")
    world.settle()
    assert why_pending(world, "a") == (
        'fetch ResourceClaim a: resourceclaims.resource.k8s.io "a" not found'
    )


def test_pod_with_unallocated_claim_stays_pending(world: World) -> None:
    join(world)
    uid = pod(world, "a", "a")
    made = claim(world, "a", "gpu-0", pod=uid)
    made["status"] = {}
    world.call("PUT", f"{CLAIMS}/a/status", made)
    world.settle()
    text = f"pod a ({uid}) is not allowed to use ResourceClaim a ({made['metadata']['uid']})"
    assert why_pending(world, "a") == text


def test_pod_with_a_claim_of_an_unknown_driver_stays_pending(world: World) -> None:
    join(world, drivers=())
    run(world, "a", "gpu-0")
    assert why_pending(world, "a") == f"DRA driver {DRIVER} is not registered"


def test_pending_pod_starts_with_the_next_sync(world: World) -> None:
    node = join(world)
    world.annotate(f"prepare-fails={DRIVER}:1")
    uid = run(world, "a", "gpu-0")
    assert why_pending(world, "a") == (
        "NodePrepareResources failed for ResourceClaim a: injected fault: prepare fails"
    )
    world.clock.advance(59)
    assert not is_running(node, uid)
    world.clock.advance(1)
    wait(node, lambda: is_running(node, uid))
    world.settle()
    assert world.status("a")["phase"] == "Running"


def test_claim_from_template_starts_the_pod_when_it_exists(world: World) -> None:
    join(world)
    entries = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    containers = [{"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]
    uid = world.run("a", gpus=0, containers=containers, resourceClaims=entries)
    assert world.events(PREPARE)[0]["message"].endswith(
        'pod "default/a": ResourceClaim not created yet'
    )
    made = claim(world, "a-x", "gpu-0", pod=uid)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": True}
    ]
    world.call("PUT", f"{CLAIMS}/a-x", made)
    found = world.pod("a")
    found["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "a-x"}]
    world.call("PUT", "/api/v1/namespaces/default/pods/a/status", found)
    world.settle()
    assert world.status("a")["phase"] == "Running"


def test_delayed_prepare_starts_the_pod_later(world: World) -> None:
    node = join(world)
    world.annotate(f"prepare-delay={DRIVER}:5s")
    uid = run(world, "a", "gpu-0")
    assert world.status("a")["phase"] == "Pending"
    assert not world.events(PREPARE)
    world.clock.advance(5)
    wait(node, lambda: is_running(node, uid))
    world.settle()
    status = world.status("a")
    assert status["phase"] == "Running"
    times = {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}
    ready = status["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert times["PodReadyToStartContainers"] == ready > status["startTime"]


def test_prepare_that_takes_too_long_times_out(world: World) -> None:
    node = join(world)
    world.annotate(f"prepare-delay={DRIVER}:1m")
    uid = run(world, "a", "gpu-0")
    record = node.kubelet.pod_store.known(uid)
    world.clock.advance(45)
    wait(node, lambda: "code = DeadlineExceeded" in record.sync_error)
    world.settle()
    assert "code = DeadlineExceeded" in why_pending(world, "a")


def test_deleted_pod_stays_until_its_claims_are_unprepared(world: World) -> None:
    node = join(world)
    uid = run(world, "a", "gpu-0")
    world.annotate(f"unprepare-fails={DRIVER}")
    world.delete("a")
    assert world.pod("a")["metadata"]["deletionTimestamp"]
    assert world.status("a")["phase"] == "Running"
    assert node.kubelet.held_claims(uid)
    assert any("injected fault: unprepare fails" in line for line in world.warnings)
    world.annotate(None)
    world.clock.advance(11)
    wait(node, lambda: not node.kubelet.held_claims(uid))
    wait(node, lambda: not node.kubelet.pod_store.known(uid).is_active)
    world.settle()
    assert not world.all("pods")
    assert not node.kubelet.held_claims(uid)
    phases = [
        body["status"]["phase"]
        for method, path, body in world.requests
        if method == "PATCH" and path.endswith("pods/a/status")
    ]
    assert phases[-1] == "Failed"
    ends = [method for method, path, _ in world.requests if "pods/a" in path][-2:]
    assert ends == ["PATCH", "DELETE"]


def test_shared_claim_is_unprepared_with_its_last_pod(world: World) -> None:
    node = join(world)
    first, second = pod(world, "a", "shared"), pod(world, "b", "shared")
    made = claim(world, "shared", "gpu-0", pod=first)
    made["status"]["reservedFor"].append({"resource": "pods", "name": "b", "uid": second})
    world.call("PUT", f"{CLAIMS}/shared/status", made)
    world.settle()
    assert {world.status(each)["phase"] for each in "ab"} == {"Running"}
    world.delete("a", grace=0)
    (held,) = node.kubelet.held_claims(second)
    assert held.pods == {second}
    world.delete("b", grace=0)
    assert not node.kubelet.held_claims(second)


def test_device_allocated_twice_is_reported(world: World) -> None:
    join(world)
    run(world, "a", "gpu-0")
    run(world, "b", "gpu-0")
    assert world.status("b")["phase"] == "Pending"
    (event,) = world.events(PREPARE)
    assert event["message"].endswith(
        "device n/gpu-0 is allocated twice: ResourceClaim default/a has it"
    )


def test_another_process_takes_claims_over(world: World) -> None:
    first = join(world)
    uid = run(world, "a", "gpu-0")
    first.leave("keep")
    second = join(world)
    (held,) = second.kubelet.held_claims(uid)
    assert [each.device for each in held.drivers[DRIVER].devices] == ["gpu-0"]
    assert world.status("a")["phase"] == "Running"
    assert not world.events(PREPARE)
    run(world, "b", "gpu-0")
    assert "allocated twice" in world.events(PREPARE)[0]["message"]


def test_restarted_kubelet_keeps_claims_and_prepares_them_again_after_a_reboot(
    world: World,
) -> None:
    node = join(world)
    uid = run(world, "a", "gpu-0")
    node.restart()
    world.settle()
    (held,) = node.kubelet.held_claims(uid)
    assert not held.prepared
    node.reboot()
    world.settle()
    (held,) = node.kubelet.held_claims(uid)
    assert held.prepared
    assert world.status("a")["phase"] == "Running"


def test_unhealthy_device_shows_in_pod_claim_and_slice(world: World) -> None:
    node = join(world, device_status=True)
    run(world, "a", "gpu-0")

    def ready() -> str:
        (device,) = world.call("GET", f"{CLAIMS}/a")["status"]["devices"]
        assert (device["driver"], device["pool"], device["device"]) == (DRIVER, "n", "gpu-0")
        status: str = device["conditions"][0]["status"]
        return status

    assert ready() == "True"
    node.fail_device(DRIVER, "gpu-0")
    world.settle()
    (resource,) = world.status("a")["containerStatuses"][0]["allocatedResourcesStatus"]
    assert resource["resources"][0]["health"] == "Unhealthy"
    assert ready() == "False"
    first, second = slices(world)[0]["spec"]["devices"]
    (taint,) = first["taints"]
    assert taint["key"] == f"{DRIVER}/unhealthy" and taint["effect"] == "NoSchedule"
    assert "taints" not in second
    node.recover_device(DRIVER, "gpu-0")
    world.settle()
    assert ready() == "True"
    assert "taints" not in slices(world)[0]["spec"]["devices"][0]


def test_silent_node_queues_one_write_per_pod(world: World) -> None:
    node = join(world, device_status=True)
    run(world, "a", "gpu-0")
    node.silent()
    for _ in range(3):
        node.fail_device(DRIVER, "gpu-0")
        node.recover_device(DRIVER, "gpu-0")
    node.fail_device(DRIVER, "gpu-0")
    world.requests.clear()
    node.silent(False)
    world.settle()
    (body,) = [body for _, at, body in world.requests if at == f"{CLAIMS}/a/status"]
    assert body["status"]["devices"][0]["conditions"][0]["status"] == "False"


def test_status_of_devices_of_a_claim(world: World) -> None:
    """Claims that are gone or have a successor are left out; other failures are one line."""
    node = join(world, name="n")
    share = "22222222-2222-4222-8222-222222222222"
    devices = (
        PreparedDevice("n", "gpu-0"),
        PreparedDevice("n", "gpu-1", share_id=share),
    )
    made = claim(world, "c", "gpu-0", "gpu-1")
    drivers = {DRIVER: DriverState(devices), "other": DriverState()}
    infos = [
        ClaimInfo("default", name, uid, drivers=drivers)
        for name, uid in (("c", made["metadata"]["uid"]), ("gone", "u"), ("c", "another"))
    ]
    world.requests.clear()
    node._dra._claims.write_devices(
        infos, {DRIVER: frozenset({"gpu-1"}), "x": frozenset({"gpu-0"})}
    )
    assert [path for _, path, _ in world.requests] == [
        f"{CLAIMS}/{name}/status" for name in ("c", "gone", "c")
    ]
    ready = {"type": "Ready", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    named = {"driver": DRIVER, "pool": "n"}
    assert world.requests[0][2] == {
        "metadata": {"uid": made["metadata"]["uid"]},
        "status": {
            "devices": [
                {
                    **named,
                    "device": "gpu-0",
                    "conditions": [{**ready, "status": "True", "reason": "Healthy"}],
                },
                {
                    **named,
                    "device": "gpu-1",
                    "conditions": [{**ready, "status": "False", "reason": "Unhealthy"}],
                    "shareID": share,
                },
            ]
        },
    }
    start = "node n: cannot write status.devices of ResourceClaim default/c: "
    (line,) = world.warnings
    assert line.startswith(start) and "must be an allocated device in the claim" in line
    world.permissions.allowed = frozenset()
    node._dra._claims.write_devices(infos[:1], {})
    _, line = world.warnings
    assert line.startswith(start) and "forbidden" in line


@pytest.mark.parametrize("device_status", [True, False])
def test_events_about_devices_of_a_pod_are_written(
    world: World, monkeypatch: pytest.MonkeyPatch, device_status: bool
) -> None:
    node = join(world, device_status=device_status)
    written: list[str] = []
    monkeypatch.setattr(NodeDra, "_write_devices", lambda self, uid: written.append(uid))
    for kind in EventKind:
        if kind is not EventKind.STARTED:
            for uid in ("", kind.value):
                node._dra.on_kubelet_event(Event(0.0, kind, "", pod=uid))
    world.settle()
    kinds = [EventKind.CLAIMS_PREPARED.value, EventKind.DEVICE_HEALTH.value]
    assert sorted(written) == (sorted(kinds) if device_status else [])


# -- slices ------------------------------------------------------------------------------


def test_node_publishes_its_devices(world: World) -> None:
    node = join(world, drivers=(simulated_driver(DRIVER, [0, 0, 1, 1]),))
    (found,) = slices(world)
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node.uid, "controller": True}
    ]
    spec = found["spec"]
    assert (spec["driver"], spec["nodeName"]) == (DRIVER, "n")
    assert spec["pool"] == {"name": "n", "generation": 1, "resourceSliceCount": 1}
    assert spec["devices"][2] == {
        "name": "gpu-2",
        "attributes": {
            "index": {"int": 2},
            "numaNode": {"int": 1},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:01"},
        },
    }


def test_many_devices_are_in_several_slices(world: World) -> None:
    join(world, drivers=(simulated_driver(DRIVER, [None] * 65),))
    assert [len(each["spec"]["devices"]) for each in slices(world)] == [64, 1]
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in slices(world)} == {2}


def test_slices_are_not_written_without_a_change(world: World) -> None:
    join(world)
    before = len(world.requests)
    world.pass_time(30)
    assert not [path for _, path, _ in world.requests[before:] if "resourceslices" in path]


def test_lost_device_leaves_its_slice_with_a_new_generation(world: World) -> None:
    join(world)
    world.annotate(f"device-lost={DRIVER}/gpu-0")
    assert published(world) == ["gpu-1"]
    assert slices(world)[0]["spec"]["pool"]["generation"] == 2
    world.annotate(f"capacity-zero={DRIVER}")
    assert published(world) == []
    world.annotate(None)
    assert published(world) == ["gpu-0", "gpu-1"]


def test_restarted_kubelet_wipes_slices_and_they_return(world: World) -> None:
    node = join(world, slices_delay=Range(2.0))
    node.restart()
    world.settle()
    assert slices(world) == []
    world.pass_time(2)
    assert published(world) == ["gpu-0", "gpu-1"]


def test_silent_node_wipes_slices_once_when_it_resumes(world: World) -> None:
    node = join(world)
    node.silent()
    for _ in range(3):
        node.restart()
        world.pass_time(60.0)
    world.requests.clear()
    node.silent(False)
    world.pass_time(60.0)
    assert [method for method, _, _ in world.requests].count("DELETE") == 1
    assert published(world) == ["gpu-0", "gpu-1"]


def test_process_that_takes_over_wipes_slices(world: World) -> None:
    join(world).leave("keep")
    join(world, slices_delay=Range(60.0))
    assert slices(world) == []
    world.pass_time(60)
    assert published(world) == ["gpu-0", "gpu-1"]


def test_slices_of_a_node_that_registers_again_belong_to_its_new_node(world: World) -> None:
    join(world, on_deleted="register")
    [before] = slices(world)
    world.call("DELETE", "/api/v1/nodes/n")
    world.settle()
    [after] = slices(world)
    uid = world.node("n")["metadata"]["uid"]
    owners = [each["metadata"]["ownerReferences"][0]["uid"] for each in (before, after)]
    assert owners[1] == uid != owners[0]


def test_slices_of_a_stopped_driver_are_wiped_after_30_seconds(world: World) -> None:
    join(world, slices_delay=Range(2.0))
    world.annotate(f"plugin-gone={DRIVER}")
    world.pass_time(29)
    assert slices(world)
    run(world, "a", "gpu-0")
    assert f"DRA driver {DRIVER} is not registered" in world.events(PREPARE)[0]["message"]
    world.pass_time(2)
    assert slices(world) == []
    world.annotate(None)
    assert slices(world) == []
    world.pass_time(2)
    assert published(world) == ["gpu-0", "gpu-1"]


def test_driver_that_returns_in_time_keeps_its_slices(world: World) -> None:
    join(world)
    world.annotate(f"plugin-gone={DRIVER}")
    world.pass_time(20)
    world.annotate(None)
    world.pass_time(40)
    assert [each["metadata"]["name"] for each in slices(world)] == [f"00000-{DRIVER}-n"]
    assert all(method != "DELETE" for method, path, _ in world.requests if "slices" in path)


def test_old_kubelet_wipes_at_once_and_runs_pods_without_dra(world: World) -> None:
    settings = Settings(kubelet_version="1.31")
    join(world, settings=settings)
    run(world, "a", "gpu-0")
    assert world.status("a")["phase"] == "Running"


def test_nodes_share_the_devices_of_a_layout() -> None:
    shared = layout()
    (one,), (other,) = (list(shared.specs(each, 1, "v1")) for each in ("n-0", "n-1"))
    assert one["devices"] is other["devices"]


def test_v1beta1_has_devices_below_basic() -> None:
    shared = layout(1)
    (spec,) = shared.specs("n", 1, "v1beta1", unhealthy={"gpu-0"})
    (device,) = spec["devices"]
    assert set(device) == {"name", "basic"}
    assert device["basic"]["taints"] and device["basic"]["attributes"]["index"] == {"int": 0}
