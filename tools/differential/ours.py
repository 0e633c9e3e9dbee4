"""Run a scenario in the mock kubelet; outcomes have the format of the Go program's.

Plugins are fakes without sockets; the kubelet, the checkpoint file and the PodResources
server are the product's.
"""

from __future__ import annotations

import base64
import queue
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

import checkpoint
from devicemanager.core.errors import AllocationError, EndpointError
from devicemanager.core.ids import PodUid
from devicemanager.core.topology import NumaTopology, TopologyConfigError
from devicemanager.core.versions.quirks import quirks_of
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.objects import manifests
from devicemanager.testing.fakes import FakeCall
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from protos import podresources_v1 as pr
from protos import podresources_v1_grpc as pr_grpc
from protos import podresources_v1alpha1 as old
from protos import podresources_v1alpha1_grpc as old_grpc
from tools.differential.deviations import steps_of
from tools.differential.plain import plain_affinity, plain_answer, plain_options
from tools.differential.reference import PLUGIN_DIR
from tools.replay.admission import checkpoint_of
from tools.replay.scenario import (
    Plain,
    ScenarioPlugin,
    device_of,
    manifest,
    plain_call,
    plain_hints,
)

Outcomes = list[Plain]


def play(scenario: Mapping[str, Any], version: str) -> Plain:
    """Return ``{"runs": [outcomes]}`` or ``{"config_error": text}``, like the reference."""
    try:
        settings = _settings(scenario, version)
    except TopologyConfigError as error:
        return {"config_error": str(error)}
    steps = steps_of(scenario)
    with _kubelet(scenario, settings) as kubelet:
        node = _Node(kubelet, scenario)
        return {"runs": [[node.step(step, step is steps[-1]) for step in steps]]}


def _settings(scenario: Mapping[str, Any], version: str) -> Settings:
    return Settings(
        kubelet_version=version,
        feature_gates=scenario.get("feature_gates") or {},
        numa=NumaTopology.of(scenario["numa_nodes"], scenario.get("numa_distances")),
        topology_policy=scenario["policy"],
        topology_scope=scenario["scope"],
        topology_options=scenario.get("policy_options") or {},
        # The reference has no rate limit, and it has all bugs of its version. Flushing files
        # would only take time.
        pod_resources_qps=None,
        durability="process",
        # Not Q27: in the reference, a container that is started again has not restarted.
        quirks=quirks_of(KubeletVersion.parse(version)) - {"Q27"},
    )


@contextmanager
def _kubelet(scenario: Mapping[str, Any], settings: Settings) -> Iterator[MockKubelet]:
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as root:
        if scenario.get("allocated"):
            directory = Path(root, "device-plugins")
            directory.mkdir()
            text = checkpoint.dumps(checkpoint_of(scenario["allocated"]))
            checkpoint.FileStore(directory).write(text)
        with MockKubelet(root, settings=settings) as kubelet:
            yield kubelet


