"""Run a scenario in the mock kubelet. Results have the same format as those of the Go program.

Plugins are fakes without sockets, or with ``sockets=True`` servers on real sockets (``plugins``).
The kubelet, the checkpoint file and the PodResources server are those of the product.
"""

from __future__ import annotations

import base64
import queue
import tempfile
from collections.abc import Callable, Iterator, Mapping
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
from devicemanager.core.topology import NumaTopology, TopologyConfigError
from devicemanager.core.versions.gates import step_at
from devicemanager.core.versions.quirks import quirks_of
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.events.stream import Event, EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.objects import manifests
from podresources import sockets as socket_targets
from protos import podresources_v1 as pr
from protos import podresources_v1_grpc as pr_grpc
from protos import podresources_v1alpha1 as old
from protos import podresources_v1alpha1_grpc as old_grpc
from tools.differential.other import OtherProvider
from tools.differential.plain import plain_affinity, plain_answer, plain_options, plain_text
from tools.differential.plugins import MemoryPlugin, Plugin, Rejected, SocketPlugin, send_register
from tools.differential.programs import ProgramPlugin
from tools.differential.scenarios import OBSERVED, steps_of
from tools.replay.admission import checkpoint_of
from tools.replay.scenario import Plain, manifest, plain_hints

Described = Mapping[str, Any]

_NODE: Final = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}


@attrs.frozen
class Mode:
    """Mode of the mock: its quirks, and plugins with or without sockets."""

    quirks: str = "reference"
    sockets: bool = False


def play(scenario: Described, version: str, mode: Mode | None = None) -> Plain:
    """Return ``{"runs": [{"steps": [outcome, ...]}]}`` or ``{"config_error": text}``, like the
    reference."""
    mode = mode or Mode()
    try:
        settings = _settings(scenario, version, mode)
    except TopologyConfigError as error:
        return {"config_error": str(error)}
    with _kubelet(scenario, settings) as kubelet:
        node = _Node(kubelet, scenario, mode)
        run: Plain = {"steps": []}
        try:
            for step in steps_of(scenario):
                run["steps"].append(node.step(step))
        except KubeletPanic as panic:
            run["panic"] = str(panic)
        finally:
            node.close()
        return {"runs": [run]}


def _settings(scenario: Described, version: str, mode: Mode) -> Settings:
    known = KubeletVersion.parse(version)
    gates = (scenario.get("feature_gates") or {}).items()
    other = scenario.get("other")
    return Settings(
        kubelet_version=version,
        # The reference ignores unknown gates, too.
        feature_gates={name: on for name, on in gates if step_at(name, known) is not None},
        numa=NumaTopology.of(scenario["numa_nodes"], scenario.get("numa_distances")),
        topology_policy=scenario["policy"],
        topology_scope=scenario["scope"],
        topology_options=scenario.get("policy_options") or {},
        node_allocatable=_NODE | (scenario.get("node") or {}),
        providers=(OtherProvider(other),) if other else (),
        # Without rate limit, as in the reference. Without flushing files, which would only take
        # time.
        pod_resources_qps=None,
        durability="process",
        # Without Q27: in the reference, a container that is started again has not restarted.
        quirks=quirks_of(known) - {"Q27"} if mode.quirks == "reference" else frozenset(),
    )


@contextmanager
def _kubelet(scenario: Described, settings: Settings) -> Iterator[MockKubelet]:
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as root:
        directory = Path(root, "device-plugins")
        directory.mkdir()
        if scenario.get("allocated"):
            text = checkpoint.dumps(checkpoint_of(scenario["allocated"]))
            checkpoint.FileStore(directory).write(text)
        if scenario.get("checkpoint") is not None:
            path = directory / "kubelet_internal_checkpoint"
            path.write_bytes(base64.b64decode(scenario["checkpoint"]))
        with MockKubelet(root, settings=settings, clock=ManualClock()) as kubelet:
            yield kubelet


