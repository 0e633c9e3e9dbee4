"""Run a lively scenario (``lively``): pods are admitted, run and end, and plugins come and go.

Theory of operation. A scenario runs on a ``MockKubelet`` with its real files and its real
PodResources service. Plugins are fakes without sockets. After each operation, ``_Node._observe``
collects the whole state of the node, and ``lively_expected`` compares it with the recorded one.
README-lively.md beside the vectors has the format.

The scenarios were recorded with a kubelet that one thread called. Here, nothing runs concurrently,
either: a list is processed when ``send_list`` returns.
"""

from __future__ import annotations

import base64
import json
import queue
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import grpc

import checkpoint
from devicemanager.core.api.deviceplugin import VERSION
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.errors import AllocationError, EndpointError, KubeletPanic
from devicemanager.core.ids import PodUid
from devicemanager.core.runoptions import RunOptions
from devicemanager.core.topology import NumaTopology, TopologyConfigError
from devicemanager.core.versions.gates import step_at
from devicemanager.core.versions.quirks import quirks_of
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.events.stream import Event, EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.pods.admission import Admission
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

__all__ = ["play"]
from tools.replay.scenario import (
    Plain,
    ScenarioPlugin,
    affinity_of,
    device_of,
    manifest,
    plain_call,
    plain_hints,
    response_of,
)

Described = Mapping[str, Any]

_GRACE: Final = 360.0
_PANIC: Final = re.compile(r"^panic: | \(Q\d+\)$")
_ENDPOINT: Final = re.compile(r"endpoint \S+ has")
"""An endpoint in an error text. Go prints its address; the vectors have a star instead."""


def play(scenario: Described, version: str) -> Plain:
    """Return ``{"steps": [...]}`` or ``{"config_error": text}``. A step has every fact of the
    format, with the whole state. After a panic there are no more steps, but ``"panic": text``."""
    try:
        settings = _settings(scenario, version)
    except TopologyConfigError as error:
        return {"config_error": str(error)}
    with _kubelet(scenario, settings) as kubelet:
        node = _Node(kubelet, scenario)
        played: Plain = {"steps": []}
        try:
            for op in scenario["ops"]:
                played["steps"].append(node.step(op))
        except KubeletPanic as panic:
            played["panic"] = _PANIC.sub("", str(panic))
        return played


def _settings(scenario: Described, version: str) -> Settings:
    return Settings(
        kubelet_version=version,
        feature_gates=_known_gates(scenario.get("feature_gates") or {}, version),
        numa=NumaTopology.of(scenario["numa_nodes"], scenario.get("numa_distances")),
        topology_policy=scenario["policy"],
        topology_scope=scenario["scope"],
        topology_options=scenario.get("policy_options") or {},
        pod_resources_qps=None,
        durability="process",
        # Not Q27: in the vectors, a container that is started again has not restarted.
        quirks=quirks_of(KubeletVersion.parse(version)) - {"Q27"},
    )


@contextmanager
def _kubelet(scenario: Described, settings: Settings) -> Iterator[MockKubelet]:
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as root:
        if "checkpoint" in scenario:
            path = Path(root, "device-plugins", "kubelet_internal_checkpoint")
            path.parent.mkdir()
            path.write_bytes(base64.b64decode(scenario["checkpoint"]))
        with MockKubelet(root, settings=settings, clock=ManualClock()) as kubelet:
            yield kubelet


class _Plugin(ScenarioPlugin):
    """A plugin with a number. It records its calls before it responds."""

    def __init__(self, number: int, name: str, resource: str, described: Described, log: _Calls):
        super().__init__(name, resource, described, lambda call: log.add(resource, number, call))


def _responses(scenario: Described) -> Iterator[tuple[str, bytes]]:
    """Yield resource and response of each plugin of the scenario, in the order of registration."""
    for resource, described in sorted(scenario.get("resources", {}).items()):
        yield resource, response_of(described)
    for op in scenario["ops"]:
        registered = [op["register"]] if "register" in op else []
        for each in (*registered, *op.get("restart", {}).get("before", ())):
            yield each["resource"], response_of(each)


class _Calls:
    """Calls since the last step, by resource."""

    def __init__(self) -> None:
        self._calls: dict[str, list[Plain]] = {}

    def add(self, resource: str, plugin: int, call: FakeCall) -> None:
        about = plain_call(call) | {"plugin": plugin}
        self._calls.setdefault(resource, []).append(about)

    def take(self) -> dict[str, list[Plain]]:
        calls, self._calls = self._calls, {}
        return calls