class _Node:
    """Mock kubelet with its plugins."""

    def __init__(self, kubelet: MockKubelet, scenario: Mapping[str, Any]) -> None:
        self._kubelet = kubelet
        self._quiet = bool(scenario.get("quiet"))
        self._plugins: dict[str, ScenarioPlugin] = {}
        self._old: dict[str, list[ScenarioPlugin]] = {}
        self._names = 0
        self._calls: list[Plain] = []
        for resource, described in sorted(scenario.get("resources", {}).items()):
            self._register(resource, described)
        kubelet.manager.sources_ready(frozenset(map(PodUid, scenario.get("active_pods") or ())))
        self._drain_health()

    # -- steps -----------------------------------------------------------------------

    def step(self, step: Mapping[str, Any], last: bool) -> Plain:
        (kind,) = step
        outcome: Plain = getattr(self, f"_do_{kind}")(step[kind])
        return outcome | self._observe(last)

    def _do_admit(self, pod: Mapping[str, Any]) -> Plain:
        # Before the admission, which changes the free devices and with them the hints.
        parsed = manifests.parse(manifest(pod))
        behaviour = self._kubelet.settings.behaviour
        if not behaviour.sidecars and not behaviour.forbids_sidecars:
            parsed = parsed.without_sidecars()  # unknown to the API, as in ``PodWorkers.admit``
        first, whole = self._kubelet.manager.hints(parsed)
        admission = self._kubelet.admit(manifest(pod), start=False)
        found = {
            "admit": admission.admitted,
            "reason": admission.reason,
            "message": admission.message,
            "hints": {"container": plain_hints(first), "pod": plain_hints(whole)},
        }
        return found | ({"affinity": plain_affinity(admission)} if admission.admitted else {})

    def _do_register(self, described: Mapping[str, Any]) -> Plain:
        if described.get("version"):
            self._names += 1
            return {"registered": self._rejected(described)}
        try:
            self._register(
                described["resource"], described, same_socket=described.get("same_socket", False)
            )
        except EndpointError as error:
            # The reference names the socket's path in its own directory.
            return {"registered": str(error).replace("plugin-", f"{PLUGIN_DIR}/plugin-")}
        return {"registered": ""}

    def _rejected(self, described: Mapping[str, Any]) -> str:
        """Return the error of a registration that the kubelet rejects before it connects."""
        with grpc.insecure_channel(sockets.target(self._kubelet.plugin_socket)) as channel:
            request = dp.RegisterRequest(
                version=described["version"],
                endpoint="rejected.sock",
                resource_name=described["resource"],
            )
            try:
                dp_grpc.RegistrationStub(channel).Register(request)
            except grpc.RpcError as error:
                return str(error.details())
        raise AssertionError("the kubelet accepted a registration with an unknown version")

    def _register(
        self, resource: str, described: Mapping[str, Any], *, same_socket: bool = False
    ) -> None:
        before = self._plugins.get(resource)
        self._names += 1
        name = f"plugin-{self._names}.sock"
        if same_socket and before is not None:
            name = before.name

        def record(call: FakeCall) -> None:
            self._calls.append(plain_call(call) | {"resource": resource})

        plugin = ScenarioPlugin(name, resource, described, record)
        plugin.register(self._kubelet.manager.plugins, name)
        # The kubelet does not disconnect a replaced plugin: it can still disconnect later.
        if before is not None:
            self._old.setdefault(resource, []).append(before)
        self._plugins[resource] = plugin
        if described.get("devices") is not None:
            plugin.send_list(map(device_of, described["devices"]))

    def _do_list(self, described: Mapping[str, Any]) -> Plain:
        self._plugins[described["resource"]].send_list(map(device_of, described["devices"]))
        return {}

    def _do_stop(self, resource: str) -> Plain:
        self._plugins.pop(resource).leave()
        return {}

    def _do_stop_old(self, resource: str) -> Plain:
        if self._old.get(resource):
            self._old[resource].pop().leave()
        return {}

    def _do_start(self, uid: str) -> Plain:
        if not self._kubelet.pods()[uid].is_active:
            return {}
        return {"started": {name: self._start(uid, name) for name in self._containers(uid)}}

    def _containers(self, uid: str) -> list[str]:
        return [container.name for container in self._kubelet.pod(uid).all_containers]

    def _start(self, uid: str, container: str) -> Plain:
        try:
            return plain_options(self._kubelet.start_container(uid, container))
        except AllocationError as error:
            return {"error": str(error)}

    def _do_finish(self, uid: str) -> Plain:
        if self._kubelet.pods()[uid].is_active:
            self._kubelet.finish(uid)
        return {}

    def _do_delete(self, uid: str) -> Plain:
        self._kubelet.terminate(uid)
        return {}

    def _do_restart(self, how: str) -> Plain:
        before = [uid for uid, record in self._kubelet.pods().items() if record.is_active]
        if how == "reboot":
            self._kubelet.reboot()
        else:
            self._kubelet.restart()
        # A kubelet restart ends all connections; the scenario registers plugins again.
        self._plugins.clear()
        self._old.clear()
        records = self._kubelet.pods()
        return {
            "readmitted": {
                uid: {
                    "admit": records[uid].is_active,
                    "reason": records[uid].reason,
                    "message": records[uid].message,
                }
                for uid in before
            }
        }

    # -- observation -----------------------------------------------------------------

    def _observe(self, last: bool) -> Plain:
        kubelet = self._kubelet
        calls, self._calls[:] = list(self._calls), []
        path = kubelet.checkpoint_path
        found: Plain = {
            "calls": calls,
            "capacity": kubelet.capacity(),
            "allocatable": kubelet.allocatable(),
            "health_updates": self._drain_health(),
            "devices": {uid: self._allocated(uid) for uid in kubelet.pods()},
            "status": {uid: self._status(uid) for uid in kubelet.pods()},
            "written": path.exists(),
            "checkpoint": base64.b64encode(path.read_bytes()).decode() if path.exists() else None,
        }
        # List frees devices of ended pods in the reference (Q10), so quiet scenarios avoid it.
        if not self._quiet or last:
            found["lists"] = self._lists()
        kubelet.manager.self_check()
        kubelet.check()
        return found

    def _drain_health(self) -> list[str]:
        found: list[str] = []
        try:
            while True:
                found.append(str(self._kubelet.health_updates.get_nowait()))
        except queue.Empty:
            return found

    def _allocated(self, uid: str) -> Plain:
        devices = self._kubelet.devices(uid)
        return {name: devices.get(name, {}) for name in self._containers(uid)}

    def _status(self, uid: str) -> Plain:
        status = self._kubelet.allocated_resources_status(uid)
        return {
            container: {
                str(resource.name): {
                    str(device.resource_id): str(device.health) for device in resource.resources
                }
                for resource in resources
            }
            for container, resources in status.items()
        }

    def _lists(self) -> Plain:
        with grpc.insecure_channel(
            sockets.target(self._kubelet.pod_resources_socket),
            [("grpc.use_local_subchannel_pool", 1)],
        ) as channel:
            v1 = pr_grpc.PodResourcesListerStub(channel)
            alpha = old_grpc.PodResourcesListerStub(channel)
            found = {
                "list": plain_answer(v1.List, pr.ListPodResourcesRequest()),
                "list_v1alpha1": plain_answer(alpha.List, old.ListPodResourcesRequest()),
                "allocatable": plain_answer(
                    v1.GetAllocatableResources, pr.AllocatableResourcesRequest()
                ),
            }
            # The first name is not the name of a pod.
            for name in ("missing", *self._kubelet.pods()):
                request = pr.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
                found[f"get {name}"] = plain_answer(v1.Get, request)
        return found
