"""The in-memory kubelet: the decisions of a MockKubelet, without sockets."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from devicemanager.core.devices import Device
from devicemanager.core.errors import RequestError, RpcError
from devicemanager.core.ids import ContainerName, DeviceId
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.containers import Waiting
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import NumaTopology
from devicemanager.events.stream import EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.inmemory.devices import (
    TooManyDevices,
    numbered,
    places,
    simulated_devices,
)
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.fakes import FakePlugin
from tests.helpers import container, pod
from tests.kubelet.dra import objects as dra_objects
from tests.paths import VECTORS
from tools.replay import admission as replay

GPU = "vendor.com/gpu"


def node_with(count: int | str = 4, **settings: Any) -> InMemoryKubelet:
    return InMemoryKubelet(
        Settings(numa=NumaTopology.of([0, 1]), **settings), {GPU: count}, clock=ManualClock(100.0)
    )


def train(uid: str = "train", count: int = 1) -> Pod:
    return pod(uid, container("app", gpu=count))


# -- simulated devices ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", ()),
        ("3", (None,) * 3),
        ("3@none", (None,) * 3),
        ("3@0,1", (0, 1, 0)),
        ("2@0,3@1", (0, 0, 1, 1, 1)),
    ],
)
def test_places_parses_numa_nodes(text: str, expected: tuple[int | None, ...]) -> None:
    assert places(text) == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "8@", "@0", "8@x", "1,2", "8@0;1"])
def test_places_rejects_invalid_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid devices '.*': use a form such as 8, 8@0,1 or"):
        places(text)


def test_places_rejects_too_many_devices() -> None:
    assert len(places("50000@0,50000@1")) == 100_000
    with pytest.raises(
        TooManyDevices, match=r"^too many devices: use at most 100000; kubelets reject"
    ):
        places("50000@0,50001@1")


def test_numbered_devices_have_ids_of_equal_width() -> None:
    assert list(numbered("vendor.com/gpu", (None,) * 11))[::10] == ["gpu-00", "gpu-10"]
    assert list(numbered("gpu", (0,) * 10))[-1] == "gpu-9"
    assert list(numbered("gpu", (0,), first=9)) == ["gpu-9"]
    assert list(numbered("gpu", (0, 0), first=9)) == ["gpu-09", "gpu-10"]
    devices = (Device(DeviceId("mine"), numa=(1,)),)
    assert simulated_devices({GPU: devices, "v.com/nic": 2, "v.com/fpga": "1@1"}) == {
        GPU: devices,
        "v.com/nic": (Device(DeviceId("nic-0")), Device(DeviceId("nic-1"))),
        "v.com/fpga": (Device(DeviceId("fpga-0"), numa=(1,)),),
    }


# -- pods ----------------------------------------------------------------------------------


def test_pod_is_admitted_and_terminated() -> None:
    node = node_with()
    admission = node.admit(train())
    assert admission.admitted and node.devices("train") == {"app": {GPU: ["gpu-0"]}}
    assert node.pod_status("train").phase == "Running"
    assert node.node_status().allocatable == {GPU: 4}
    node.terminate("train")
    assert node.pods() == {} and node.inventory()[0].pod is None
    node.self_check()


def test_rejection_has_the_kubelets_text() -> None:
    node = node_with(1)
    node.admit(train("first"))
    rejected = node.admit(train("second"))
    assert (rejected.reason, rejected.message) == (
        "UnexpectedAdmissionError",
        "Allocate failed due to requested number of devices unavailable for vendor.com/gpu. "
        "Requested: 1, Available: 0, which is unexpected",
    )
    assert node.pod_status("second").message.startswith("Pod was rejected: Allocate failed")


def test_devices_are_aligned_to_numa_nodes() -> None:
    node = node_with("4@0,1", topology_policy="single-numa-node")
    assert node.admit(train("two", 2)).admitted
    rejected = node.admit(train("three", 3))
    assert (rejected.reason, rejected.message) == (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    )
    assert "policy single-numa-node" in rejected.explain()


def test_decisions_match_the_recorded_scenarios() -> None:
    """Scenarios without preferences and errors of plugins: reason, message and devices agree."""
    lines = (VECTORS / "admission.jsonl").read_text().splitlines()
    played = [each for each in map(json.loads, lines) if plain(each)]
    assert len(played) > 10
    for scenario in played:
        node, manager = recorded(scenario), DeviceManager(replay.settings_of(scenario))
        replay.set_up(manager, scenario)
        for given, step in zip(scenario["pods"], scenario["expect"]["steps"], strict=False):
            wanted = replay.pod_of(given)
            answer = node.admit(wanted, start=False)
            decided = {
                "admit": answer.admitted,
                "reason": answer.reason,
                "message": answer.message,
            }
            assert {**decided, **step}.items() >= decided.items(), (scenario["id"], decided)
            with contextlib.suppress(Rejected):
                manager.admit(wanted)
            assert allocated(node.manager, wanted) == allocated(manager, wanted), scenario["id"]
        node.self_check()


def allocated(manager: DeviceManager, wanted: Pod) -> dict[str, dict[str, frozenset[str]]]:
    return {
        name: {resource: each.ids for resource, each in by_resource.items()}
        for name, by_resource in manager.holdings(wanted.uid).items()
    }


def plain(scenario: dict[str, Any]) -> bool:
    return "config_error" not in scenario["expect"] and not any(
        each["preferred"] or each["allocate_error"] for each in scenario["resources"].values()
    )


def recorded(scenario: dict[str, Any]) -> InMemoryKubelet:
    devices = {
        name: [replay.device_of(each) for each in described["devices"]]
        for name, described in scenario["resources"].items()
    }
    saved = replay.checkpoint_of(scenario["allocated"]) if scenario["allocated"] else None
    node = InMemoryKubelet(replay.settings_of(scenario), devices, saved=saved)
    node.manager.sources_ready(frozenset(scenario["active_pods"] or ()))
    return node


def test_decisions_match_a_mock_kubelet(tmp_path: Path) -> None:
    """The same scenario on both: admissions, rejections, terminations, restart and reboot."""
    settings = Settings(numa=NumaTopology.of([0, 1]), topology_policy="restricted")
    devices = tuple(numbered(GPU, places("4@0,1")).values())

    def scenario(node: Any, reregister: Any) -> list[Any]:
        results: list[Any] = []
        for uid, count in (("a", 2), ("b", 1), ("c", 3), ("d", 1)):
            answer = node.admit(train(uid, count))
            results.append((answer.admitted, answer.reason, answer.message, node.devices(uid)))
        results.append(node.node_status())
        node.terminate("a")
        answer = node.admit(train("e", 2))
        results.append((answer.admitted, node.devices("e")))
        node.restart()
        reregister()
        results.append([(uid, each.phase) for uid, each in node.pods().items()])
        results.append(node.devices("e"))
        node.reboot()
        reregister()
        results += [
            (uid, each.phase, each.reason, each.message) for uid, each in node.pods().items()
        ]
        results.append(node.node_status())
        return results

    in_memory = scenario(InMemoryKubelet(settings, {GPU: devices}), lambda: None)
    with MockKubelet(tmp_path / "k", settings) as whole:

        def serve() -> None:
            plugin = FakePlugin(GPU)
            plugin.register(whole.manager.plugins)
            plugin.send_list(devices)

        serve()
        assert in_memory == scenario(whole, serve)


# -- simulated problems -----------------------------------------------------------------------


def test_device_fails_and_heals() -> None:
    node = node_with()
    node.admit(train())
    node.fail_device(GPU, "gpu-0")
    node.fail_device(GPU, "gpu-0")
    assert node.node_status().allocatable == {GPU: 3}
    (status,) = node.allocated_resources_status("train")["app"]
    assert status.resources[0].health == "Unhealthy"
    assert node.health_updates.get_nowait() == "train" and node.health_updates.empty()
    node.recover_device(GPU, "gpu-0")
    assert node.allocatable() == {GPU: 4}


def test_device_is_lost_and_returned() -> None:
    node = node_with()
    node.admit(train())
    node.lose_device(GPU, "gpu-0")
    assert node.node_status().capacity == {GPU: 3}
    node.lose_device(GPU, "gpu-1")
    assert [each.id for each in node.simulated()[GPU]] == ["gpu-2", "gpu-3"]
    node.return_device(GPU, "gpu-1")
    assert node.node_status().capacity == {GPU: 3}
    node.return_device(GPU, "gpu-0")
    assert node.node_status().capacity == {GPU: 4}
    node.lose_all(GPU)
    assert node.node_status().capacity == {GPU: 0}
    node.return_all(GPU)
    node.lose_device(GPU, "gpu-0")
    assert node.node_status().capacity == {GPU: 3}
    (status,) = node.allocated_resources_status("train")["app"]
    assert status.resources[0].health == "Unknown"


def test_plugin_stops_and_starts() -> None:
    node = node_with()
    node.stop_plugin(GPU)
    node.stop_plugin(GPU)
    assert node.node_status().allocatable == {GPU: 0}
    assert node.node_status().capacity == {GPU: 4}
    assert not node.admit(train()).admitted
    node.clock.advance(301.0)
    assert node.node_status().capacity == {GPU: 0} and node.capacity() == {}
    node.start_plugin(GPU)
    node.start_plugin(GPU)
    assert node.node_status().allocatable == {GPU: 4}


def test_set_devices_replaces_the_list() -> None:
    node = node_with()
    node.set_devices(GPU, 0)
    assert node.node_status().capacity == {GPU: 0}
    node.set_devices("vendor.com/nic", 2)
    assert node.node_status().capacity == {GPU: 0, "vendor.com/nic": 2}
    assert {name: len(each) for name, each in node.simulated().items()} == {
        GPU: 0,
        "vendor.com/nic": 2,
    }


def test_set_devices_of_a_stopped_kubelet_changes_nothing() -> None:
    node = node_with()
    node.stop()
    for resource in (GPU, "vendor.com/nic"):
        with pytest.raises(RequestError, match="not running"):
            node.set_devices(resource, 2)
    node.start()
    assert node.node_status().capacity == {GPU: 4}


def test_fail_allocate_rejects_pods_until_cleared() -> None:
    node = node_with()
    node.fail_allocate(GPU, RpcError("Unknown", "broken"))
    assert "broken" in node.admit(train("one")).message
    node.fail_allocate(GPU, None)
    assert node.admit(train("two")).admitted


def test_errors_name_the_known_devices_and_resources() -> None:
    node = node_with(2)
    with pytest.raises(
        RequestError, match=r"^unknown device 'x' of .*: the resource has gpu-0, gpu-1"
    ):
        node.fail_device(GPU, "x")
    with pytest.raises(
        RequestError, match=r"^unknown resource v\.com/x: the node has vendor\.com/gpu$"
    ):
        node.stop_plugin("v.com/x")
    node.set_devices(GPU, 0)
    with pytest.raises(RequestError, match=r"^unknown device 'gpu-0' of .*: the resource has none"):
        node.lose_device(GPU, "gpu-0")
    with pytest.raises(RequestError, match=r"^unknown resource v\.com/x: the node has none$"):
        InMemoryKubelet().start_plugin("v.com/x")


def test_change_of_one_node_does_not_affect_another() -> None:
    devices = simulated_devices({GPU: 2})
    first, second = (InMemoryKubelet(None, devices) for _ in range(2))
    first.fail_device(GPU, "gpu-0")
    assert (first.allocatable(), second.allocatable()) == ({GPU: 1}, {GPU: 2})


# -- restarts ------------------------------------------------------------------------------


def test_restart_keeps_running_pods() -> None:
    node = node_with()
    node.admit(train())
    node.stop_plugin(GPU)
    node.restart()
    assert node.devices("train") == {"app": {GPU: ["gpu-0"]}}
    assert node.pod("train").phase == "Running" and node.allocatable() == {GPU: 4}
    node.self_check()


def test_restart_restores_the_last_checkpoint() -> None:
    node = node_with()
    node.admit(train())
    node.admit(train("other"))
    node.terminate("train")
    node.restart()
    assert node.devices("other") == {"app": {GPU: ["gpu-1"]}}
    with pytest.raises(RequestError, match=r"^no pod has the UID"):
        node.devices("train")
    node.self_check()


def test_reboot_rejects_pods_whose_plugin_is_not_registered() -> None:
    node = node_with()
    node.admit(train())
    node.admit(pod("plain", container("app")))
    node.reboot()
    assert node.pod("train").reason == "UnexpectedAdmissionError"
    assert node.pod("plain").phase == "Running"
    assert node.admit(train("next")).admitted


def test_reboot_waits_for_plugins_if_configured() -> None:
    node = node_with(wait_for_plugin=5.0)
    node.admit(train())
    node.reboot()
    assert node.pod("train").phase == "Running"


def test_stop_and_start_keep_pods() -> None:
    node = node_with()
    node.admit(train())
    with node:
        pass
    node.stop()
    assert not node.is_serving
    with pytest.raises(RequestError, match=r"^the in-memory kubelet is not running: call start"):
        node.capacity()
    node.start()
    with pytest.raises(RequestError, match=r"^the in-memory kubelet is already running"):
        node.start()
    assert node.devices("train") and node.allocatable() == {GPU: 4}


def test_events_of_a_restart() -> None:
    node = node_with()
    node.admit(train())
    node.stop_plugin(GPU)
    assert node.events.recent(EventKind.STREAM_ENDED)[0].message == (
        "vendor.com/gpu: ListAndWatch stream of in-memory ended: the plugin has disconnected"
    )
    node.restart()
    assert [each.message for each in node.events.recent()] == [
        "checkpoint written",
        "kubelet stopped",
        "in-memory kubelet is running",
        "pod default/train admitted",
        "vendor.com/gpu: plugin in-memory registered",
        "vendor.com/gpu: 4 devices, 4 healthy (4 added)",
        "vendor.com/gpu gpu-0: now Healthy, allocated to pod default/train",
        "checkpoint written",
    ]


def test_stopped_kubelet_has_no_timers() -> None:
    """Neither the grace period of a plugin nor the backoff of a container expires."""
    node = node_with()
    node.admit(train())
    for _ in range(2):
        node.exit_container("train", "app", 1)
    assert isinstance(node.container_statuses("train")["app"].state, Waiting)
    node.stop_plugin(GPU)
    node.stop()
    latest = node.events.latest
    node.clock.advance(1000.0)
    assert node.events.latest == latest
    with pytest.raises(RequestError, match=r"^the in-memory kubelet is not running: call start$"):
        node.sources_ready()
    node.start()
    with pytest.raises(
        RequestError, match=r"^the in-memory kubelet is already running: stop it first$"
    ):
        node.start()


def test_start_pod_starts_a_pending_pod() -> None:
    node = node_with()
    node.admit(train(), start=False)
    assert node.pod_status("train").phase == "Pending"
    node.start_pod("train")
    node.start_pod("train")
    assert node.pod_status("train").phase == "Running"
    status = node.container_statuses("train")["app"]
    assert status.restart_count == 0 and status.name == ContainerName("app")


def test_nodes_share_settings_and_devices() -> None:
    settings, devices = Settings(), simulated_devices({GPU: 8})
    nodes = [InMemoryKubelet(settings, devices) for _ in range(20)]
    assert all(each.simulated()[GPU] is devices[GPU] for each in nodes)
    assert all(each.settings is settings for each in nodes)


class OneClaim:
    """A source of ResourceClaims with one claim, reserved for the pod ``train``."""

    def fetch(self, namespace: str, name: str) -> dict[str, Any]:
        users = [{"resource": "pods", "name": "train", "uid": "uid-train"}]
        found = dra_objects.claim(name, "gpu-0", status={"reservedFor": users})
        found["metadata"]["namespace"] = namespace
        return found


def test_pod_that_waits_for_its_driver_ends_on_a_kubelet_without_dra() -> None:
    driver = dra_objects.DRIVER
    node = InMemoryKubelet(clock=ManualClock(), drivers={driver: ["gpu-0"]})
    node.use_claims(OneClaim())
    node.admit(dra_objects.pod())
    node.stop_plugin(driver)
    node.finish("uid-train")
    assert node.pod("uid-train").phase == "Running"
    assert f"{driver} is not registered" in node.pod_store.known("uid-train").sync_error
    # In 1.33, the feature gate is off by default.
    node.start_again(Settings(kubelet_version="1.33"))
    assert node.pod("uid-train").phase == "Succeeded"
    record = node.pod_store.known("uid-train")
    assert (record.sync_error, record.sync_at, record.is_ending) == ("", None, False)


def test_pod_that_waits_for_its_driver_runs_on_a_kubelet_without_dra() -> None:
    node = InMemoryKubelet(clock=ManualClock())
    node.use_claims(OneClaim())
    node.admit(dra_objects.pod())
    assert "is not registered" in node.pod_store.known("uid-train").sync_error
    node.start_again(Settings(kubelet_version="1.33"))
    assert node.pod("uid-train").phase == "Running"
    record = node.pod_store.known("uid-train")
    assert (record.sync_error, record.sync_at) == ("", None)


def test_pod_that_ends_during_the_request_for_its_claim_holds_no_claim() -> None:
    class Ending(OneClaim):
        def fetch(self, namespace: str, name: str) -> dict[str, Any]:
            node.terminate("uid-train")
            return super().fetch(namespace, name)

    node = InMemoryKubelet(clock=ManualClock(), drivers={dra_objects.DRIVER: ["gpu-0"]})
    node.use_claims(Ending())
    node.admit(dra_objects.pod())
    assert node.held_claims("uid-train") == ()


def test_claims_are_unprepared_if_a_kubelet_without_dra_ran_in_between() -> None:
    node = InMemoryKubelet(clock=ManualClock(), drivers={dra_objects.DRIVER: ["gpu-0"]})
    node.use_claims(OneClaim())
    node.admit(dra_objects.pod())
    for version in "1.33", "1.36":
        node.start_again(Settings(kubelet_version=version))
    assert [each.name for each in node.held_claims("uid-train")] == ["gpu"]
    node.finish("uid-train")
    assert node.held_claims("uid-train") == ()


class Claims:
    """Claims whose device is the part of the name after the dash, reserved for all pods."""

    def __init__(self, **result: Any) -> None:
        self.result = result

    def fetch(self, namespace: str, name: str) -> dict[str, Any]:
        users = [
            {"resource": "pods", "name": uid[4:], "uid": uid} for uid in ("uid-one", "uid-two")
        ]
        found = dra_objects.claim(name, name.rpartition("-")[2], status={"reservedFor": users})
        found["metadata"]["namespace"] = namespace
        found["status"]["allocation"]["devices"]["results"][0].update(self.result)
        return found


def dra_node(**result: Any) -> InMemoryKubelet:
    drivers = {dra_objects.DRIVER: ["0", "1"], "other.example.com": ["0"]}
    node = InMemoryKubelet(clock=ManualClock(1000.0), drivers=drivers)
    node.use_claims(Claims(**result))
    return node


def with_claim(name: str, claim: str) -> dict[str, Any]:
    return dra_objects.pod(name, {"gpu": claim})


def sync_error(node: InMemoryKubelet, uid: str) -> str:
    return node.pod_store.known(uid).sync_error


@pytest.mark.parametrize("sharing", [{"adminAccess": True}, {"shareID": "s"}, {}])
def test_device_of_two_claims_must_be_shared(sharing: dict[str, Any]) -> None:
    node = dra_node(**sharing)
    node.admit(with_claim("one", "a-0"))
    node.admit(with_claim("two", "b-0"))
    if sharing:
        assert sync_error(node, "uid-two") == ""
        assert node.pod("uid-two").phase == "Running"
    else:
        assert ("device mock/0 is allocated twice: ResourceClaim default/a-0 has it") in sync_error(
            node, "uid-two"
        )


def test_claims_with_different_devices_or_one_claim_of_two_pods_are_prepared() -> None:
    for claims in (("a-0", "b-1"), ("a-0", "a-0")):
        node = dra_node()
        node.admit(with_claim("one", claims[0]))
        node.admit(with_claim("two", claims[1]))
        assert [sync_error(node, uid) for uid in ("uid-one", "uid-two")] == ["", ""]


def test_container_gets_the_cdi_devices_of_its_claims() -> None:
    node = dra_node(request="gpu/large", shareID="s")
    node.admit(with_claim("one", "a-1"))
    (container,) = node.pod("uid-one").containers
    assert container.cdi_devices == ("k8s.gpu.example.com/claim=uid-a-1-1",)


@pytest.mark.parametrize(
    ("delay", "seconds", "phase"),
    [
        (0.0, 0.0, "Running"),
        (3.0, 3.0, "Running"),
        (44.0, 44.0, "Running"),
        (46.0, 45.0, "Pending"),
    ],
)
def test_slow_driver_responds_later_or_not_at_all(delay: float, seconds: float, phase: str) -> None:
    node = dra_node()
    node.delay_prepare(dra_objects.DRIVER, delay)
    node.admit(with_claim("one", "a-0"))
    if seconds:
        node.clock.advance(seconds - 0.5)
        assert node.pod("uid-one").phase == "Pending"
        assert sync_error(node, "uid-one") == f"waiting {seconds:g} s for a driver"
        node.clock.advance(0.5)
    assert node.pod("uid-one").phase == phase
    assert ("DeadlineExceeded" in sync_error(node, "uid-one")) is (phase == "Pending")


def test_injected_failures_of_a_driver_end() -> None:
    node = dra_node()
    node.fail_prepare(dra_objects.DRIVER, 1)
    node.admit(with_claim("one", "a-0"))
    assert "injected fault: prepare fails" in sync_error(node, "uid-one")
    node.clock.advance(120.0)
    assert node.pod("uid-one").phase == "Running" and sync_error(node, "uid-one") == ""
    node.fail_unprepare(dra_objects.DRIVER)
    node.finish("uid-one")
    assert "injected fault: unprepare fails" in sync_error(node, "uid-one")
    node.fail_unprepare(dra_objects.DRIVER, False)
    node.clock.advance(120.0)
    assert node.pod("uid-one").phase == "Succeeded" and node.held_claims("uid-one") == ()


def test_driver_fails_until_its_fault_ends() -> None:
    node = dra_node()
    node.fail_prepare(dra_objects.DRIVER)
    node.admit(with_claim("one", "a-0"))
    node.clock.advance(1000.0)
    assert node.pod("uid-one").phase == "Pending"
    node.fail_prepare(dra_objects.DRIVER, 0)
    node.clock.advance(120.0)
    assert node.pod("uid-one").phase == "Running"


def test_health_of_a_claim_is_that_of_its_driver() -> None:
    node = dra_node()
    node.admit(with_claim("one", "a-0"))

    def health() -> list[str]:
        status = node.allocated_resources_status("uid-one")
        return [str(one.health) for each in status["main"] for one in each.resources]

    def change(**fields: Any) -> None:
        node.drivers.change(dra_objects.DRIVER, lambda state: attrs.evolve(state, **fields))

    assert health() == ["Healthy"]
    for fields, expected in [
        ({"unhealthy": frozenset("0")}, "Unhealthy"),
        ({"unhealthy": frozenset("1")}, "Healthy"),
        ({"unhealthy": frozenset(), "lost": frozenset("0")}, "Unhealthy"),
        ({"is_stopped": True}, "Unknown"),
        ({"is_stopped": False, "lost": frozenset()}, "Healthy"),
    ]:
        change(**fields)
        assert health() == [expected], fields
