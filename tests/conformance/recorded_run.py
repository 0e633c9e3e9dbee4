"""A run of a check that records what the check does, and helpers for the tests of its outcome."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import grpc

from devicemanager.conformance import Hardware, all_checks
from devicemanager.conformance.checks import (
    registration,
)
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.outcomes import Failed, Lost, Skipped, Warned
from devicemanager.core.topology import NumaTopology
from protos import deviceplugin_v1beta1 as dp
from tests.conformance.test_check_run import LIMITS as NO_SECONDS
from tests.conformance.test_check_run import Run as PlainRun

LIMITS = attrs.evolve(NO_SECONDS, away_seconds=0.0)


GPU, NIC = "vendor.com/gpu", "vendor.com/nic"


CHECKS = {check.id: check for check in all_checks()}


def outcome(id_: str, run: Any) -> str:
    """Run a check. Return its outcome, the ID of the check that may report the cause, and its
    text."""
    try:
        return f"pass: {CHECKS[id_].run(run)}"
    except Failed as failed:
        word = "lost" if isinstance(failed, Lost) else "fail"
        symptom = f" ({failed.symptom})" if failed.symptom else ""
        return f"{word}{failed.cause and f' {failed.cause}'}: {failed}{symptom}"
    except Warned as warned:
        return f"warn: {warned}"
    except Skipped as skipped:
        return f"skip{skipped.cause and f' {skipped.cause}'}: {skipped}"


def error(code: str = "INTERNAL", rpc: str = "Allocate", details: str = "no") -> CallFailed:
    """Return the error of a call."""
    made = CallFailed(rpc, grpc.RpcError())
    made.code = code
    made.args = (f"{rpc} failed with {code}: {details}",)
    return made


def device(id_: str = "d0", health: str = "Healthy", *nodes: int) -> dp.Device:
    made = dp.Device(ID=id_, health=health)
    for node in nodes:
        made.topology.nodes.add(ID=node)
    return made


def register(name: str = GPU, endpoint: str = "p.sock", **more: Any) -> Any:
    """Return a Register call in the kubelet's log."""
    request = {"version": "v1beta1", "resource_name": name, "endpoint": endpoint}
    return SimpleNamespace(
        request=request | more.pop("request", {}),
        resource=name,
        **{"code": "OK", "message": "", "number": 1, "duration": 2.5, "time": 1.0} | more,
    )


def listed(*devices: dp.Device, **more: Any) -> Any:
    """Return a device list in the kubelet's log."""
    message = dp.ListAndWatchResponse(devices=devices)
    values = {"stream_message": 1, "number": 2, "duration": 0.25, "time": 1.0} | more
    return SimpleNamespace(**{"response_bytes": message.SerializeToString()} | values)


