"""A device plugin that is correct, except for the faults that its switches add.

Usage: ``python breakable.py --dir DIR [--switch NAME]...``. Hooks write its devices to a file,
one line with ID and health each; SIGUSR1 makes the plugin read it again. It uses gRPC directly,
because the framework of this project prevents most of these faults.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import queue
import random
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as pr_grpc

RESOURCE = "conformance.example.com/device"
EMPTY = "conformance.example.com/a-resource-without-devices"
_POLL = 0.05
# If a kubelet ends with the connection in its backlog, gRPC may not notice that, and waits for the
# first frame: 20 s by default.
_CONNECT_TIMEOUT = ("grpc.min_reconnect_backoff_ms", 1000)


def die(text: str) -> NoReturn:
    """Exit as after an uncaught error, from any thread."""
    print(text, file=sys.stderr, flush=True)
    os._exit(1)


def card(id_: str) -> int:
    """Return the number of the card of a device."""
    return int(id_.rpartition("-")[2]) // 2


class Devices:
    """The devices, with notifications of changes."""

    def __init__(self, path: Path, switches: set[str], prefix: str) -> None:
        self.path = path
        self.switches = switches
        self.prefix = prefix
        self.changed = threading.Condition()
        self.version = 0
        self.health: dict[str, str] = {}
        self.updates: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.reading = threading.Lock()
        if switches & {"random-ids", "long-ids"}:
            path.write_text("".join(f"{prefix}-{number} Healthy\n" for number in range(4)))
        self.read()

    def read(self) -> None:
        """Read the file; without one there are four healthy devices."""
        with self.reading:
            self._read()

    def _read(self) -> None:
        lines = self.path.read_text().splitlines() if self.path.exists() else None
        health = dict(line.split() for line in lines) if lines is not None else None
        if health is None:
            count = 4
            health = {f"{self.prefix}-{number}": "Healthy" for number in range(count)}
        if "shared-cards" in self.switches:  # two IDs on each card
            broken = {card(id_) for id_, each in health.items() if each != "Healthy"}
            health = {id_: "Unhealthy" if card(id_) in broken else "Healthy" for id_ in health}
        if "all-unhealthy" in self.switches:
            health = dict.fromkeys(health, "Unhealthy")
        if "no-break" in self.switches:
            health = dict.fromkeys(health, "Healthy")
        if "no-heal" in self.switches:
            for id_, before in self.health.items():
                if before == "Unhealthy" and id_ in health:
                    health[id_] = before
        if "drop-broken" in self.switches:
            health = {id_: each for id_, each in health.items() if each == "Healthy"}
        if "no-empty" in self.switches and not health:
            os._exit(4)
        with self.changed:
            if health != self.health:
                self.health = health
                self.version += 1
                self.updates.put(None)
                self.changed.notify_all()


class Service(dp_grpc.DevicePluginServicer):
    def __init__(self, plugin: Plugin, resource: str) -> None:
        self.plugin = plugin
        self.switches = plugin.switches
        self.devices = plugin.devices
        self.resource = resource
        self.allocations = 0
        self.seen: set[str] = set()
        self.garbage: list[bytes] = []
        self.prepared: set[str] = set()
        self.busy = threading.Lock()
        self.lists = 0
        self.live: list[threading.Event] = []

    # -- ListAndWatch ----------------------------------------------------------------

    def list(self, health: dict[str, str]) -> dp.ListAndWatchResponse:
        on = self.switches
        response = dp.ListAndWatchResponse()
        if self.resource == EMPTY:
            return response
        for number, (id_, state) in enumerate(health.items()):
            if "lowercase-health" in on:
                state = state.lower()
            device = response.devices.add(ID=id_, health=state)
            if "numa" in on or "numa-unknown" in on or "numa-moves" in on:
                node = 63 if "numa-unknown" in on else 0
                if "numa-moves" in on:
                    node = int(self.lists > 0)  # any later list differs from the first
                device.topology.nodes.add(ID=node)
            if "empty-topology" in on:
                device.topology.SetInParent()
            if number == 0 and "twice-listed" in on:
                response.devices.add(ID=id_, health=state)
        if "large-list" in on:
            for number in range(2_000):
                response.devices.add(ID=f"large-{number:055d}", health="Unhealthy")
        self.lists += 1
        return response

    def ListAndWatch(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> Iterator[dp.ListAndWatchResponse]:
        on, devices = self.switches, self.devices
        ended = threading.Event()
        context.add_callback(ended.set)
        context.add_callback(self._wake)
        context.add_callback(lambda: self.plugin.stream_ended(self))
        self.plugin.streams += 1
        if "exit-on-stream-end" in on:
            context.add_callback(lambda: os._exit(5))
        if "one-stream" in on:
            for other in self.live:
                other.set()
            self._wake()
        if "first-stream-only" in on and not all(each.is_set() for each in self.live):
            ended.wait()
            return
        self.live.append(ended)
        if "late-list" in on:
            ended.wait(0.2)
        if "very-late-list" in on:
            ended.wait(3)
        if "leak-handlers" in on:
            context.add_callback(lambda: threading.Thread(target=time.sleep, args=(3600,),
                                                          daemon=True).start())  # fmt: skip
        if "stale-handlers" in on:
            yield from self.shared_lists()
        if "empty-first" in on:
            yield dp.ListAndWatchResponse()
            ended.wait(0.3)
        sent = -1
        shown: dict[str, str] = {}
        began = time.monotonic()
        while not ended.is_set() or "slow-handlers" in on:
            if "slow-handlers" in on and sent >= 0:
                # It notices the end of its stream only now and then, as with time.sleep.
                time.sleep(1.0)
                if not context.is_active():
                    return
                if devices.version == sent:
                    continue
            with devices.changed:
                if devices.version == sent:
                    timeout = 0.2 if "chatty" in on or "short-stream" in on else 3600
                    devices.changed.wait(timeout)
                health, version = dict(devices.health), devices.version
            if ended.is_set():
                return
            if "short-stream" in on and time.monotonic() - began > 0.4:
                return
            if version == sent and "chatty" not in on:
                continue
            if "waits-for-readers" in on and sent >= 0 and self.streams_open() > 1:
                time.sleep(_POLL)
                continue
            if "delta" in on and sent >= 0:
                health, shown = (
                    {id_: each for id_, each in health.items() if shown.get(id_) != each},
                    health,
                )
            else:
                shown = health
            sent = version
            if "queue-memory" in on:
                self.garbage.append(b"\1" * (12 << 20))
            yield self.list(health)

    def shared_lists(self) -> Iterator[dp.ListAndWatchResponse]:
        """Yield lists like a handler on a shared channel: an update goes to the handler that has
        waited longest, even if its stream has ended."""
        yield self.list(dict(self.devices.health))
        while True:
            self.devices.updates.get()
            yield self.list(dict(self.devices.health))

    def streams_open(self) -> int:
        return sum(not ended.is_set() for ended in self.live)

    def _wake(self) -> None:
        with self.devices.changed:
            self.devices.changed.notify_all()

    # -- the calls -------------------------------------------------------------------

    def GetDevicePluginOptions(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> dp.DevicePluginOptions:
        if "slow-options" in self.switches:
            time.sleep(0.15)
        return self.plugin.options()

    def Allocate(self, request: dp.AllocateRequest, context: grpc.ServicerContext) -> object:
        if "deadlock" not in self.switches:
            return self._allocate(request, context)
        if not self.busy.acquire(blocking=False):
            time.sleep(3600)
        try:
            return self._allocate(request, context)
        finally:
            time.sleep(0.005)
            self.busy.release()

    def _allocate(self, request: dp.AllocateRequest, context: grpc.ServicerContext) -> object:
        on = self.switches
        if "exit-on-cancel" in on:
            context.add_callback(lambda: context.is_active() or None)
            time.sleep(0.2)  # longer than a busy machine needs to cancel the call
            if not context.is_active():
                os._exit(6)
        if "exit-on-empty" in on and not any(c.devices_ids for c in request.container_requests):
            os._exit(7)
        if "no-library" in on:
            context.abort(grpc.StatusCode.UNKNOWN, "open /opt/vendor/lib: no such file")
        if "slow-allocate" in on:
            time.sleep(0.12)
        self.allocations += 1
        if "slots" in on and self.allocations > 100:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no slot is left")
        if "leak-allocations" in on:
            self.garbage.append(secrets.token_bytes(1 << 17))
        containers = [list(each.devices_ids) for each in request.container_requests]
        if "per-device" in on:
            containers = [[id_] for ids in containers for id_ in ids]
        response = dp.AllocateResponse()
        for ids in containers:
            self._check(ids, context)
            self._fill(response.container_responses.add(), ids)
        return response

    def _check(self, ids: list[str], context: grpc.ServicerContext) -> None:
        on = self.switches
        for id_ in ids:
            if id_ not in self.devices.health:
                if "accept-unknown" in on or ("accept-partly" in on and len(ids) > 1):
                    continue
                context.abort(grpc.StatusCode.NOT_FOUND, f"no device {id_}")
            if self.devices.health[id_] != "Healthy" and "accept-broken" not in on:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{id_} is broken")
            if "late-allocatable" in on and id_ not in self.plugin.first:
                context.abort(grpc.StatusCode.NOT_FOUND, f"no device {id_} yet")

    def _fill(self, answer: dp.ContainerAllocateResponse, ids: list[str]) -> None:
        on = self.switches
        answer.envs["DEVICES"] = ids[-1] if "last-only" in on and ids else ",".join(sorted(ids))
        if "last-only" not in on:
            answer.envs.update({f"DEVICE_{n}": id_ for n, id_ in enumerate(sorted(set(ids)))})
        if "variable-names" in on:
            answer.envs.update({f"HAS_{id_}": "1" for id_ in ids})
        if "same-variable" in on:
            answer.envs["RESOURCE"] = self.resource
        if "order-matters" in on and ids:
            answer.envs[f"FIRST_{ids[0]}"] = "1"
        if "changes" in on:
            answer.envs[f"CALL_{self.allocations}"] = "1"
        for id_ in dict.fromkeys(ids):
            if "devices" in on or "shared-node" in on or "relative-path" in on:
                number = int(id_.rpartition("-")[2]) if id_[-1].isdigit() else 0
                nodes = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
                path = nodes[0 if "shared-node" in on else number % len(nodes)]
                if "relative-path" in on:
                    path = path.lstrip("/")
                answer.devices.add(
                    host_path=path, container_path=f"/dev/mock/{id_}", permissions="rw"
                )
            if "shared-cards" in on:
                path = ("/dev/null", "/dev/zero", "/dev/full")[card(id_) % 3]
                answer.devices.add(host_path=path, container_path=path, permissions="rw")
            if "two-hosts" in on:
                path = ("/dev/null", "/dev/zero")[ids.index(id_) % 2]
                answer.devices.add(host_path=path, container_path="/dev/card", permissions="rw")
            if "no-device" in on:
                path = f"/dev/mock/{id_}"
                answer.devices.add(host_path=path, container_path=path, permissions="rw")
            if "cdi" in on:
                answer.cdi_devices.add(name=f"vendor.example.com/class={id_}")
            if "bad-cdi" in on:
                answer.cdi_devices.add(name=id_)
        if "bad-annotation" in on:
            answer.annotations["example.com/" + "x" * 64] = "1"
        if "no-mount" in on:
            answer.mounts.add(host_path="/nowhere", container_path="/data", read_only=True)
        if "mount" in on or "mount-removed" in on:
            path = self.plugin.artefact()
            answer.mounts.add(host_path=str(path), container_path="/artefact", read_only=True)

    def GetPreferredAllocation(
        self, request: dp.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> dp.PreferredAllocationResponse:
        on = self.switches
        if "no-preference" in on:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not implemented")
        if "exit-on-odd-call" in on:
            os._exit(8)
        if "slow-preference" in on:
            time.sleep(0.2)
        response = dp.PreferredAllocationResponse()
        for wanted in request.container_requests:
            available, must = list(wanted.available_deviceIDs), list(wanted.must_include_deviceIDs)
            size = wanted.allocation_size
            if "exit-on-infeasible" in on and size > len(available):
                os._exit(9)
            if "needs-all" in on and len(available) < len(self.devices.health):
                context.abort(grpc.StatusCode.INTERNAL, "a device is missing")
            if "no-edges" in on and size == len(available):
                context.abort(grpc.StatusCode.INTERNAL, "nothing to choose")
            rest = sorted(set(available) - set(must))
            if "random-preference" in on:
                random.shuffle(rest)
            ids = [*must, *rest][: max(0, size)]
            if "ignores-must" in on:
                ids = sorted(available)[:size]
            response.container_responses.add(deviceIDs=ids)
            if "one-preference" in on:
                break
        return response

    def PreStartContainer(
        self, request: dp.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> dp.PreStartContainerResponse:
        on = self.switches
        if "no-pre-start" in on:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not implemented")
        if "slow-pre-start" in on:
            time.sleep(1.5)
        ids = frozenset(request.devices_ids)
        unknown = ids - self.devices.health.keys()
        if unknown and "prepare-unknown" not in on:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no device {min(unknown)}")
        if "prepare-once" in on and ids <= self.prepared:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "prepared")
        if "prepare-needs-allocate" in on and not self.allocations:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not allocated")
        self.prepared |= ids
        return dp.PreStartContainerResponse()


class Info(pr_grpc.RegistrationServicer):
    """Registration service for the plugin watcher."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin

    def GetInfo(self, request: pr.InfoRequest, context: grpc.ServicerContext) -> pr.PluginInfo:
        wrong = "registry-type" in self.plugin.switches
        return pr.PluginInfo(
            type="CSIPlugin" if wrong else "DevicePlugin",
            name="conformance.example.com/watched",
            supported_versions=["v1beta1"],
        )

    def NotifyRegistrationStatus(
        self, request: pr.RegistrationStatus, context: grpc.ServicerContext
    ) -> pr.RegistrationStatusResponse:
        return pr.RegistrationStatusResponse()