@attrs.define
class _Resource:
    """The plugins of a resource, as operations refer to them."""

    latest: _Plugin | None = None
    """The plugin that registered last, unless it has ended."""
    socket: str = ""
    """The socket of the plugin that registered last."""
    replaced: list[_Plugin] = attrs.field(factory=list)
    """Plugins that were replaced and still run, in the order of their registrations."""


class _Node:
    """A mock kubelet and its plugins."""

    def __init__(self, kubelet: MockKubelet, scenario: Described) -> None:
        self._kubelet = kubelet
        self._has_health = kubelet.settings.behaviour.reports_resource_health
        self._active = frozenset(map(PodUid, scenario.get("active_pods") or ()))
        self._resources: dict[str, _Resource] = {}
        self._responses = list(_responses(scenario))
        self._pods: dict[str, Described] = {}
        self._number = 0
        self._calls = _Calls()
        self._saved: Plain | None = None
        self._before: Iterable[Described] = ()
        kubelet.events.subscribe(self._register_early)
        for resource, described in sorted(scenario.get("resources", {}).items()):
            self._register(resource, described)
        self._sources_ready()
        self._calls.take()
        self._drain_health()
        self._file = self._file_identity()

    def _sources_ready(self) -> None:
        known = frozenset(map(PodUid, self._kubelet.pods()))
        self._kubelet.manager.sources_ready(self._active | known)

    # -- operations ------------------------------------------------------------------

    def step(self, op: Described) -> Plain:
        """Perform an operation, and return the state of the node after it."""
        (kind,) = op.keys() - {"lists", "no_hints"}
        if kind == "admit":
            outcome = self._admit(op["admit"], with_hints=not op.get("no_hints"))
        else:
            outcome = getattr(self, f"_do_{kind}")(op[kind])
        return outcome | self._observe(bool(op.get("lists")))

    def _admit(self, pod: Described, *, with_hints: bool) -> Plain:
        found: Plain = {}
        if with_hints:
            first, whole = self._kubelet.manager.hints(manifests.parse(manifest(pod)))
            found["hints"] = {"container": plain_hints(first), "pod": plain_hints(whole)}
        admission = self._kubelet.admit(manifest(pod), start=False)
        found |= {
            "admit": admission.admitted,
            "reason": admission.reason,
            "message": _plain(admission.message),
        }
        if admission.admitted:
            self._pods[pod["uid"]] = pod
            found["affinity"] = _affinity(admission)
        return found

    def _do_start(self, uid: str) -> Plain:
        if not self._is_active(uid):
            return {}
        info = self._kubelet.pod(uid)
        return {"started": {each.name: self._start(uid, each.name) for each in info.all_containers}}

    def _start(self, uid: str, container: str) -> Plain | None:
        try:
            options = self._kubelet.start_container(uid, container)
        except (AllocationError, EndpointError) as error:
            return {"error": _plain(str(error))}
        if container not in self._kubelet.devices(uid):
            return None
        limits = self._limits(uid, container)
        return _options(options, in_order=sum(map(bool, limits.values())) == 1)

    def _limits(self, uid: str, container: str) -> Mapping[str, int]:
        pod = self._pods[uid]
        every = (*pod["containers"], *(pod.get("init_containers") or ()))
        return next(each.get("limits") or {} for each in every if each["name"] == container)

    def _is_active(self, uid: str) -> bool:
        return self._kubelet.has_pod(uid) and self._kubelet.pod(uid).is_active

    def _do_finish(self, uid: str) -> Plain:
        if self._is_active(uid):
            self._kubelet.finish(uid)
        return {}

    def _do_delete(self, uid: str) -> Plain:
        self._kubelet.terminate(uid)
        return {}

    def _do_list(self, described: Described) -> Plain:
        plugin = self._resource(described["resource"]).latest
        self._send(plugin, described["devices"])
        return {}

    def _do_list_old(self, described: Described) -> Plain:
        replaced = self._resource(described["resource"]).replaced
        self._send(replaced[-1] if replaced else None, described["devices"])
        return {}

    @staticmethod
    def _send(plugin: _Plugin | None, devices: Iterable[Described] | None) -> None:
        if plugin is not None and not plugin.closed and devices is not None:
            # A device without health is healthy.
            plugin.send_list(device_of({"health": "Healthy", **each}) for each in devices)

    def _do_register(self, described: Described) -> Plain:
        return {"registered": self._register(described["resource"], described)}

    def _register(self, resource: str, described: Described) -> str:
        self._number += 1
        name = f"plugin-{self._number}.sock"
        if described.get("same_socket"):
            name = self._resource(resource).socket or name
        if error := self._rejection(resource, described.get("version", VERSION), name):
            return error
        plugin = _Plugin(self._number, name, resource, described, self._calls)
        try:
            plugin.register(self._kubelet.manager.plugins, name)
        except EndpointError as error:
            return str(error).replace(name, f"DIR/{name}", 1)
        place = self._resource(resource)
        place.socket = name
        if place.latest is not None:
            place.replaced.append(place.latest)
        place.latest = plugin
        self._send(plugin, described.get("devices"))
        return ""

    def _rejection(self, resource: str, version: str, endpoint: str) -> str:
        """Return the error of a registration that is rejected before the kubelet dials."""
        if version == VERSION and is_extended_resource_name(resource):
            return ""
        with grpc.insecure_channel(sockets.target(self._kubelet.plugin_socket)) as channel:
            request = dp.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
            try:
                dp_grpc.RegistrationStub(channel).Register(request)
            except grpc.RpcError as error:
                return str(error.details())
        raise AssertionError(f"the registration of {resource} was accepted")

    def _do_stop(self, resource: str) -> Plain:
        place = self._resource(resource)
        if place.latest is not None:
            place.latest.leave()
            place.latest = None
        return {}

    def _do_stop_old(self, resource: str) -> Plain:
        replaced = self._resource(resource).replaced
        if replaced:
            replaced.pop().leave()
        return {}

    def _do_grace(self, _: str) -> Plain:
        clock = self._kubelet.clock
        assert isinstance(clock, ManualClock)
        clock.advance(_GRACE)
        return {}

    def _do_restart(self, how: Described) -> Plain:
        kubelet = self._kubelet
        before = [uid for uid, pod in kubelet.pods().items() if pod.is_active]
        kubelet.stop()
        self._resources.clear()
        if how["how"] == "reboot":
            kubelet.pod_store.containers_stop()
        if "checkpoint" in how:
            kubelet.checkpoint_path.write_bytes(base64.b64decode(how["checkpoint"]))
        if how.get("lost"):
            kubelet.checkpoint_path.unlink(missing_ok=True)
        self._file = self._file_identity()
        self._before = how.get("before") or ()
        kubelet.start()
        self._sources_ready()
        pods = kubelet.pods()
        return {
            "readmitted": {
                uid: {
                    "admit": pods[uid].is_active,
                    "reason": pods[uid].reason,
                    "message": _plain(pods[uid].message),
                }
                for uid in before
            }
        }

    def _register_early(self, event: Event) -> None:
        """Register the plugins that return before pods are admitted again."""
        if event.kind is EventKind.STARTED:
            described, self._before = self._before, ()
            for each in described:
                self._register(each["resource"], each)

    def _resource(self, name: str) -> _Resource:
        return self._resources.setdefault(name, _Resource())

    # -- what can be observed --------------------------------------------------------

    def _observe(self, with_lists: bool) -> Plain:
        kubelet = self._kubelet
        # First: the capacity removes resources whose grace period is over.
        capacity, allocatable = kubelet.capacity(), kubelet.allocatable()
        file = self._file_identity()
        is_written = file != self._file and file is not None
        self._file = file
        if is_written:
            self._saved = self._checkpoint()
        found: Plain = {
            "calls": self._calls.take(),
            "health_updates": self._drain_health(),
            "written": is_written,
        }
        # Taken before PodResources is called, which frees devices of inactive pods.
        state: Plain = {
            "capacity": capacity,
            "allocatable": allocatable,
            "devices": {uid: self._devices(uid) for uid in kubelet.pods()},
            "status": {uid: self._status(uid) for uid in kubelet.pods()}
            if self._has_health
            else {},
        }
        if self._saved is not None:
            state["checkpoint"] = self._saved
        if with_lists:
            found["lists"] = self._lists()
        kubelet.manager.self_check()
        return found | {"state": state}

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            status = self._kubelet.checkpoint_path.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _drain_health(self) -> list[str]:
        found: set[str] = set()
        try:
            while True:
                found.add(str(self._kubelet.health_updates.get_nowait()))
        except queue.Empty:
            return sorted(found) if self._has_health else []

    def _devices(self, uid: str) -> Plain:
        # An earlier pod with this UID can have had other containers.
        names = {each.name for each in self._kubelet.pod(uid).all_containers}
        return {
            container: {name: sorted(ids) for name, ids in resources.items()}
            for container, resources in self._kubelet.devices(uid).items()
            if container in names
        }

    def _status(self, uid: str) -> Plain:
        return {
            container: {
                str(resource.name): _health(
                    {str(each.resource_id): str(each.health) for each in resource.resources}
                )
                for resource in resources
            }
            for container, resources in self._kubelet.allocated_resources_status(uid).items()
        }

    def _checkpoint(self) -> Plain:
        saved = checkpoint.loads(self._kubelet.checkpoint_path.read_bytes())
        entries: dict[str, list[Plain]] = {}
        for entry in saved.entries or ():
            key = f"{entry.pod_uid}/{entry.container_name}/{entry.resource_name}"
            devices = {
                str(node): sorted(ids or ()) for node, ids in (entry.device_ids or {}).items()
            }
            response = self._number_of(entry.resource_name, entry.alloc_resp or b"")
            entries.setdefault(key, []).append({"devices": devices, "response": response})
        registered = saved.registered_devices or {}
        return {
            "entries": {
                key: each[0] if len(each) == 1 else {"twice": each} for key, each in entries.items()
            },
            "registered": {name: sorted(ids or ()) for name, ids in registered.items()},
        }

    def _number_of(self, resource: str, response: bytes) -> int | str:
        """Return the lowest number of a plugin of the resource with this response."""
        for number, each in enumerate(self._responses, start=1):
            if each == (resource, response):
                return number
        return base64.b64encode(response).decode()

    def _lists(self) -> Plain:
        with grpc.insecure_channel(
            sockets.target(self._kubelet.pod_resources_socket),
            [("grpc.use_local_subchannel_pool", 1)],
        ) as channel:
            v1 = pr_grpc.PodResourcesListerStub(channel)
            alpha = old_grpc.PodResourcesListerStub(channel)
            listed = _pods(v1.List(pr.ListPodResourcesRequest()).pod_resources)
            older = alpha.List(old.ListPodResourcesRequest()).pod_resources
            allocatable = v1.GetAllocatableResources(pr.AllocatableResourcesRequest())
            return {
                "list": listed,
                "list_v1alpha1": _pods(older, with_nodes=False),
                "allocatable": _by_resource(allocatable.devices),
                "get": {name: _get(v1, name, listed) for name in ("nobody", *self._kubelet.pods())},
            }


