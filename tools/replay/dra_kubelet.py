"""A kubelet's DRA manager in memory, for recorded scenarios.

The manager runs the generators of ``devicemanager.core.dra`` and stores the state file as text. The
scenario defines how the API server, the drivers and the disk respond.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

import checkpoint.dra
from devicemanager.core.api.codes import go_name
from devicemanager.core.dra import messages
from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.containers import claims_status, container_cdi, dynamic_resources
from devicemanager.core.dra.drivers import Drivers, Instance, wipe_selector
from devicemanager.core.dra.effects import (
    Answer,
    CallDriver,
    Effect,
    FetchClaim,
    Operation,
    Steps,
    WriteState,
)
from devicemanager.core.dra.errors import (
    ClaimFetchError,
    DraError,
    DriverRejected,
    StateWriteError,
)
from devicemanager.core.dra.health import HealthCache, ReportedDevice, holders
from devicemanager.core.dra.model import (
    AllocationResult,
    ClaimInfo,
    ContainerClaim,
    ContainerClaims,
    ExtendedClaim,
    InstanceId,
    PodClaim,
    PodClaims,
    PreparedDevice,
    PrepareResult,
    RequestMapping,
    ResourceClaim,
    UnprepareResult,
)
from devicemanager.core.dra.prepare import prepare
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.dra.unprepare import inactive_pods, unprepare, unprepare_claims
from devicemanager.core.errors import RpcError
from devicemanager.core.status import Health
from devicemanager.core.versions.behaviour import resolve
from devicemanager.core.versions.quirks import quirks_of
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.kubelet.dra.state_file import claim_info

Json = Mapping[str, Any]
Result = dict[str, Any]

_NODE = "worker"
_GRPC_NAMES = {
    "v1": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    "v1alpha4": "v1alpha3.Node",
}
_HEALTH_OF = {"v1alpha1": "health", "v1": "health-v1"}
_WITHOUT_MANAGER = ("start", "restart", "file", "claim", "behave")


@attrs.define(eq=False)
class _Process:
    """Process of a driver, with one endpoint that listens or does not."""

    key: str
    spec: Json
    listens: bool
    behaviour: dict[str, Json]
    instance: Instance | None = None
    """Registration of the process; None while it is not registered."""
    streaming: bool = False

    @property
    def driver(self) -> str:
        return str(self.spec["driver"])

    @property
    def endpoint(self) -> str:
        return f"ENDPOINT({self.key})"


@attrs.define(eq=False)
class _Blocked:
    """An operation that waits for a driver."""

    steps: Steps
    effect: CallDriver
    behaviour: Json
    canceled: bool = False


class DraKubelet:
    """DRA manager of one scenario. ``step`` runs one operation."""

    def __init__(self, vector: Json, version: KubeletVersion) -> None:
        gates = dict(vector.get("gates") or {})
        if version.minor == 34 and any(pod.get("extended") for pod in vector["pods"].values()):
            gates.setdefault("DRAExtendedResource", True)
        self._rules = DraRules(resolve(version, gates), quirks_of(version))
        self._pods = {key: _pod(each) for key, each in vector["pods"].items()}
        self._processes = {
            key: _Process(
                key,
                each,
                not each.get("down"),
                {name: each.get(name) or {} for name in ("prepare", "unprepare")},
            )
            for key, each in vector["instances"].items()
        }
        self._claims: dict[tuple[str, str], ResourceClaim] = {}
        self._api_errors: dict[tuple[str, str], ClaimFetchError] = {}
        self._disk_failures = 0
        self._disk_message = ""
        self._file: str | None = None
        self._now = self._slept = 0.0
        """Current times: ``_now`` for the deletion of slices, and ``_slept`` for health reports."""
        self._manager = False
        self._blocked: dict[str, _Blocked] = {}
        self._calls: list[Result] = []
        self._writes = 0
        self._wipes: list[str] = []
        self._load(())

    def step(self, op: Json) -> Result:
        """Run one operation, and return its result with the fields that recordings have."""
        self._calls, self._writes, self._wipes = [], 0, []
        file, prepared = self._file, self._prepared()
        if not self._manager and op["op"] not in _WITHOUT_MANAGER:
            return {"error": "no manager"}
        try:
            result = getattr(self, f"op_{op['op']}")(op)
        except DraError as error:
            result = {"error": str(error)}
            if isinstance(error, DriverRejected):
                result["stage"] = error.stage
        result = {**result, "calls": self._calls, "writes": self._writes, "wipes": self._wipes}
        result = {key: each for key, each in result.items() if key in _KEPT or each}
        if self._file != file:
            result["file"] = self._recorded(self._file)
        if self._manager and self._prepared() != prepared:
            result["prepared"] = self._prepared()
        return result

    def _prepared(self) -> list[str]:
        return [f"{each.namespace}/{each.name}" for each in self._cache if each.prepared]

    def _recorded(self, text: str | None) -> str | None:
        """Return a file as recordings have it. The kubelet's order of claims is random, so files
        with several claims were sorted."""
        try:
            claims = checkpoint.dra.loads((text or "").encode()).claims or ()
        except checkpoint.CheckpointError:
            return text
        if len(claims) < 2:
            return text
        ordered = sorted(claims, key=lambda claim: (claim.namespace, claim.name))
        return self._document.render(ordered).decode()

    # Start and restart.

    def _load(self, claims: tuple[ClaimInfo, ...]) -> None:
        self._cache = ClaimCache(claims)
        self._drivers = Drivers(self._rules)
        self._health_cache = HealthCache(self._rules)
        self._document = checkpoint.dra.StateDocument(
            share_ids=self._rules.behaviour.dra_stores_share_id
        )

    def op_start(self, op: Json) -> Result:
        return self.op_restart(op)

    def op_restart(self, _: Json) -> Result:
        self._manager = False
        for process in self._processes.values():
            process.instance, process.streaming = None, False
        if self._file is None:
            self._file = checkpoint.dra.dumps(checkpoint.dra.State()).decode()
        data = self._file.encode()
        if error := checkpoint.dra.kubelet_error(data):
            raise DraError(messages.start_error(*error, self._rules.wording))
        self._load(tuple(map(claim_info, checkpoint.dra.loads(data).claims or ())))
        self._manager = True
        self._wipes.append(wipe_selector(_NODE))
        return {}

    def op_file(self, op: Json) -> Result:
        self._file = op["file"]
        return {}

    # Drivers.

    def op_register(self, op: Json) -> Result:
        process = self._processes[op["instance"]]
        services = op.get("services", process.spec["services"])
        self._drivers.validate(process.driver, process.endpoint, services)
        process.instance = self._drivers.register(
            process.driver, process.endpoint, services, self._now
        )
        self._connect(process, process.listens)
        return {}

    def op_deregister(self, op: Json) -> Result:
        process = self._processes[op["instance"]]
        self._connect(process, False)
        gone = self._drivers.deregister(process.driver, process.endpoint, self._now)
        process.instance = None
        for blocked in self._blocked.values():
            if gone is not None and blocked.effect.instance == gone.id:
                # Before v1.33, the connection is not closed.
                blocked.canceled = self._rules.behaviour.dra_several_instances
        self._wipe()
        return {}

    def _connect(self, process: _Process, connected: bool) -> None:
        if process.instance is None:
            return
        if process.instance.connected is not connected:
            self._drivers.set_connected(process.instance.id, connected, self._now)
        if not connected and process.streaming:
            self._health_cache.clear(process.driver)
        process.streaming = connected and self._serves_health(process)

    def _serves_health(self, process: _Process) -> bool:
        service = process.instance.health_service if process.instance is not None else None
        return service is not None and _HEALTH_OF[service] in process.spec["serves"]

    def op_stop(self, op: Json) -> Result:
        self._listens(op, False)
        return {}

    def op_listen(self, op: Json) -> Result:
        self._listens(op, True)
        return {}

    def _listens(self, op: Json, listens: bool) -> None:
        process = self._processes[op["instance"]]
        process.listens = listens
        self._connect(process, listens)

    def op_behave(self, op: Json) -> Result:
        behaviour = self._processes[op["instance"]].behaviour
        for name in ("prepare", "unprepare"):
            if name in op:
                behaviour[name] = op[name] or {}
        return {}

    # The API server and the disk.

    def op_claim(self, op: Json) -> Result:
        claim = op["claim"]
        results = claim.get("results")
        key = (claim["namespace"], claim["name"])
        self._claims[key] = ResourceClaim(
            claim["namespace"],
            claim["name"],
            claim["uid"],
            None
            if results is None or claim.get("unallocated")
            else tuple(_allocation(each) for each in results),
            tuple(claim.get("reserved") or ()),
            tuple(claim.get("reserved_groups") or ()),
            claim.get("owner"),
            claim.get("owner_group"),
        )
        return {}

    def op_delete_claim(self, op: Json) -> Result:
        self._claims.pop((op["namespace"], op["name"]), None)
        return {}

    def op_api_error(self, op: Json) -> Result:
        key, code, message = (op["namespace"], op["name"]), op["code"], op.get("message", "")
        if code == 0:
            self._api_errors.pop(key, None)
            return {}
        texts = {
            403: f'resourceclaims.resource.k8s.io "{op["name"]}" is forbidden: {message}',
            500: f"Internal error occurred: {message}",
        }
        self._api_errors[key] = ClaimFetchError(texts.get(code, message))
        return {}

    def op_pod(self, op: Json) -> Result:
        self._pods[op["pod"]] = _pod(op["set"])
        return {}

    def op_disk(self, op: Json) -> Result:
        self._disk_failures, self._disk_message = op["times"], op.get("message", "")
        return {}

    # Pods.

    def op_prepare(self, op: Json) -> Result:
        pod = self._pods[op["pod"]]
        return self._run(prepare(pod, self._cache, self._drivers, self._rules))

    def op_unprepare(self, op: Json) -> Result:
        pod = self._pods[op["pod"]]
        return self._run(unprepare(pod, self._cache, self._drivers, self._rules))

    def op_container(self, op: Json) -> Result:
        pod = self._pods[op["pod"]]
        return {"cdi": list(container_cdi(pod, op["container"], self._cache, self._rules))}

    def op_pod_resources(self, op: Json) -> Result:
        pod = self._pods[op["pod"]]
        claims = dynamic_resources(pod, op["container"], self._cache, self._rules)
        return {"dynamic_resources": [_listed(claim) for claim in claims]}

    def op_might_need_unprepare(self, op: Json) -> Result:
        return {"answer": self._cache.might_need_unprepare(self._pods[op["pod"]].uid)}

    def op_reconcile(self, op: Json) -> Result:
        active = {self._pods[key].uid for key in op.get("active") or ()}
        if op.get("not_ready"):
            return {}
        for pod in inactive_pods(self._cache, active):
            steps = unprepare_claims(
                pod.uid, pod.namespace, pod.claims, self._cache, self._drivers, self._rules
            )
            try:
                self._run(steps)
            except DraError:
                continue  # the kubelet logs it
        return {}

    # Time and health.

    def op_advance(self, op: Json) -> Result:
        self._now += op["seconds"]
        self._wipe()
        return {}

    def _wipe(self) -> None:
        self._wipes += [wipe_selector(_NODE, each) for each in self._drivers.due_wipes(self._now)]

    def op_sleep(self, op: Json) -> Result:
        self._slept += op["seconds"]
        return {}

    def op_health(self, op: Json) -> Result:
        process = self._processes[op["instance"]]
        if not process.streaming:
            return {}
        reported = [
            ReportedDevice(
                each.get("pool", ""),
                each.get("device", ""),
                _HEALTH.get(each.get("health"), Health.UNKNOWN),
                each.get("message", ""),
                each.get("timeout", 0),
            )
            for each in op["devices"]
        ]
        changed = self._health_cache.report(process.driver, reported, self._slept)
        return {"updates": list(holders(self._cache, process.driver, changed))}

    def op_end_stream(self, op: Json) -> Result:
        process = self._processes[op["instance"]]
        self._health_cache.clear(process.driver)
        process.streaming = False
        return {}

    def op_stream(self, op: Json) -> Result:
        process = self._processes[op["instance"]]
        process.streaming = process.listens and self._serves_health(process)
        return {}

    def op_status(self, op: Json) -> Result:
        pod = self._pods[op["pod"]]
        status = claims_status(pod, self._cache, self._health_cache, self._rules, self._slept)
        return {
            "status": {
                container: [
                    {
                        "name": name,
                        "resources": [
                            {
                                "health": str(each.health),
                                "resource_id": each.resource_id,
                                **({"message": each.message} if each.message else {}),
                            }
                            for each in entries[name]
                        ],
                    }
                    for name in sorted(entries)
                ]
                for container, entries in status.items()
            }
        }

    # Operations that block in a driver.

    def op_begin(self, op: Json) -> Result:
        do = op["do"]
        pod = self._pods[do["pod"]]
        run = prepare if do["op"] == "prepare" else unprepare
        return self._run(run(pod, self._cache, self._drivers, self._rules), op["name"])

    def op_end(self, op: Json) -> Result:
        blocked = self._blocked.pop(op["name"], None)
        if blocked is None:  # it did not block
            return {}
        if blocked.canceled:
            return self._run(
                blocked.steps, op["name"], RpcError("Canceled", messages.CONNECTION_CLOSING)
            )
        try:
            answer = _answer(blocked.effect, blocked.behaviour)
        except RpcError as error:
            return self._run(blocked.steps, op["name"], error)
        return self._run(blocked.steps, op["name"], answer=answer)

    # Effects.

    def _run(
        self,
        steps: Steps,
        name: str | None = None,
        error: Exception | None = None,
        answer: Answer = None,
    ) -> Result:
        """Run a generator until it ends. With ``name``, return earlier if it blocks in a call to a
        driver."""
        while True:
            try:
                effect = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration:
                return {}
            error, answer = None, None
            try:
                answer = self._carry_out(effect)
            except _Blocks as blocks:
                if name is None:
                    raise
                self._blocked[name] = _Blocked(steps, blocks.effect, blocks.behaviour)
                return {"blocked_in": blocks.instance}
            except (ClaimFetchError, RpcError, StateWriteError) as failure:
                error = failure

    def _carry_out(self, effect: Effect) -> Answer:
        if isinstance(effect, FetchClaim):
            key = (effect.namespace, effect.name)
            if key in self._api_errors:
                raise self._api_errors[key]
            if key not in self._claims:
                raise ClaimFetchError.not_found(effect.name)
            return self._claims[key]
        if isinstance(effect, WriteState):
            if self._disk_failures:
                self._disk_failures -= 1
                raise StateWriteError(self._disk_message)
            self._file = self._document.render(effect.claims).decode()
            self._writes += 1
            return None
        if isinstance(effect, CallDriver):
            return self._call(effect)
        raise AssertionError(f"unexpected effect {effect}")

    def _call(self, effect: CallDriver) -> Answer:
        process = self._process_of(effect.instance)
        if process is None or not process.listens:
            raise RpcError("Unavailable", "TRANSPORT")
        if effect.service not in process.spec["serves"]:
            raise RpcError("Unimplemented", f"unknown service {_GRPC_NAMES[effect.service]}")
        self._calls.append(
            {
                "instance": process.key,
                "method": effect.operation.value,
                "version": effect.service,
                "claims": [f"{each.namespace}/{each.name}/{each.uid}" for each in effect.claims],
            }
        )
        kind = "prepare" if effect.operation is Operation.PREPARE else "unprepare"
        behaviour = process.behaviour[kind]
        if behaviour.get("block"):
            raise _Blocks(effect, behaviour, process.key)
        return _answer(effect, behaviour)

    def _process_of(self, instance: InstanceId) -> _Process | None:
        for process in self._processes.values():
            if process.instance is not None and process.instance.id == instance:
                return process
        return None


_KEPT = ("cdi", "dynamic_resources", "answer", "status")
_HEALTH = {"HEALTHY": Health.HEALTHY, "UNHEALTHY": Health.UNHEALTHY}


class _Blocks(Exception):
    """Raised for a call to which the driver does not respond before the operation ``end``."""

    def __init__(self, effect: CallDriver, behaviour: Json, instance: str) -> None:
        super().__init__(instance)
        self.effect, self.behaviour, self.instance = effect, behaviour, instance


def _answer(effect: CallDriver, behaviour: Json) -> Answer:
    if fail := behaviour.get("fail"):
        raise RpcError(go_name(fail["code"]), fail.get("message", ""))
    if behaviour.get("hang"):
        raise RpcError("DeadlineExceeded", "context deadline exceeded")
    entries = dict(_entries(effect, behaviour))
    if effect.operation is Operation.UNPREPARE:
        return {uid: UnprepareResult(each.get("error") or "") for uid, each in entries.items()}
    return {
        uid: PrepareResult(
            tuple(_device(device, effect.service) for device in each.get("devices") or ()),
            each.get("error") or "",
        )
        for uid, each in entries.items()
    }


def _entries(effect: CallDriver, behaviour: Json) -> Iterator[tuple[str, Json]]:
    listed = behaviour.get("claims") or {}
    for ref in effect.claims:
        if ref.uid not in (behaviour.get("skip") or ()):
            yield ref.uid, listed.get(ref.uid) or {}
    for uid, entry in (behaviour.get("extra") or {}).items():
        yield uid, entry or {}


def _device(device: Json, service: str) -> PreparedDevice:
    return PreparedDevice(
        device.get("pool") or "",
        device.get("device") or "",
        device.get("share_id") if service == "v1" else None,
        tuple(device.get("requests") or ()) or None,
        tuple(device.get("cdi") or ()) or None,
    )


def _allocation(result: Json) -> AllocationResult:
    return AllocationResult(
        result["driver"],
        result.get("request", ""),
        result.get("pool", ""),
        result.get("device", ""),
        tuple(result.get("skip") or ()),
    )


def _pod(pod: Json) -> PodClaims:
    extended = pod.get("extended")
    return PodClaims(
        pod["uid"],
        pod["name"],
        pod["namespace"],
        tuple(
            PodClaim(each["name"], each.get("claim"), each.get("template"))
            for each in pod.get("claims") or ()
        ),
        {each["name"]: each.get("claim") for each in pod.get("statuses") or ()},
        extended
        and ExtendedClaim(
            extended["claim"],
            tuple(
                RequestMapping(each["container"], each["resource"], each["request"])
                for each in extended.get("mappings") or ()
            ),
        ),
        pod.get("pod_group"),
        tuple(
            ContainerClaims(
                each["name"],
                tuple(
                    ContainerClaim(used["name"], used.get("request") or "")
                    for used in each.get("claims") or ()
                ),
                {name: int(amount) for name, amount in (each.get("requests") or {}).items()},
                bool(each.get("init")),
            )
            for each in pod.get("containers") or ()
        ),
    )


def _listed(claim: Any) -> Result:
    return {
        "claim_name": claim.name,
        "claim_namespace": claim.namespace,
        "claim_resources": [
            {
                "cdi_devices": list(device.cdi),
                "device_name": device.device,
                "driver_name": device.driver,
                "pool_name": device.pool,
                **({"share_id": device.share_id} if device.share_id is not None else {}),
            }
            for device in claim.devices
        ],
    }