class Plugin:
    def __init__(self, directory: Path, switches: set[str]) -> None:
        self.directory = directory
        self.switches = switches
        root = directory.parent
        prefix = secrets.token_hex(2) if "random-ids" in switches else "device"
        if "long-ids" in switches:
            prefix = "x" * 70
        self.devices = Devices(root / "devices.txt", switches, prefix)
        self.first = set(self.devices.health)
        self.instance = "" if "fixed-socket" in switches else f"-{os.getpid()}"
        if "no-unlink" in switches or "unlink-by-name" in switches:
            self.instance = ""
        self.resources = [RESOURCE]
        if switches & {"two", "same-variable", "all-or-nothing"}:
            self.resources.append(RESOURCE + "-2")
        if "three" in switches:
            self.resources = [EMPTY, RESOURCE, RESOURCE + "-2"]
        self.servers: dict[str, tuple[grpc.Server, Service, Path]] = {}
        self.own: dict[Path, sockets.FileIdentity | None] = {}
        self.identity: sockets.FileIdentity | None = None
        self.stopping = threading.Event()
        self.is_set_up = threading.Event()
        self.unwatched: set[Path] = set()
        self.streams = 0
        self.streams_ended = threading.Event()
        self.registrations = 0
        self.leaked: list[object] = []
        self._artefact: Path | None = None

    # -- used by the services -----------------------------------------------------------

    def options(self) -> dp.DevicePluginOptions:
        on = self.switches
        return dp.DevicePluginOptions(
            pre_start_required="no-calls" not in on,
            get_preferred_allocation_available="no-calls" not in on,
        )

    def stream_ended(self, service: Service) -> None:
        # Ignore the streams of a server that this plugin has stopped.
        if any(service is each for _, each, _ in self.servers.values()):
            self.streams_ended.set()

    def artefact(self) -> Path:
        if self._artefact is None:
            self._artefact = self.directory.parent / "artefact"
            self._artefact.write_text("in use")
        return self._artefact

    # -- serving -----------------------------------------------------------------------

    def endpoint(self, resource: str) -> str:
        name = resource.rpartition("/")[2]
        if "long-socket" in self.switches:
            return name + "x" * 80
        return f"{name}{self.instance}.sock"

    def serve(self, resource: str) -> None:
        self.stop(resource)
        path = self.directory / self.endpoint(resource)
        if "no-unlink" in self.switches and path.exists():
            die(f"bind: address already in use: {path}")
        if "long-socket" in self.switches:
            die("OSError: AF_UNIX path too long")
        bound = path
        if "fixed-socket" in self.switches:  # replaced at once: the other instance must see no gap
            bound = path.with_name(f".{os.getpid()}")
        bound.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(40 if "slow-handlers" in self.switches else 16))
        service = Service(self, resource)
        dp_grpc.add_DevicePluginServicer_to_server(service, server)
        if "answers-anything" in self.switches:
            server.add_generic_rpc_handlers((_Anything(),))
        server.add_insecure_port(sockets.target(bound))
        server.start()
        if bound != path:
            bound.rename(path)
        self.own[path] = sockets.FileIdentity.of(path)
        self.servers[resource] = (server, service, path)

    def stop(self, resource: str) -> None:
        if resource in self.servers:
            server, service, path = self.servers.pop(resource)
            server.stop(None)
            with self.devices.changed:
                self.devices.changed.notify_all()
            path.unlink(missing_ok=True)
            if "leak-descriptors" in self.switches:
                leak = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                leak.bind(f"\0{secrets.token_hex(8)}")
                leak.listen()
                self.leaked.append((leak, service))

    def register(self, resource: str) -> None:
        on = self.switches
        endpoint = self.endpoint(resource)
        if "endpoint-path" in on:
            endpoint = f"./{endpoint}"
        options = self.options()
        if "options-differ" in on:
            options.pre_start_required = not options.pre_start_required
        name = "kubernetes.io/bad" if "bad-name" in on else resource
        request = dp.RegisterRequest(
            version="v1beta1", endpoint=endpoint, resource_name=name, options=options
        )
        with grpc.insecure_channel(
            sockets.target(self.directory / "kubelet.sock"), [sockets.AUTHORITY, _CONNECT_TIMEOUT]
        ) as channel:
            again = threading.Timer(1.0, self.register_again, [request])
            if "impatient" in on:
                again.start()
            try:
                patience = 1.0 if "short-register" in on else 60
                dp_grpc.RegistrationStub(channel).Register(request, timeout=patience)
            finally:
                again.cancel()
        self.registrations += 1

    def register_again(self, request: dp.RegisterRequest) -> None:
        with grpc.insecure_channel(
            sockets.target(self.directory / "kubelet.sock"), [sockets.AUTHORITY]
        ) as channel:
            dp_grpc.RegistrationStub(channel).Register(request, timeout=60)

    def come_up(self) -> None:
        """Serve and register all resources, with retries."""
        on = self.switches
        if "deprecation" in on and (self.directory / "DEPRECATION").exists():
            return
        pending = list(self.resources)
        while pending and not self.stopping.is_set():
            identity = self.kubelet()
            if identity is None:
                if "exit-without-kubelet" in on:
                    os._exit(0)
                self.stopping.wait(_POLL)
                continue
            self.identity = identity
            for resource in list(pending):
                try:
                    if "register-first" in on:
                        self.register(resource)
                        self.serve(resource)
                    else:
                        if not self.keeps_server(resource):
                            self.serve(resource)
                        self.register(resource)
                        if "registers-twice" in on and self.registrations > 2:
                            self.register(resource)
                    pending.remove(resource)
                except grpc.RpcError as error:
                    print(f"cannot register: {error}", flush=True)
                    if "gives-up" in on or "register-first" in on:
                        return
                    if "all-or-nothing" in on:
                        break
            if pending:
                self.stopping.wait(0.0 if "hot-loop" in on else 1.0)

    def kubelet(self) -> sockets.FileIdentity | None:
        return sockets.FileIdentity.of(self.directory / "kubelet.sock")

    def run(self) -> None:
        on = self.switches
        self.serve_registry()
        if "no-register" in on:
            self.stopping.wait()
            return
        self.come_up()
        if "late-setup" in on:
            self.stopping.wait(0.3)
            self.watch()
        quiet = 0.0
        polled = time.monotonic()
        while not self.stopping.wait(_POLL):
            if "polls" in on and time.monotonic() - polled > 2.0:
                polled = time.monotonic()
                self.devices.read()
            if "leaky-idle" in on or ("spin-when-away" in on and self.kubelet() is None):
                until = time.monotonic() + 0.2
                while time.monotonic() < until:
                    pass
            if "reregister" in on and self.registrations and not self.is_lost():
                quiet += _POLL
                if quiet > 1:
                    quiet = 0.0
                    with contextlib.suppress(grpc.RpcError):
                        for resource in self.resources:
                            self.register(resource)
            if self.kubelet() != self.identity:
                if "exit-0-on-loss" in on:
                    os._exit(0)
                if "exit-1-on-loss" in on:
                    os._exit(1)
                if "dies-by-panic" in on:
                    die("panic: close of closed channel")
            if self.is_lost():
                quiet = 0.0
                if "never-back" in on or ("third-fails" in on and self.registrations > 2):
                    continue
                self.streams_ended.clear()
                self.come_up()
                if "deaf" in on:
                    self.stopping.wait(1.5)
                    self.identity = self.kubelet()

    def watch(self) -> None:
        """Begin to watch the directory, after the registration: earlier changes stay unnoticed."""
        self.identity = self.kubelet()
        self.streams_ended.clear()
        self.unwatched = {path for path in self.own if not path.exists()}
        self.is_set_up.set()

    def is_lost(self) -> bool:
        """True if the kubelet may have forgotten this plugin."""
        on = self.switches
        identity = self.kubelet()
        if identity is None:
            return False
        if "fixed-socket" in on and any(map(self.is_taken, self.own)):
            return False
        if identity != self.identity and "ignores-kubelet" not in on:
            return True
        if "deaf" in on:
            return False
        if "ignores-own" not in on and any(
            not path.exists() and path not in self.unwatched for _, _, path in self.servers.values()
        ):
            return True
        if "any-stream" in on and self.streams_ended.is_set():
            return True
        return "ignores-stream" not in on and self.streams_ended.is_set() and self.no_stream()

    def is_taken(self, path: Path) -> bool:
        """True if another instance serves at this path now."""
        return sockets.FileIdentity.of(path) not in (None, self.own[path])

    def no_stream(self) -> bool:
        """True if all ListAndWatch streams of a resource have ended."""
        lives = [service.live for _, service, _ in self.servers.values()]
        return any(live and all(event.is_set() for event in live) for live in lives)

    def keeps_server(self, resource: str) -> bool:
        """True if the plugin registers again without a new server."""
        if "keeps-server" not in self.switches or resource not in self.servers:
            return False
        _, _, path = self.servers[resource]
        return path.exists()

    def serve_registry(self) -> None:
        if not self.switches & {"registry", "registry-type"}:
            return
        path = self.directory.parent / "plugins_registry" / f"watched-{os.getpid()}.sock"
        path.parent.mkdir(exist_ok=True)
        server = grpc.server(ThreadPoolExecutor(4))
        pr_grpc.add_RegistrationServicer_to_server(Info(self), server)
        dp_grpc.add_DevicePluginServicer_to_server(Service(self, RESOURCE), server)
        server.add_insecure_port(sockets.target(path))
        server.start()
        self.registry = server

    def end(self) -> None:
        on = self.switches
        self.stopping.set()
        if "mount-removed" in on and self._artefact is not None:
            self._artefact.unlink(missing_ok=True)
        if "removes-others" in on:
            for path in self.directory.iterdir():
                if path.name.startswith("others"):
                    path.unlink()
        if "unlink-by-name" in on:
            for resource in self.resources:
                (self.directory / self.endpoint(resource)).unlink(missing_ok=True)
        for resource in list(self.servers):
            _, _, path = self.servers[resource]
            if "leaves-socket" in on:
                os._exit(0)
            if "fixed-socket" in on and self.is_taken(path):
                os._exit(0)
            self.stop(resource)