class Client:
    """Connection to a plugin whose answers are given. An answer that is an exception is raised, and
    the answers of a list come one after another."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.made: list[Any] = []

    def __getattr__(self, rpc: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.made.append((rpc, *arguments))
            answer = self.answers.get(rpc)
            if isinstance(answer, list):
                answer = answer.pop(0)
            if callable(answer):
                answer = answer(*arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def options(pre_start: bool = False, preference: bool = False) -> dp.DevicePluginOptions:
    return dp.DevicePluginOptions(
        pre_start_required=pre_start, get_preferred_allocation_available=preference
    )


def answer(*containers: dp.ContainerAllocateResponse) -> dp.AllocateResponse:
    return dp.AllocateResponse(container_responses=containers)


def container(**fields: Any) -> dp.ContainerAllocateResponse:
    return dp.ContainerAllocateResponse(**fields)


def each_container(**fields: Any) -> Any:
    """Return a function that answers Allocate with the same response for each container."""
    return lambda *groups: answer(*[container(**fields) for _ in groups])


class Run(PlainRun):
    """Run whose plugin has these devices, and responds through this client."""

    def __init__(self, *devices: dp.Device, client: Client | None = None, **observed: Any) -> None:
        super().__init__(*devices, **observed)
        self.limits = LIMITS
        self.to_plugin = client or Client()
        self.took: Any = 1.25
        self.exits: list[str] = []
        self.kubelet.faults = SimpleNamespace(
            set=lambda *words, **more: self.seen.append(("set", *words, more)),
            clear=lambda: self.seen.append("clear"),
        )
        self.plugin.has_exited_once = False
        self.plugin.process = SimpleNamespace(
            exit_status=None, output=lambda: [], starts=1, is_running=True
        )
        self.plugin.under_test = SimpleNamespace(
            hardware=Hardware(numa=NumaTopology.up_to(1)), has=lambda name: True, kind="plugin"
        )
        self.alive: list[str] = []

    @contextlib.contextmanager
    def client(self, resource: str | None = None) -> Iterator[Any]:
        yield self.to_plugin

    def check_alive(self, after: str) -> None:
        self.alive.append(after)

    def start(self) -> None:
        self.seen.append("start")

    def relaunch(self, after: str) -> None:
        self.seen.append(f"relaunch after {after}")

    def launch(self, *before: str, hook: str = "") -> Any:
        self.seen.append("launch")
        return self.plugin.process

    def wait_registered(self, since: Any, seconds: float, after: str) -> float:
        self.seen.append(f"wait {seconds:g} s after {after}")
        if isinstance(self.took, Exception):
            raise self.took
        return self.took


def calls(*made: Any, **more: Any) -> dict[str, Any]:
    """Return an observation of these Register calls."""

    def registrations(
        since: Any = None, resource: str | None = None, code: str | None = "OK"
    ) -> list[Any]:
        return [
            each for each in made if resource in (None, each.resource) and code in (None, each.code)
        ]

    return {"registrations": registrations} | more


class Changing(Run):
    """Run in which changes of devices are noted, and take these seconds."""

    def __init__(self, *devices: dp.Device, takes: Any = (), **more: Any) -> None:
        super().__init__(*devices, **more)
        self.changes: list[str] = []
        self.takes = iter(takes)

    def _change(self, hook: str, id_: str, healthy: bool, when: str) -> float:
        self.changes.append(f"{hook.partition('-')[0]} {id_}{when}")
        took = next(self.takes, 1.0)
        if isinstance(took, Exception):
            raise took
        return took


def allocating(*devices: str, **answers: Any) -> Run:
    run = Run(*map(device, devices or ("a", "b")), client=Client(**answers))
    run.rng = random.Random(1)
    run.plugin.path = Path
    run.kubelet.plugin_dir = Path("/tmp/p")
    run.observed.is_serving = lambda resource: True
    return run


def node(host: str = "/dev/null", inside: str = "/dev/x", permissions: str = "rw") -> Any:
    return dp.DeviceSpec(host_path=host, container_path=inside, permissions=permissions)


def mount(host: str = "/dev", inside: str = "/x") -> Any:
    return dp.Mount(host_path=host, container_path=inside)


class Restarting(Changing):
    """Run whose plugin registers again after each of these seconds."""

    def __init__(self, *takes: Any, devices: Any = (), **more: Any) -> None:
        super().__init__(*(devices or [device("a")]), **more)
        self.left = iter(takes)

    def wait_registered(self, since: Any, seconds: float, after: str) -> float:
        self.seen.append(f"wait {seconds:g} s after {after}")
        took = next(self.left, 1.0)
        if isinstance(took, Exception):
            raise took
        return took


RESTARTS = attrs.evolve(LIMITS, recover_seconds=60.0, recover_warn_seconds=10.0, restarts=3)


class Ending(SimpleNamespace):
    """Process that ends after a signal, with a status."""

    def stay_down(self) -> None:
        self.seen.append("stay down")

    def send_signal(self, number: int) -> None:
        self.seen.append(int(number))
        self.is_running = not self.ends
        self.exit_status = self.status


def ending(run: Run, *, ends: bool = True, status: int | None = 0) -> Run:
    run.plugin.process = Ending(
        seen=run.seen, ends=ends, status=status, is_running=True, output=lambda: [], starts=1
    )
    return run


def bound(path: Path) -> Path:
    registration._leave_stale_socket(path)
    return path