def _plain(text: str) -> str:
    return _ENDPOINT.sub("endpoint * has", text)


def _affinity(admission: Admission) -> Plain:
    """Return the hint to which each container is aligned."""
    # Only the explanation has the whole hint.
    explanation = admission.explanation
    assert explanation is not None
    merged = {step.container: step.merge.affinity for step in explanation.steps if step.merge}
    found = {}
    for name in admission.containers:
        hint = merged.get(name, merged.get(None))
        found[name] = affinity_of(hint)
    return found


def _options(options: RunOptions, *, in_order: bool) -> Plain:
    lists: dict[str, list[Any]] = {
        "mounts": [
            [each.container_path, each.host_path, each.read_only] for each in options.mounts
        ],
        "devices": [
            [each.container_path, each.host_path, each.permissions] for each in options.devices
        ],
        "cdi_devices": list(options.cdi_devices),
    }
    if not in_order:
        lists = {name: sorted(each, key=_json) for name, each in lists.items()}
    found: Plain = {"envs": dict(options.envs), "annotations": dict(options.annotations)} | lists
    return {name: value for name, value in found.items() if value}


def _health(devices: Mapping[str, str]) -> str | Plain:
    kinds = sorted(set(devices.values()))
    if len(kinds) == 1:
        return kinds[0]
    return {
        kind: sorted(id_ for id_, health in devices.items() if health == kind) for kind in kinds
    }