class _Anything(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


def run_or_die(plugin: Plugin) -> None:
    """Run the plugin. An error ends the process: otherwise it would stay, and never register."""
    try:
        plugin.run()
    except BaseException:
        traceback.print_exc()
        die("the plugin's thread failed")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--switch", action="append", default=[])
    args = parser.parse_args()
    switches = set(args.switch)
    if not args.dir.is_dir():
        if "silent" in switches:
            os._exit(3)
        if "panics" in switches:
            print("panic: stat: not a directory\n\ngoroutine 1 [running]:", file=sys.stderr)
            sys.exit(2)
        sys.exit(f"{args.dir} is not a directory")
    plugin = Plugin(args.dir, switches)
    libc = ctypes.CDLL(None)
    if "two-watches" in switches:
        plugin.leaked += [libc.inotify_init(), libc.inotify_init()]
    if "needs-inotify" in switches and libc.inotify_init() < 0:
        threading.Event().wait()
    # Wait for signals instead of installing handlers: if another thread gets the signal, a
    # handler runs only when the main thread next executes code, and that may be never.
    signals = {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    worker = threading.Thread(target=run_or_die, args=(plugin,), daemon=True)
    worker.start()
    gc.freeze()
    if "late-setup" in switches:  # until then, signals end the process at once
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        plugin.is_set_up.wait()
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    while (number := signal.sigwait(signals)) == signal.SIGUSR1 or "stubborn" in switches:
        if number == signal.SIGUSR1 and "polls" not in switches:
            plugin.devices.read()
    plugin.end()
    os._exit(0)


if __name__ == "__main__":
    main()
