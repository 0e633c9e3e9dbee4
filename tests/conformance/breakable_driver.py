"""A DRA driver that is correct, except for the faults that its switches add.

Usage: ``python breakable_driver.py [--switch NAME]...``, with the environment variables of
``check --driver``. Hooks write the names of broken devices to ``broken.txt`` in the kubelet's
directory. The sockets and requests are those of ``devicemanager.driver``; claims, slices and health
are written for this program, because the framework prevents most of these faults.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load
from devicemanager.client.errors import ApiError, ClusterError, Conflict, NotFound
from devicemanager.driver import api as driver_api
from devicemanager.driver.allocation import base_request, read_claim
from devicemanager.driver.api import ResourceApi
from devicemanager.driver.errors import ClaimError
from devicemanager.driver.paths import DriverPaths
from devicemanager.driver.services import CLAIM_SERVICES, HEALTH_SERVICES, Report, add_services
from devicemanager.driver.sockets import DriverSockets
from devicemanager.kubelet.nri.connection import CallFailed, Connection, Disconnected
from protos import dra_v1
from protos import nri_v1alpha1 as nri
from protos import pluginregistration_v1 as pr

DRIVER = "conformance.example.com"
COUNT = 4
_KIND = f"k8s.{DRIVER}/claim"
_POLL = 0.1


def _variable(name: str) -> Path:
    return Path(os.environ[name])


class Driver:
    def __init__(self, switches: set[str]) -> None:
        self.switches = switches
        self.node = os.environ["NODE_NAME"]
        self.data = _variable("KUBELET_PLUGINS_DIRECTORY_PATH") / DRIVER
        self.data.mkdir(parents=True, exist_ok=True)
        self.cdi = _variable("CDI_ROOT")
        self.registry = _variable("KUBELET_REGISTRAR_DIRECTORY_PATH")
        if "v1-only" in switches:
            driver_api.VERSIONS = ("v1",)
        self.client = ApiClient(load(None))
        self.api = ResourceApi(self.client, DRIVER, self.node)
        self.stopping = threading.Event()
        self.lock = threading.RLock()
        self.registrations = self.infos = self.prepares = 0
        self.reports = threading.Condition()
        self.streams = 0
        self.published = threading.Event()
        self.changed = threading.Event()
        self.unprepared: set[str] = set()
        self.salt = f"-{os.getpid()}" if "ids-per-process" in switches else ""
        self.sockets = self._sockets()

    # -- sockets -----------------------------------------------------------------------

    def _sockets(self) -> DriverSockets:
        on = self.switches
        uid = "" if "same-sockets" in on else os.environ["POD_UID"]
        paths = DriverPaths.of(DRIVER, self.registry, self.data, self.cdi, uid)
        served = CLAIM_SERVICES[:1] if "lists-unserved" in on else CLAIM_SERVICES
        health = () if "no-health" in on else HEALTH_SERVICES
        driver = self

        class Sockets(DriverSockets):
            def GetInfo(self, request: Any, context: Any) -> pr.PluginInfo:
                info = super().GetInfo(request, context)
                driver.infos += 1
                if "changing-info" in on:
                    info.supported_versions.append(f"v{driver.infos}.Other")
                return info

            def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
                if "gives-up" in on and not request.plugin_registered:
                    os._exit(0)
                driver.registrations += 1
                if "registers-once" in on and driver.registrations > 1:
                    context.abort(grpc.StatusCode.INTERNAL, "registered already")
                return super().NotifyRegistrationStatus(request, context)

        return Sockets(
            DRIVER, paths, (*CLAIM_SERVICES, *health),
            lambda server: add_services(self, (*served, *health), server),
        )  # fmt: skip

    def run(self) -> None:
        on = self.switches
        if "late-handler" not in on:
            signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        if "needs-api" in on:
            with contextlib.suppress(NotFound):
                try:
                    self.client.attempt("GET", "/api/v1/nodes")
                except ClusterError:
                    os._exit(0)
        if "needs-node" in on:
            try:
                self.api.owner()
            except NotFound:
                os._exit(0)
            except ClusterError:
                pass
        if "bind-once" in on and self.sockets.registration_socket.exists():
            os._exit(1)
        threading.Thread(target=self._publish, daemon=True).start()
        if "NRI_SOCKET" in os.environ and "no-nri" not in on:
            threading.Thread(target=self._serve_nri, daemon=True).start()
        if "no-register" not in on:
            self.sockets.start()
        if "late-handler" in on:
            time.sleep(3)
            signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        while not self.stopping.wait(2 * _POLL):
            if on & {"no-recreate", "no-register"} or self.sockets.are_reachable():
                continue
            self.sockets.stop()
            self.sockets.start()
        if "stubborn" in on:
            time.sleep(3600)
        with self.reports:
            self.reports.notify_all()
        self.sockets.stop(leave_sockets="leaves-socket" in on)
        if "removes-others" in on:
            for path in self.registry.iterdir():
                path.unlink()
        os._exit(0)

    # -- slices ------------------------------------------------------------------------

    def broken(self) -> set[str]:
        """Return the names of broken devices."""
        path = self.registry.parent / "broken.txt"
        return set(path.read_text().split()) if path.exists() else set()

    def names(self) -> list[str]:
        suffix = f"-{os.getpid()}" if "names-per-process" in self.switches else ""
        return [f"gpu-{number}{suffix}" for number in range(COUNT)]

    def _specs(self) -> list[dict[str, Any]]:
        on = self.switches
        broken = set() if "ignores-broken" in on else self.broken()
        devices: list[dict[str, Any]] = [{"name": name} for name in self.names()]
        for device in devices:
            if device["name"] in broken:
                device["taints"] = [{"key": f"{DRIVER}/broken", "effect": "NoExecute"}]
            if "own-domain" in on:
                device["attributes"] = {f"{DRIVER}/model": {"string": "a"}}
        lists = [devices[:2], devices[2:]]
        if "twice-named" in on:
            lists[1].append({"name": devices[0]["name"]})
        common = {"driver": DRIVER, "nodeName": self.node}
        if "no-slices" in on:
            return []
        if "too-many-devices" in on:
            lists[0] += [{"name": f"more-{number}"} for number in range(128)]
        count = 3 if "wrong-count" in on else 2
        pool = {"name": self.node, "resourceSliceCount": count}
        specs = [{**common, "pool": dict(pool), "devices": each} for each in lists]
        if "invalid-slice" in on:
            other = {"name": "other", "resourceSliceCount": 1}
            specs.append({**common, "pool": other, "devices": [{"name": "GPU_0"}]})
        return specs

    def _publish(self) -> None:
        on = self.switches
        if "late-slices" in on:
            self.stopping.wait(2)
        if "ignores-watch-end" in on:
            threading.Thread(target=self._watch, daemon=True).start()
        while not self.stopping.is_set():
            try:
                self._publish_once()
                self.published.set()
                if "publishes-once" in on:
                    return
            except Conflict:
                if "no-retry" in on:
                    return
            except (ApiError, ClusterError):
                pass
            if "ignores-watch-end" in on and self.published.is_set():
                self.changed.wait()
                self.changed.clear()
            self.stopping.wait(_POLL)

    def _publish_once(self) -> None:
        wanted, existing = self._specs(), self.api.slices()
        generation = max((each["spec"]["pool"]["generation"] for each in existing), default=0)
        found = [each["spec"] for each in existing]
        if len(found) == len(wanted) and all(_is_in(each, found) for each in wanted):
            return
        if len(found) == len(wanted) == 2:
            for old, spec in zip(existing, wanted, strict=True):
                self.api.replace({**old, "spec": _with_generation(spec, generation + 1)})
            return
        for each in existing:
            self.api.delete(each)
        owner = [] if "no-owner" in self.switches else [self.api.owner()]
        for spec in wanted:
            metadata = {"generateName": "conformance-", "ownerReferences": owner}
            made = {"metadata": metadata, "spec": _with_generation(spec, generation + 1)}
            self.api.create(made)

    def _watch(self) -> None:
        changed = self.changed

        class Sink:
            """Publish after each event, but not after another list."""

            def begin_list(self) -> None: ...

            def replace(self, objects: Any) -> None: ...

            def apply(self, kind: str, object_: Any) -> None:
                changed.set()

        self.api.watch(Sink(), lambda text: None)

    # -- health ------------------------------------------------------------------------

    def watch_health(self, context: grpc.ServicerContext) -> Iterator[Report]:
        on = self.switches
        if "late-health" in on:
            time.sleep(5)
        self.streams += 1
        if "one-stream" in on and self.streams > 1:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "one stream only")
        try:
            while context.is_active() and not self.stopping.is_set():
                yield self._report()
                with self.reports:
                    self.reports.wait(3600 if "reports-once" in on else 5 * _POLL)
        finally:
            self.streams -= 1

    def _report(self) -> Report:
        report, broken = Report(), self.broken()
        names = self.names()[:1] if "partial-health" in self.switches else self.names()
        for name in names:
            is_healthy = name not in broken or "hides-broken" in self.switches
            device = report.devices.add(health=1 if is_healthy else 2)
            device.device.pool_name, device.device.device_name = self.node, name
            device.health_check_timeout_seconds = 2
            device.last_updated_time = int(time.time())
        return report

    # -- NRI ---------------------------------------------------------------------------

    def _serve_nri(self) -> None:
        """Connect to the NRI runtime, again after each disconnection."""
        while not self.stopping.wait(_POLL):
            with contextlib.suppress(OSError, Disconnected, CallFailed):
                self._serve_nri_once()

    def _serve_nri_once(self) -> None:
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(os.environ["NRI_SOCKET"])
        handlers = {
            "Configure": lambda request: nri.ConfigureResponse(events=1 << 3),
            "Synchronize": self._synchronize,
            "CreateContainer": self._create_container,
        }
        connection = Connection(connected, handlers, serves="Plugin", calls="Runtime")
        reader = threading.Thread(target=connection.serve, daemon=True)
        reader.start()
        request = nri.RegisterPluginRequest(plugin_name=DRIVER, plugin_idx="10")
        connection.call("RegisterPlugin", request, 5)
        reader.join()

    def _create_container(self, request: Any) -> Any:
        if "refuses-containers" in self.switches:
            raise ValueError("unknown container")
        response = nri.CreateContainerResponse()
        response.adjust.linux.resources.cpu.cpus = "0-1"
        return response

    def _synchronize(self, request: Any) -> Any:
        response = nri.SynchronizeResponse()
        for each in request.containers if "moves-containers" in self.switches else ():
            update = response.update.add(container_id=each.id)
            update.linux.resources.cpu.cpus = "2-3"
        return response

    # -- checkpoint --------------------------------------------------------------------

    def entries(self) -> dict[str, Any]:
        path = self.data / "checkpoint.json"
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            if "exits-on-damage" in self.switches:
                os._exit(1)
            return {}
        known = {1, 2} if "format-2" in self.switches else {1}
        if "only-format-2" in self.switches:
            known = {2}
        if content["version"] not in known:
            raise ClaimError(f"unknown version {content['version']} of the checkpoint")
        return dict(content["claims"])

    def store(self, entries: Mapping[str, Any]) -> None:
        version = 2 if self.switches & {"format-2", "only-format-2"} else 1
        path = self.data / "checkpoint.json"
        path.with_suffix(".new").write_text(json.dumps({"version": version, "claims": entries}))
        path.with_suffix(".new").rename(path)

    # -- claims ------------------------------------------------------------------------

    def prepare_claims(
        self, version: str, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodePrepareResourcesResponse:
        on = self.switches
        response = dra_v1.NodePrepareResourcesResponse()
        if "slow-start" in on and not self.published.is_set():
            context.abort(grpc.StatusCode.UNAVAILABLE, "not ready yet")
        if "one-at-a-time" in on:
            self.prepares += 1
            time.sleep(0.1)
            busy, self.prepares = self.prepares > 1, self.prepares - 1
            if busy:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
        for claim in claims[:1] if "one-entry" in on else claims:
            entry = response.claims[claim.uid]
            try:
                entry.devices.extend(self._prepare(claim, context))
            except ClaimError as error:
                if "all-or-nothing" in on:
                    context.abort(grpc.StatusCode.UNKNOWN, str(error))
                entry.error = str(error)
        return response

    def unprepare_claims(
        self, version: str, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodeUnprepareResourcesResponse:
        response = dra_v1.NodeUnprepareResourcesResponse()
        for claim in claims[:1] if "one-entry" in self.switches else claims:
            entry = response.claims[claim.uid]
            try:
                self._unprepare(claim)
            except ClaimError as error:
                entry.error = str(error)
        return response

    def _devices(self, claim: dra_v1.Claim) -> list[dict[str, Any]]:
        """Return request, pool, device and admin access of each result of a claim. Raises
        ClaimError."""
        on = self.switches
        try:
            found = self.api.claim(claim.namespace, claim.name)
        except ClusterError as error:
            raise ClaimError(str(error)) from error
        first = {"request": "req", "pool": self.node, "device": self.names()[0], "admin": False}
        if found is None and "prepares-missing" in on:
            return [first]
        if found and not found.get("status", {}).get("allocation") and "no-allocation" in on:
            return [first]
        uid = found["metadata"]["uid"] if found and "ignores-uid" in on else claim.uid
        read = read_claim(found, claim.namespace, claim.name, uid, DRIVER)
        assert found is not None
        self._check_object(found)
        devices: list[dict[str, Any]] = []
        for each in read.devices:
            if each.device not in self.names() and "accepts-unknown" not in on:
                raise ClaimError(f"unknown device {each.device}")
            request = each.request if "subrequest" in on else base_request(each.request)
            if each.admin_access and "refuses-admin" in on:
                raise ClaimError(f"device {each.device} is in use")
            device = {"request": request, "pool": each.pool, "device": each.device}
            devices.append({**device, "admin": each.admin_access})
        return devices

    def _check_object(self, found: Mapping[str, Any]) -> None:
        on, status = self.switches, found["status"]
        devices = status["allocation"]["devices"]
        if "refuses-reserved" in on and status.get("reservedFor"):
            raise ClaimError("the claim is reserved")
        if "foreign-device" in on:
            for each in devices["results"]:
                if each["driver"] != DRIVER:
                    raise ClaimError(f"unknown driver {each['driver']}")
        for each in devices.get("config") or ():
            is_ours = each["opaque"]["driver"] == DRIVER
            if not is_ours and "foreign-config" in on:
                raise ClaimError("unknown parameters")
            if is_ours and "exits-on-config" in on:
                os._exit(1)

    def _prepare(self, claim: dra_v1.Claim, context: grpc.ServicerContext) -> list[dra_v1.Device]:
        on = self.switches
        if "ids-per-call" in on:
            self.salt = f"-{uuid.uuid4()}"
        if "ids-per-registration" in on:
            self.salt = f"-{self.registrations}"
        with self.lock:
            entries = self.entries()
            entry = entries.get(claim.uid)
        if entry is None:
            devices = self._devices(claim)
            if not context.is_active() and "commits-late" not in on:
                raise ClaimError("the call was given up")
            with self.lock:
                entries = self.entries()
                self._free(entries, devices)
                entry = {"name": claim.name, "namespace": claim.namespace, "devices": devices,
                         "count": 0}  # fmt: skip
                entries[claim.uid] = entry
                self.store(entries)
                if "checkpoint-first" in on:
                    time.sleep(0.5)
                self._write_cdi(claim.uid, entry)
        elif not on & {"no-rewrite", "checkpoint-first"}:
            self._write_cdi(claim.uid, entry)
        if "counts" in on:
            entry["count"] += 1
            entries[claim.uid] = entry
            self.store(entries)
        if on & {"status", "bad-status"}:
            self._write_status(claim, entry["devices"])
        if on & {"metadata", "bad-metadata"}:
            self._write_metadata(claim)
        return self._messages(claim.uid, entry)

    def _free(self, entries: dict[str, Any], devices: Sequence[Mapping[str, Any]]) -> None:
        """Raise ClaimError if another claim holds a device. Claims that are gone lose theirs."""
        if "shares-device" in self.switches:
            return
        wanted = _held(devices)
        for uid, entry in list(entries.items()):
            if not wanted & _held(entry["devices"]):
                continue
            found = self.api.claim(entry["namespace"], entry["name"])
            is_gone = found is None or found["metadata"]["uid"] != uid
            if not is_gone or "never-reclaims" in self.switches:
                raise ClaimError(f"a device is in use by claim {entry['name']}")
            del entries[uid]

    def _messages(self, uid: str, entry: Mapping[str, Any]) -> list[dra_v1.Device]:
        on = self.switches
        messages = []
        for each in entry["devices"]:
            names = ["other"] if "odd-request" in on else [each["request"]]
            id_ = f"{_KIND}={self._cdi_name(uid, each['device'])}"
            messages.append(
                dra_v1.Device(
                    request_names=names,
                    pool_name=each["pool"],
                    device_name=each["device"],
                    cdi_device_ids=[id_],
                )
            )
        return messages

    def _cdi_name(self, uid: str, device: str) -> str:
        return f"{uid}-{device}{self.salt}"

    def _cdi_path(self, uid: str) -> Path:
        name = "all" if "one-file" in self.switches else uid
        return self.cdi / f"{DRIVER}-{name}.json"

    def _write_cdi(self, uid: str, entry: Mapping[str, Any]) -> None:
        if "no-cdi" in self.switches:
            return
        edits = {} if "empty-edits" in self.switches else {"env": ["DEVICE=1"]}
        devices = [
            {"name": self._cdi_name(uid, each["device"]), "containerEdits": edits}
            for each in entry["devices"]
        ]
        if not devices:
            return
        content = {"cdiVersion": "0.3.0", "kind": _KIND, "devices": devices}
        path = self._cdi_path(uid)
        path.with_suffix(".new").write_text(json.dumps(content))
        path.with_suffix(".new").rename(path)

    def _write_status(self, claim: dra_v1.Claim, devices: Sequence[Mapping[str, Any]]) -> None:
        path = (
            f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
            "/status"
        )
        bad = "bad-status" in self.switches
        status = [
            {"driver": DRIVER, "pool": each["pool"], "device": "none" if bad else each["device"]}
            for each in devices
        ]
        found = self.api.claim(claim.namespace, claim.name)
        if found is not None:
            body = {**found, "status": {**found["status"], "devices": status}}
            with contextlib.suppress(ApiError, ClusterError):
                self.client.attempt("PUT", path, body)

    def _metadata(self, claim: dra_v1.Claim) -> Path:
        return self.data / "dra-device-metadata" / f"{claim.namespace}_{claim.name}"

    def _write_metadata(self, claim: dra_v1.Claim) -> None:
        name = "wrong" if "bad-metadata" in self.switches else "req"
        path = self._metadata(claim) / name / "metadata.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"requests": []}))

    def _unprepare(self, claim: dra_v1.Claim) -> None:
        on = self.switches
        if on & {"reads-claim", "asks-api"}:
            self._read_for_unprepare(claim)
        with self.lock:
            entries = self.entries()
            entry = entries.pop(claim.uid, None)
            if entry is None:
                if "unknown-fails" in on or claim.uid in self.unprepared:
                    raise ClaimError("the claim is not prepared")
                return
            if "counts" in on and entry["count"] > 1:
                entries[claim.uid] = {**entry, "count": entry["count"] - 1}
                self.store(entries)
                return
            if "unprepares-once" in on:
                self.unprepared.add(claim.uid)
            if "leaves-cdi" not in on:
                self._cdi_path(claim.uid).unlink(missing_ok=True)
            if on & {"metadata", "bad-metadata"}:
                for path in sorted(self._metadata(claim).rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()
            self.store(entries)

    def _read_for_unprepare(self, claim: dra_v1.Claim) -> None:
        try:
            found = self.api.claim(claim.namespace, claim.name)
        except ClusterError as error:
            raise ClaimError(str(error)) from error
        if found is None and "reads-claim" in self.switches:
            raise ClaimError("the claim does not exist")


def _held(devices: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the devices that only one claim can have: those without admin access."""
    return {(each["pool"], each["device"]) for each in devices if not each["admin"]}


def _with_generation(spec: Mapping[str, Any], generation: int) -> dict[str, Any]:
    return {**spec, "pool": {**spec["pool"], "generation": generation}}


def _is_in(spec: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> bool:
    return any(_comparable(each) == _comparable(spec) for each in found)


def _comparable(spec: Mapping[str, Any]) -> Any:
    devices = [
        (each["name"], bool(each.get("taints")), bool(each.get("attributes")))
        for each in spec["devices"]
    ]
    return spec["pool"]["name"], spec["pool"]["resourceSliceCount"], devices


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--switch", action="append", default=[])
    Driver(set(parser.parse_args().switch)).run()


if __name__ == "__main__":
    main()