class _Node:
    """Mock kubelet with its plugins."""

    def __init__(self, kubelet: MockKubelet, scenario: Described, mode: Mode) -> None:
        self._kubelet = kubelet
        self._mode = mode
        self._known = frozenset(map(PodUid, scenario.get("active_pods") or ()))
        self._plugins: dict[str, Plugin] = {}
        self._old: dict[str, list[Plugin]] = {}
        self._retiring: set[str] = set()
        self._names = 0
        self._calls: list[Plain] = []
        self._meanwhile: Described | None = None
        self._outcome: Plain = {}
        self._before: list[Described] = []
        kubelet.events.subscribe(self._started)
        for resource, described in sorted((scenario.get("resources") or {}).items()):
            self._do_register({"resource": resource, **described})
        self._sources_ready()
        self._calls.clear()
        self._drain_health()
        self._file = self._identity()

    def close(self) -> None:
        """Stop all plugins."""
        for plugin in (
            *self._plugins.values(),
            *(each for replaced in self._old.values() for each in replaced),
        ):
            plugin.stop()

    # -- steps -----------------------------------------------------------------------

    def step(self, step: Described) -> Plain:
        """Perform a step and return its result."""
        (kind,) = step.keys() - OBSERVED
        self._outcome = {}
        if kind == "admit":
            self._do_admit(step["admit"], with_hints=not step.get("no_hints"))
        else:
            self._outcome |= getattr(self, f"_do_{kind}")(step[kind])
        return self._outcome | self._observe(bool(step.get("lists")))

    def _do_admit(self, pod: Described, *, with_hints: bool) -> None:
        found = self._outcome
        if with_hints:
            # Do this before the admission, which changes the free devices and so the hints.
            parsed = manifests.parse(_manifest(pod))
            behaviour = self._kubelet.settings.behaviour
            if not behaviour.sidecars and not behaviour.forbids_sidecars:
                parsed = parsed.without_sidecars()  # unknown to the API, as in ``PodWorkers.admit``
            first, whole = self._kubelet.manager.hints(parsed)
            found["hints"] = {"container": plain_hints(first), "pod": plain_hints(whole)}
        self._meanwhile = pod.get("meanwhile")
        admission = self._kubelet.admit(_manifest(pod), start=False)
        self._meanwhile = None
        found |= {
            "admit": admission.admitted,
            "reason": admission.reason,
            "message": plain_text(admission.message),
        }
        if admission.admitted:
            found["affinity"] = plain_affinity(admission)

    def _called(self, call: Plain) -> None:
        """Record a call. During the first Allocate of an admission, admit another pod."""
        self._calls.append(call)
        pod = self._meanwhile
        if pod is not None and call["method"] == "Allocate":
            self._meanwhile = None
            admission = self._kubelet.admit(_manifest(pod), start=False)
            self._outcome["meanwhile"] = {
                "admit": admission.admitted,
                "reason": admission.reason,
                "message": plain_text(admission.message),
            }

    def _do_register(self, described: Described) -> Plain:
        return self._join(described)

    def _do_watch(self, described: Described) -> Plain:
        return self._join(described, watched=True)

    def _do_unwatch(self, resource: str) -> Plain:
        self._plugins.pop(resource).unwatch()
        return {}

    def _join(self, described: Described, *, watched: bool = False) -> Plain:
        resource, before = described["resource"], self._plugins.get(described["resource"])
        self._names += 1
        name = f"plugin-{self._names}.sock"
        if described.get("same_socket") and before is not None:
            name = before.name
        kubelet = self._kubelet
        try:
            version = described.get("version") or VERSION
            if version != VERSION or not is_extended_resource_name(resource):
                # The kubelet rejects it before it dials.
                send_register(kubelet.plugin_socket, version, name, resource)
                raise AssertionError(f"the registration of {resource} was accepted")
            plugin = self._kind(described)(name, resource, described, self._called)
            if watched:
                plugin.watch(kubelet)
            else:
                plugin.join(kubelet)
        except Rejected as rejected:
            text = str(rejected).replace(f"{kubelet.plugin_dir}/", "DIR/")
            return {"registered": {"code": rejected.code, "text": text}}
        # The kubelet does not disconnect a replaced plugin, so the plugin can disconnect later.
        if before is not None:
            self._old.setdefault(resource, []).append(before)
        self._plugins[resource] = plugin
        self._send(plugin, described.get("devices"))
        return {"registered": {"code": "", "text": ""}}

    def _kind(self, described: Described) -> Callable[..., Plugin]:
        if "program" in described:
            return ProgramPlugin
        return SocketPlugin if self._mode.sockets else MemoryPlugin

    @staticmethod
    def _send(plugin: Plugin, devices: list[Plain] | None) -> None:
        if devices is not None and not plugin.closed:
            plugin.send(devices)

    def _do_list(self, described: Described) -> Plain:
        self._send(self._plugins[described["resource"]], described["devices"])
        return {}

    def _do_list_old(self, described: Described) -> Plain:
        if replaced := self._old.get(described["resource"]):
            self._send(replaced[-1], described["devices"])
        return {}

    def _do_stop(self, resource: str) -> Plain:
        self._plugins.pop(resource).stop()
        return {}

    def _do_stop_old(self, resource: str) -> Plain:
        if replaced := self._old.get(resource):
            replaced.pop().stop()
        return {}

    def _do_grace(self, seconds: int) -> Plain:
        clock = self._kubelet.clock
        assert isinstance(clock, ManualClock)
        clock.advance(seconds)
        return {}

    def _do_start(self, uid: str) -> Plain:
        if not self._is_active(uid) or uid in self._retiring:
            return {}
        return {"started": {name: self._start(uid, name) for name in self._containers(uid)}}

    def _is_active(self, uid: str) -> bool:
        return self._kubelet.has_pod(uid) and self._kubelet.pod(uid).is_active

    def _containers(self, uid: str) -> list[str]:
        return [container.name for container in self._kubelet.pod(uid).all_containers]

    def _start(self, uid: str, container: str) -> Plain | None:
        try:
            return plain_options(self._kubelet.start_container(uid, container))
        except (AllocationError, EndpointError) as error:
            return {"error": plain_text(str(error))}

    def _do_finish(self, uid: str) -> Plain:
        if self._is_active(uid):
            self._kubelet.finish(uid)
        return {}

    def _do_delete(self, uid: str) -> Plain:
        if self._kubelet.has_pod(uid):
            self._kubelet.terminate(uid)
        return {}

    def _do_retire(self, uid: str) -> Plain:
        if self._kubelet.has_pod(uid):
            self._kubelet.delete(uid, 1e6)
            self._retiring.add(uid)
        return {}

    def _do_exit(self, uid: str) -> Plain:
        self._retiring.discard(uid)
        return self._do_delete(uid)

    def _do_restart(self, how: Described) -> Plain:
        kubelet = self._kubelet
        before = [uid for uid, record in kubelet.pods().items() if record.is_active]
        kubelet.stop()
        self.close()
        self._plugins.clear()
        self._old.clear()
        if how.get("reboot"):
            kubelet.pod_store.containers_stop()
        if how.get("lost"):
            kubelet.checkpoint_path.unlink(missing_ok=True)
        if how.get("checkpoint") is not None:
            kubelet.checkpoint_path.write_bytes(base64.b64decode(how["checkpoint"]))
        self._file = self._identity()
        self._before = list(how.get("before") or ())
        kubelet.start()
        self._sources_ready()
        records = kubelet.pods()
        return {
            "readmitted": {
                uid: {
                    "admit": records[uid].is_active,
                    "reason": records[uid].reason,
                    "message": plain_text(records[uid].message),
                }
                for uid in before
                if uid in records
            }
        }

    def _started(self, event: Event) -> None:
        """Register the plugins that return before pods are admitted again."""
        if event.kind is EventKind.STARTED:
            described, self._before = self._before, []
            for each in described:
                self._join(each)

    def _sources_ready(self) -> None:
        known = frozenset(map(PodUid, self._kubelet.pods()))
        self._kubelet.manager.sources_ready(self._known | known)

    # -- observation -----------------------------------------------------------------

    def _observe(self, with_lists: bool) -> Plain:
        kubelet = self._kubelet
        calls, self._calls[:] = list(self._calls), []
        # Do this first: the capacity call removes resources after their grace period.
        found: Plain = {
            "calls": calls,
            "capacity": kubelet.capacity(),
            "allocatable": kubelet.allocatable(),
            "health_updates": self._drain_health(),
            "devices": {uid: self._allocated(uid) for uid in kubelet.pods()},
            "status": {uid: self._status(uid) for uid in kubelet.pods()},
        }
        file = self._identity()
        found["written"], self._file = file not in (self._file, None), file
        if found["written"]:
            found["checkpoint"] = base64.b64encode(kubelet.checkpoint_path.read_bytes()).decode()
        # In the reference, List frees devices of ended pods (Q10).
        if with_lists:
            found["lists"] = self._lists()
        kubelet.manager.self_check()
        kubelet.check()
        return found

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self._kubelet.checkpoint_path.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

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
            socket_targets.target(self._kubelet.pod_resources_socket),
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
            # The first path element is not the name of a pod.
            for name in ("missing", *self._kubelet.pods()):
                request = pr.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
                found[f"get {name}"] = plain_answer(v1.Get, request)
        return found


def _manifest(pod: Described) -> Plain:
    made = manifest(pod)
    if pod.get("pod_level"):
        amounts = {"cpu": "4", "memory": "1Gi"}
        made["spec"]["resources"] = {"limits": amounts, "requests": amounts}
    return made


__all__ = ["Mode", "play"]