def _pods(pods: Iterable[Any], *, with_nodes: bool = True) -> Plain:
    return {
        f"{pod.namespace}/{pod.name}": {
            container.name: _by_resource(container.devices, with_nodes=with_nodes)
            for container in pod.containers
        }
        for pod in pods
    }


def _by_resource(devices: Iterable[Any], *, with_nodes: bool = True) -> Plain:
    found: dict[str, list[list[Any]]] = {}
    for each in devices:
        rows = found.setdefault(each.resource_name, [])
        for id_ in each.device_ids:
            if not with_nodes:
                rows.append([id_])
                continue
            nodes = [node.ID for node in each.topology.nodes] if each.HasField("topology") else None
            rows.append([id_, nodes])
    return {resource: sorted(rows, key=_json) for resource, rows in found.items()}


def _get(stub: Any, name: str, listed: Plain) -> Any:
    request = pr.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
    try:
        answer = stub.Get(request)
    except grpc.RpcError as error:
        return {"error": str(error.details())}
    found = _pods([answer.pod_resources])
    title = f"default/{name}"
    return "as in list" if found.get(title) == listed.get(title) else found


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _known_gates(gates: Mapping[str, bool], version: str) -> dict[str, bool]:
    """Return the gates that a kubelet of the version knows; it ignores the others."""
    parsed = KubeletVersion.parse(version)
    return {name: on for name, on in gates.items() if step_at(name, parsed) is not None}
