"""What each check says about a plugin, without a plugin: one row per outcome of a check."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import grpc
import pytest

from devicemanager.conformance import Hardware, Limits, all_checks
from devicemanager.conformance.checks import (
    allocate,
    lifecycle,
    listandwatch,
    registration,
    steps,
)
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.observations import EVER
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


# -- registration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1beta1", "pass: registered after 1.25 s"),
        ("v1", "fail: invalid version 'v1' in Register: expected v1beta1"),
    ],
)
def test_r01(version: str, expected: str) -> None:
    run = Run(**calls(register(request={"version": version})))
    assert outcome("R01", run) == expected
    assert run.seen == ["start the kubelet", "kubelet.start", "launch", "wait 0 s after its start"]


@pytest.mark.parametrize(
    ("made", "in_progress", "expected"),
    [
        ([register()], [], "pass: None"),
        ([], ["Register"], "fail: the plugin's socket did not respond while Register was in "
         "progress"),
        ([], ["ListAndWatch"], "skip R01: the plugin did not try to register"),
        ([register("gpu", code="Unknown")], [], "skip R01: the kubelet rejected Register before "
         "dialing the plugin"),
        ([register(code="Unknown", message="x"), register()], [], "fail: the first Register call "
         "failed: x"),
    ],
)  # fmt: skip
def test_r02(made: list[Any], in_progress: list[str], expected: str) -> None:
    run = Run(**calls(*made))
    run.limits = attrs.evolve(LIMITS, start_seconds=5)
    run.kubelet.calls = SimpleNamespace(
        in_progress=[SimpleNamespace(rpc=rpc) for rpc in in_progress]
    )
    waits: list[float] = []
    run.until = lambda condition, seconds: waits.append(seconds)  # type: ignore[method-assign]
    assert outcome("R02", run) == expected
    assert waits == [15]


_NOT_TRIED = "skip R01: the plugin did not try to register"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (None, _NOT_TRIED),
        (register(endpoint="a/b"), f"fail: {GPU}: invalid endpoint 'a/b': expected a file name"),
        (register(endpoint=""), f"fail: {GPU}: invalid endpoint '': expected a file name"),
        (register(endpoint="."), f"fail: {GPU}: invalid endpoint '.': expected a file name"),
        (register(endpoint=".."), f"fail: {GPU}: invalid endpoint '..': expected a file name"),
        (register(endpoint="x"), f"fail: {GPU}: x is not a socket in the plugin directory"),
        (register(endpoint="x", code="Unknown"), "pass: None"),
    ],
)
def test_r03(call: Any, expected: str, tmp_path: Path) -> None:
    run = Run(**calls(*([call] if call else [])))
    run.kubelet.plugin_dir = tmp_path
    assert outcome("R03", run) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (None, _NOT_TRIED),
        (register(), "pass: None"),
        (register("gpu"), "fail: invalid resource name 'gpu': the kubelet rejects it"),
    ],
)
def test_r04(call: Any, expected: str) -> None:
    assert outcome("R04", Run(**calls(*([call] if call else [])))) == expected


@pytest.mark.parametrize(
    ("made", "output", "expected"),
    [
        ([], [], _NOT_TRIED),
        ([], ["AF_UNIX path too long"], "fail: the plugin cannot bind its socket: AF_UNIX path too "
         "long"),
        ([], ["x" * 300, "bind: invalid argument " + "y" * 300], "fail: the plugin cannot bind its "
         f"socket: bind: invalid argument {'y' * 177}"),
        ([register(endpoint="a.sock")], ["AF_UNIX path too long"], "pass: 38 bytes"),
        # The longest path counts, and its bytes: the kernel's limit is 108 bytes with a NUL.
        ([register(endpoint="é.sock"), register(NIC, "a.sock")], [], "pass: 39 bytes"),
        ([register(endpoint="x" * 75)], [], "pass: 107 bytes"),
        ([register(endpoint="x" * 76)], [], "fail: socket path /var/lib/kubelet/device-plugins/"
         f"{'x' * 76} has 108 bytes, limit 107"),
    ],
)  # fmt: skip
def test_r05(made: list[Any], output: list[str], expected: str) -> None:
    run = Run(**calls(*made))
    run.plugin.process.output = lambda: output
    assert outcome("R05", run) == expected


@pytest.mark.parametrize(
    ("count", "exited", "status", "output", "expected"),
    [
        (0, False, None, [], "fail: the plugin did not call Register within 0 s"),
        (1, True, 0, [], "fail: the rejected plugin exited with status 0, expected non-zero"),
        (0, True, 1, [], "pass: exits with an error, which is accepted: exit status 1"),
        (1, True, 2, ["panic: x"], "warn: the plugin crashed after a rejected Register call: exit "
         "status 1"),
        # Half a minute allows 30 attempts, so 5 s allow 5 and the first one.
        (6, False, None, [], "pass: 6 attempts in 5 s"),
        (2, False, None, [], "pass: 2 attempts in 5 s"),
        (7, False, None, [], "fail: Register was called too often: 7 attempts in 5 s, limit 6 per "
         "resource"),
        (1, False, None, [], "fail: 0 s after one rejection, the plugin has neither exited nor "
         "registered again"),
    ],
)  # fmt: skip
def test_r06(
    count: int, exited: bool, status: int | None, output: list[str], expected: str
) -> None:
    run = Run(**calls(*[register(code="Unknown") for _ in range(count)]))
    run.observe = lambda is_over, seconds: run.seen.append(seconds)  # type: ignore[method-assign]
    run.limits = attrs.evolve(LIMITS, register_window_seconds=5, register_attempts=30)
    run.plugin.has_exited_once = exited
    run.plugin.process.exit_status = status
    run.plugin.process.output = lambda: output
    assert outcome("R06", run) == expected
    fault = ("set", "reject-register", {"text": "rejected by the conformance suite"})
    assert run.seen[2:4] == [fault, "launch"]


class Exiting(SimpleNamespace):
    """Plugin that exits after the fault was cleared."""

    looks = 0

    @property
    def has_exited_once(self) -> bool:
        self.looks += 1
        return self.looks > 2

    @has_exited_once.setter
    def has_exited_once(self, value: bool) -> None:
        pass


def test_r06_of_a_plugin_that_registers_or_exits_later() -> None:
    run = Run(**calls(register(code="Unknown"), is_registered=lambda since, resources: True))
    run.observe = lambda is_over, seconds: None  # type: ignore[method-assign]
    assert outcome("R06", run) == "pass: registered after 0.0 s"
    assert run.seen[-2:] == ["clear", "accept registrations again"]
    run = Run(**calls(register(code="Unknown")))
    run.observe = lambda is_over, seconds: None  # type: ignore[method-assign]
    run.plugin = Exiting(**vars(run.plugin))
    assert outcome("R06", run) == "pass: exits with an error, which is accepted: exit status 1"


_GAVE_UP = f"the plugin gave up Register of {GPU} after 2.5 s"


@pytest.mark.parametrize(
    ("made", "lists", "took", "exited", "status", "expected"),
    [
        ([register()], [listed(number=0)], 1.0, False, None, "pass: None"),
        ([register()], [], 1.0, False, None, "pass: None"),
        ([register()], [listed(number=2)], 1.0, False, None, "fail: the plugin sent no device list "
         "while Register was in progress"),
        ([], [], 1.0, False, None, f"fail: Register of {GPU} did not complete within 9 s"),
        ([], [], 1.0, True, 0, "fail: the plugin exited during Register: exit status 1"),
        ([], [], 1.0, True, 3, "warn: the plugin exited during Register: exit status 1"),
        ([register(code="Canceled")], [], 1.5, False, None, f"warn: {_GAVE_UP}, and registered 1.5 "
         "s later"),
        ([register(code="Canceled")], [], Failed("no"), False, None, f"fail: {_GAVE_UP}, and did "
         "not recover: no"),
        ([register(code="Canceled")], [], Failed("no"), True, 3, "warn: the plugin exited during "
         "Register: exit status 1"),
        ([register(), register()], [listed(number=0)], 1.0, False, None, "fail: the plugin "
         f"registered {GPU} 2 times, expected once"),
    ],
)  # fmt: skip
def test_r07(
    made: list[Any], lists: list[Any], took: Any, exited: bool, status: Any, expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(registration, "_AT_ONCE", 0.0)
    run = Run(**calls(*made, lists=lambda resource, since: lists))
    run.limits = attrs.evolve(LIMITS, register_delay_seconds=9)
    run.until = lambda condition, seconds: 0.1 if condition() else None  # type: ignore[method-assign]
    run.took, run.plugin.has_exited, run.plugin.process.exit_status = took, exited, status
    assert outcome("R07", run) == expected
    assert ("set", "delay-register", {"seconds": 9}) in run.seen
    assert run.alive == (["a slow registration"] if expected.startswith("pass") else [])


def test_r08_begins_in_three_states(tmp_path: Path) -> None:
    run = Run()
    directory = run.kubelet.plugin_dir = tmp_path / "p"
    run.kubelet.plugin_socket = directory / "kubelet.sock"
    states: list[Any] = []

    def launch(*before: str, hook: str = "") -> Any:
        names = {path.name: path.is_socket() for path in directory.iterdir()}
        states.append(names if directory.exists() else None)
        return run.plugin.process

    def first(*before: str, hook: str = "") -> Any:
        assert not directory.exists()
        run.launch = launch  # type: ignore[method-assign]
        directory.mkdir()
        (directory / "left").touch()
        return run.plugin.process

    run.launch = first  # type: ignore[method-assign]
    run.plugin.end = lambda process: run.seen.append("end")
    assert outcome("R08", run) == (
        "pass: no directory: 1.25 s; an empty directory: 1.25 s; a stale kubelet.sock: 1.25 s"
    )
    assert states == [{}, {"kubelet.sock": True}]
    assert run.seen.count("end") == run.seen.count("kubelet.stop") == 3
    assert "leave a stale kubelet.sock" in run.seen


@pytest.mark.parametrize(
    ("exited", "status", "output", "expected"),
    [
        (False, None, [], "the plugin was started with S, and did not register within 0 s after "
         "the kubelet's start"),
        (True, 0, [], "the plugin exited with status 0 before the kubelet started, expected "
         "non-zero"),
        (True, 2, ["panic: x"], "the plugin crashed without a kubelet, with S: exit status 1"),
        (True, 2, [], "exits with an error, which is accepted: exit status 1"),
    ],
)  # fmt: skip
def test_r08_of_a_plugin_that_does_not_wait(
    exited: bool, status: Any, output: list[str], expected: str
) -> None:
    run = Run()
    run.took = Failed("no")
    run.plugin.has_exited, run.plugin.process.exit_status = exited, status
    run.plugin.process.output = lambda: output
    try:
        found = registration._start_before_the_kubelet(run, "S")
    except (Failed, Warned) as raised:
        found = str(raised)
    assert found == expected


@pytest.mark.parametrize(
    ("count", "ended", "expected"),
    [
        (0, 0, "pass: None"),
        (1, 1, "pass: None"),
        (1, 0, f"fail: {GPU} was registered again although its ListAndWatch stream was open: 1 "
         "more Register call"),
        (3, 2, f"fail: {GPU} was registered again although its ListAndWatch stream was open: 3 "
         "more Register calls"),
    ],
)  # fmt: skip
def test_r09(count: int, ended: int, expected: str) -> None:
    made = [register(code="Unknown") for _ in range(count)]
    run = Run(**calls(*made, ended_streams=lambda resource: [0] * ended))
    assert outcome("R09", run) == expected


@pytest.mark.parametrize(
    ("resources", "registered", "sockets", "expected"),
    [
        ((GPU,), True, "", "skip: needs 2 resources, the plugin has 1"),
        ((GPU, NIC), True, "a", "pass: None"),
        ((GPU, NIC, "v.com/x"), True, "ab", "pass: None"),
        ((GPU, NIC, "v.com/x"), True, "aa", "fail: several resources were registered with the same "
         "endpoint"),
        ((GPU, NIC, "v.com/x"), False, "ab", f"fail: {NIC}, v.com/x did not register because {GPU} "
         "was rejected"),
    ],
)  # fmt: skip
def test_r10(resources: Any, registered: bool, sockets: str, expected: str) -> None:
    of = dict(zip(resources[1:], sockets, strict=False))
    run = Run(
        is_registered=lambda since, names: registered and names == [*resources[1:]],
        socket=lambda resource: of[resource],
    )
    run.resources = resources
    assert outcome("R10", run) == expected
    if len(resources) > 1:
        more = {"resource": GPU, "text": "rejected by the conformance suite"}
        assert run.seen[2:] == [("set", "reject-register", more), "launch"]


def test_r11(tmp_path: Path) -> None:
    run = Run()
    run.kubelet.plugin_dir = tmp_path
    assert outcome("R11", run) == "pass: None"
    assert (tmp_path / "DEPRECATION").read_bytes() == b""
    assert run.seen == ["start the kubelet", "kubelet.start", "relaunch after its start"]


def info(**more: Any) -> Any:
    response = {"type": "DevicePlugin", "supported_versions": ["v1beta1"]} | more.pop("info", {})
    return SimpleNamespace(
        **{"code": "OK", "message": "", "plugin": "p.sock", "response": response} | more
    )


_INFO = "expected type DevicePlugin and version v1beta1"


@pytest.mark.parametrize(
    ("infos", "notified", "expected"),
    [
        ([], [], "skip: the plugin has no socket in plugins_registry"),
        ([info(code="Unavailable")] * 2 + [info()], [], "pass: None"),
        ([info(code="A", message="x"), info(code="B", message="y")], [], "fail: GetInfo failed "
         "with B: y"),
        ([info(info={"type": "x"})], [], "fail: invalid GetInfo response {'type': 'x', "
         f"'supported_versions': ['v1beta1']}}: {_INFO}"),
        ([info(info={"supported_versions": ["v1"]})], [], "fail: invalid GetInfo response {'type': "
         f"'DevicePlugin', 'supported_versions': ['v1']}}: {_INFO}"),
        ([info(response=None)], [], f"fail: invalid GetInfo response {{}}: {_INFO}"),
        ([info(plugin="/r/.p.sock")], [], "fail: the name of the socket .p.sock begins with a dot: "
         "kubelets ignore such files"),
        ([info()], [info(), info(code="Unknown", message="x")], "fail: NotifyRegistrationStatus "
         "failed with Unknown: x"),
    ],
)  # fmt: skip
def test_r12(infos: list[Any], notified: list[Any], expected: str, tmp_path: Path) -> None:
    run = Run()
    run.kubelet.plugins_registry_dir = tmp_path
    log = {"GetInfo": infos, "NotifyRegistrationStatus": notified}
    run.kubelet.calls = lambda rpc: log[rpc]
    assert outcome("R12", run) == expected


@pytest.mark.parametrize(
    ("registered", "reported", "expected"),
    [
        (None, options(), "pass: None"),
        ({"pre_start_required": True}, options(pre_start=True), "pass: None"),
        ({"pre_start_required": True}, options(), f"warn: {GPU}: pre_start_required is True in "
         "Register and False in GetDevicePluginOptions"),
        ({}, options(preference=True), f"warn: {GPU}: get_preferred_allocation_available is False "
         "in Register and True in GetDevicePluginOptions"),
    ],
)  # fmt: skip
def test_r13(registered: Any, reported: Any, expected: str) -> None:
    older = register(request={"options": {"pre_start_required": None}})
    made = [older, register(request={"options": registered})]
    run = Run(client=Client(options=reported), **calls(*made))
    assert outcome("R13", run) == expected


# -- topology and options ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "numa", "expected"),
    [
        ([device()], True, "skip: no device names a NUMA node"),
        ([device("a", "Healthy", 1), device("b", "Healthy", 0, 1)], True, "pass: NUMA nodes [0, "
         "1]"),
        ([device("a", "Healthy", -1)], True, f"fail: {GPU}: a is on NUMA node -1: expected a "
         "number of at least 0"),
        ([device("a", "Healthy", 2)], True, f"fail: {GPU}: a is on NUMA node 2, but only the nodes "
         "[0, 1] are declared"),
        ([device("a", "Healthy", 2), device("b", "Healthy", 3)], False, f"warn: {GPU}: a is on "
         "NUMA node 2, but this machine has only the nodes [0, 1]: declare others with --numa or "
         "--sys"),
    ],
)  # fmt: skip
def test_t01(devices: list[dp.Device], numa: bool, expected: str) -> None:
    run = Run(*devices)
    run.plugin.under_test.hardware = SimpleNamespace(numa_nodes=lambda: {0, 1}, declares_numa=numa)
    assert outcome("T01", run) == expected


def test_t02() -> None:
    empty = device("a")
    empty.topology.SetInParent()
    assert outcome("T02", Run(device("b"), device("c", "Healthy", 0))) == "pass: None"
    assert outcome("T02", Run(empty)) == (
        f"fail: {GPU}: a has a topology without NUMA nodes: omit the topology instead"
    )


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (device("a", "Healthy", 1, 0), device("a", "Healthy", 0, 1), "pass: None"),
        (device("a", "Healthy", 0), device("b", "Healthy", 1), "pass: None"),
        (device("a", "Healthy", 0), device("a", "Healthy", 1), f"warn: {GPU}: the NUMA nodes of a "
         "have changed from [0] to [1]"),
        (device("a"), device("a", "Healthy", 1), f"warn: {GPU}: the NUMA nodes of a have changed "
         "from [] to [1]"),
    ],
)  # fmt: skip
def test_t03(before: dp.Device, now: dp.Device, expected: str) -> None:
    run = Run(lists=lambda resource, since: [listed(before)])
    run.new_list = lambda resource: dp.ListAndWatchResponse(devices=[now])  # type: ignore[method-assign, assignment]
    assert outcome("T03", run) == expected


def test_o01() -> None:
    run = Run(client=Client(options=options()))
    assert outcome("O01", run) == "pass: 0.000 s"
    assert run.to_plugin.made == [("options", 10.0)] * 3
    run = Run(client=Client(options=[options(), options(), options(pre_start=True)]))
    assert outcome("O01", run) == (
        f"fail: {GPU}: two GetDevicePluginOptions calls returned different options"
    )


@pytest.mark.parametrize(("seconds", "result"), [(1.0, "pass: 1.000 s"), (1.5, "fail: ")])
def test_o01_uses_the_fastest_call(
    seconds: float, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 9.0, 10.0, 10.0 + seconds, 20.0, 29.0])
    monkeypatch.setattr(
        "devicemanager.conformance.checks.options.time",
        SimpleNamespace(monotonic=lambda: next(times)),
    )
    found = outcome("O01", Run(client=Client(options=options())))
    words = "GetDevicePluginOptions took 1.5 s, limit 1 s"
    assert found == (result if result.startswith("pass") else f"fail: {words}")


_NO_PREFERENCE = "skip: the plugin's options do not announce GetPreferredAllocation"
_NO_PRE_START = "skip: the plugin's options do not require PreStartContainer"


@pytest.mark.parametrize(
    ("id_", "client", "expected"),
    [
        ("O02", Client(options=options()), _NO_PREFERENCE),
        ("O02", Client(options=options(preference=True)), "pass: None"),
        ("O02", Client(options=options(preference=True), preferred=error()), "fail: Allocate "
         "failed with INTERNAL: no"),
        ("O03", Client(options=options()), _NO_PRE_START),
        ("O03", Client(options=options(pre_start=True)), "pass: None"),
        ("O03", Client(options=options(pre_start=True), pre_start=error()), "fail: Allocate "
         "failed with INTERNAL: no"),
        ("O03", Client(options=options(pre_start=True), allocate=error()), "skip A05: Allocate of "
         "a: Allocate failed with INTERNAL: no"),
        ("O04", Client(options=options(True, True)), "skip: the plugin's options announce all "
         "optional calls"),
        ("O04", Client(options=options()), "pass: GetPreferredAllocation: OK, PreStartContainer: "
         "OK"),
        ("O04", Client(options=options(True), preferred=error("NOT_FOUND")), "pass: "
         "GetPreferredAllocation: NOT_FOUND"),
        ("O04", Client(options=options(False, True), pre_start=error("UNKNOWN")), "pass: "
         "PreStartContainer: UNKNOWN"),
    ],
)  # fmt: skip
def test_optional_calls(id_: str, client: Client, expected: str) -> None:
    run = Run(device("a"), device("b"), client=client)
    assert outcome(id_, run) == expected
    made = {rpc: arguments for rpc, *arguments in client.made}
    assert made.get("preferred") in (None, [(["a"], [], 1)], [(["a", "b"], [], 1)])
    if id_ == "O04":
        assert made.get("preferred") in (None, [(["a"], [], 1)])
        is_pass = expected.startswith("pass")
        assert run.alive == (["calls that its options do not announce"] if is_pass else [])
    assert made.get("pre_start") in (None, [["a"]])


# -- preferences and PreStartContainer ---------------------------------------------------------


def preferring(answers: Any) -> Client:
    return Client(options=options(preference=True), preferred=answers)


def chosen(*requests: Any) -> Any:
    """Answer each request like a correct plugin."""
    return [
        [*must, *(id_ for id_ in available if id_ not in must)][:size]
        for available, must, size in requests
    ]


_FOR = "fail: for available [a, b], must include [], size 2: "


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (chosen, "pass: None"),
        (error("UNIMPLEMENTED"), "skip O02: Allocate failed with UNIMPLEMENTED: no"),
        (error(), f"{_FOR}Allocate failed with INTERNAL: no"),
        (lambda *_: [], f"{_FOR}the plugin returned 0 responses for one container"),
        (lambda *_: [["a"], ["b"]], f"{_FOR}the plugin returned 2 responses for one container"),
        (lambda *_: [["a", "a"]], f"{_FOR}the response contains a device twice: [a, a]"),
        (lambda *_: [["a"]], f"{_FOR}the response has 1 device: [a]"),
        (lambda *_: [[*"abcdef"]], f"{_FOR}the response has 6 devices: [a, b, c, d and 2 more]"),
        (lambda *_: [["z", "y"]], f"{_FOR}the response has y, which is not available"),
        (
            [chosen, lambda *_: [["b"]]],
            "fail: for available [a, b], must include [a], size 1: the response lacks a, which it "
            "must include",
        ),
    ],
)
def test_invalid_preferences(answers: Any, expected: str) -> None:
    run = Run(device("a"), device("b"), client=preferring(answers))
    assert outcome("P02", run) == expected


def test_requests_for_preferences() -> None:
    ids = [f"d{number:02}" for number in range(20)]
    run = Run(*map(device, ids), client=preferring(chosen))
    run.rng = random.Random(1)
    assert outcome("P01", run) == "pass: None"
    requests = [request for rpc, *rest in run.to_plugin.made if rpc == "preferred"
                for request in rest]  # fmt: skip
    assert len(requests) == 30
    for available, must, size in requests:
        assert {*must} <= {*available} <= {*ids}
        assert len(must) <= size <= len(available) and size >= 1
    assert any(len(must) not in (0, size) for _, must, size in requests)
    for id_, expected in (
        ("P02", [(ids, [], 20), (ids, ids[:1], 1), (ids, ids, 20)]),
        ("P03", [([each for each in ids if each != gone], [], 1) for gone in ids[:16]]),
        ("P04", [(ids, [], 21), (ids[1:], ids[:1], 1), ([], [], 1), (ids, [], -1),
                 (["no-such-device"], [], 1)]),
        ("P05", [(ids, [], 8)] * 10),
        ("P06", [(ids, [], 1)] * 7),
    ):  # fmt: skip
        run = Run(*map(device, ids), client=preferring(chosen))
        run.timed = lambda call, what: (call(), 0.5)[1]  # type: ignore[method-assign]
        assert outcome(id_, run) == ("pass: 0.500 s" if id_ == "P05" else "pass: None")
        made = [request for rpc, *rest in run.to_plugin.made if rpc == "preferred"
                for request in rest]  # fmt: skip
        assert made == expected
        assert run.alive == (["impossible requests"] if id_ == "P04" else [])


@pytest.mark.parametrize(
    ("id_", "count", "answers", "expected"),
    [
        ("P03", 1, chosen, "skip: needs 2 healthy devices, the plugin has 1"),
        ("P03", 2, chosen, "pass: None"),
        ("P06", 1, lambda *requests: chosen(*requests[:1]), "fail: GetPreferredAllocation returned "
         "1 response for 2 containers"),
        ("P06", 1, [chosen, error()], "fail: 2 containers: Allocate failed with INTERNAL: no"),
        ("P06", 1, error("UNIMPLEMENTED"), "skip O02: Allocate failed with UNIMPLEMENTED: no"),
        ("P04", 1, error(), "pass: None"),
        ("P04", 1, error("UNAVAILABLE"), "fail: Allocate failed with UNAVAILABLE: no"),
    ],
)  # fmt: skip
def test_other_preferences(id_: str, count: int, answers: Any, expected: str) -> None:
    run = Run(*[device(f"d{number}") for number in range(count)], client=preferring(answers))
    assert outcome(id_, run) == expected


@pytest.mark.parametrize(
    ("count", "size"), [(1, 1), (2, 1), (3, 2), (14, 7), (15, 8), (16, 8), (17, 8), (20, 8)]
)
def test_p05_requests_half_of_the_devices_but_at_most_8(count: int, size: int) -> None:
    run = Run(*[device(f"d{number:02}") for number in range(count)], client=preferring(chosen))
    run.timed = lambda call, what: (call(), 1.0)[1]  # type: ignore[method-assign]
    assert outcome("P05", run) == "pass: 1.000 s"
    assert run.to_plugin.made[-1][1][2] == size


def test_p05_compares_the_responses_and_the_fastest_call() -> None:
    devices = [device(id_) for id_ in "cab"]
    run = Run(*devices, client=preferring([chosen] * 9 + [lambda *_: [["b", "c"]]]))
    run.timed = lambda call, what: (call(), 1.0)[1]  # type: ignore[method-assign]
    assert outcome("P05", run) == (
        "fail: GetPreferredAllocation returned ['a', 'b'] and ['b', 'c'] for the same request"
    )
    times = iter([9.0, 1.5, *[2.0] * 8])
    run = Run(*devices, client=preferring(chosen))
    run.timed = lambda call, what: (call(), next(times))[1]  # type: ignore[method-assign]
    assert outcome("P05", run) == "fail: GetPreferredAllocation took 1.5 s, limit 1 s"


def starting(*answers: Any) -> Client:
    return Client(options=options(pre_start=True), pre_start=[*answers])


_SLOW = "skip S01: call 2: PreStartContainer failed with DEADLINE_EXCEEDED: no"


@pytest.mark.parametrize(
    ("id_", "client", "expected"),
    [
        ("S01", starting(None), "pass: 0.000 s"),
        ("S01", starting(error("UNIMPLEMENTED")), "skip O03: Allocate failed with UNIMPLEMENTED: "
         "no"),
        ("S01", starting(error("DEADLINE_EXCEEDED")), "fail: the first call: Allocate failed with "
         "DEADLINE_EXCEEDED: no"),
        ("S02", starting(None, None, None), "pass: None"),
        ("S02", starting(None, None, error()), "fail: call 3: Allocate failed with INTERNAL: no"),
        ("S02", starting(None, error("DEADLINE_EXCEEDED", "PreStartContainer")), _SLOW),
        ("S03", starting(None), "pass: None"),
        ("S03", starting(error()), "fail: after the plugin's restart: Allocate failed with "
         "INTERNAL: no"),
        ("S04", starting(None), "fail: PreStartContainer accepted an unknown ID"),
        ("S04", starting(error()), "pass: None"),
    ],
)  # fmt: skip
def test_pre_start(id_: str, client: Client, expected: str) -> None:
    run = Run(device("a"), device("b"), client=client)
    run.plugin.end = lambda process: run.seen.append("end")
    assert outcome(id_, run) == expected
    made = [arguments for rpc, *arguments in client.made if rpc == "pre_start"]
    wanted = [["no-such-device"]] if id_ == "S04" else [["a"], 30.0]
    assert all(each == wanted for each in made) and made
    assert ("allocate", ["a"]) in client.made
    if id_ == "S03":
        assert run.seen == ["start", "end", "relaunch after the plugin's restart"]


def test_s03_needs_the_device_after_the_restart() -> None:
    run = Run(device("a"), client=starting(None))
    lists = iter([[device("a")], [device("a")], [device("b")]])
    run.observed.devices = lambda resource: next(lists)
    run.plugin.end = lambda process: None
    assert outcome("S03", run) == "skip K13: the restarted plugin does not list a"


# -- device lists ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (5.0, "pass: 5.000 s"),
        (5.1, "warn: the first device list came after 5.1 s, more than 5 s"),
    ],
)
def test_w01(seconds: float, expected: str) -> None:
    of = {GPU: [listed(duration=1.0), listed(duration=99.0)], NIC: [listed(duration=seconds)]}
    run = Run(lists=lambda resource, since: of[resource])
    run.resources = (GPU, NIC)
    assert outcome("W01", run) == expected


@pytest.mark.parametrize(
    ("ended", "serving", "is_pass"),
    [(0, True, True), (1, True, False), (0, False, False)],
)
def test_w02(ended: int, serving: bool, is_pass: bool) -> None:
    run = Run(ended_streams=lambda name: [0] * ended, is_serving=lambda name: serving)
    text = f"fail: the plugin ended the ListAndWatch stream of {GPU}"
    assert outcome("W02", run) == ("pass: None" if is_pass else text)


@pytest.mark.parametrize(
    ("id_", "devices", "expected"),
    [
        ("W03", [device("a"), device("b")], "pass: None"),
        ("W03", [device("")], f"fail: {GPU}: a device has an empty ID"),
        ("W03", [device(id_) for id_ in "bbaac"], f"fail: {GPU}: a device list contains a twice"),
        ("W04", [device("a"), device("b", "Unhealthy")], "pass: None"),
        ("W04", [device("a", "healthy")], f"fail: {GPU}: invalid health 'healthy' of device a: "
         "expected Healthy or Unhealthy"),
        ("W05", [device("x" * 63)], "pass: None"),
        ("W05", [device("x" * 64)], f"fail: {GPU}: device ID {'x' * 40}... has 64 characters, "
         "limit 63"),
        ("W05", [device("a\x07")], f"fail: {GPU}: device ID 'a\\x07' contains control characters"),
        *[("W05", [device(odd), device(",")], f"warn: {GPU}: device ID {odd!r} contains a comma or "
         "a space, or only slashes") for odd in ("a,b", "a b", "//", "/")],
        ("W05", [device("a/b")], "pass: None"),
    ],
)  # fmt: skip
def test_contents_of_device_lists(id_: str, devices: list[dp.Device], expected: str) -> None:
    run = Run(*devices, lists=lambda resource, since: [listed(*devices)])
    assert outcome(id_, run) == expected


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


@pytest.mark.parametrize(
    ("first", "lists", "expected"),
    [
        ([device("a")], [], "skip: needs 2 devices, the plugin has 1"),
        ([], [], "skip: needs 2 devices, the plugin has none"),
        ([device("a"), device("b")], [listed(device("b")), listed(device("a"), device("b"))],
         "pass: None"),
        ([device("a"), device("b"), device("c")], [listed(device("a"))], "fail: device b has not "
         "changed, but a device list lacks it after a change of a"),
    ],
)  # fmt: skip
def test_w06(first: list[dp.Device], lists: list[Any], expected: str) -> None:
    run = Changing(*first, lists=lambda resource, since: lists)
    run.new_list = lambda resource: dp.ListAndWatchResponse(devices=first)  # type: ignore[method-assign, assignment]
    assert outcome("W06", run) == expected
    if len(first) > 1:
        assert run.changes == ["break a", "recover a"]
        assert run.seen.count("wait 0 s") == 2


def test_w06_ignores_devices_that_failed_together() -> None:
    both = [device("a"), device("b")]
    run = Changing(*both, lists=lambda resource, since: [listed(device("a"))])
    run.new_list = lambda resource: dp.ListAndWatchResponse(devices=both[:1])  # type: ignore[method-assign, assignment]
    assert outcome("W06", run) == "pass: None"


@pytest.mark.parametrize(
    ("id_", "takes", "expected", "changes", "disproved"),
    [
        ("W07", [1.5], "pass: reported after 1.50 s", ["break a"], set()),
        ("W07", [Failed("no")], "fail: no", ["break a"], {"W07"}),
        ("W08", [0.0, 1.0, 0.0, 2.0], "pass: reported after at most 2.00 s",
         ["break a", "recover a", "break a for the second time", "recover a for the second time"],
         set()),
        ("W08", [0.0, 3.0, 0.0, 2.0], "pass: reported after at most 3.00 s", None, set()),
        ("W08", [Failed("no")], "skip W07: no", ["break a"], set()),
        ("W08", [0.0, Failed("no")], "fail: no", ["break a", "recover a"], {"W08"}),
        ("W08", [0.0, 0.0, Failed("no")], "fail: no", None, set()),
        ("W09", [0.0], "pass: None", ["break a"], set()),
        ("W09", [Failed("no")], "skip W07: no", ["break a"], set()),
    ],
)  # fmt: skip
def test_changes_of_devices(
    id_: str, takes: list[Any], expected: str, changes: Any, disproved: set[str]
) -> None:
    run = Changing(device("a"), device("b"), takes=takes)
    assert outcome(id_, run) == expected
    assert changes in (None, run.changes)
    assert run.disproved == disproved
    assert (("recover-device", "a") in run.seen) is (disproved == {"W07"})
    assert run.seen[0] == "start"


def test_w09_needs_the_device_in_the_list() -> None:
    run = Changing(device("a"))
    lists = iter([[device("a")], [device("a")], []])
    run.observed.devices = lambda resource: next(lists)
    assert outcome("W09", run) == (
        "fail: the plugin removed allocated device a from its list, expected health Unhealthy"
    )
    assert run.to_plugin.made == [("allocate", ["a"]), ("allocate", ["a"])]


@pytest.mark.parametrize(
    ("count", "idle", "expected"),
    [
        (0, 15.0, "pass: 0 device lists in 15 s"),
        (1, 15.0, "pass: 1 device list in 15 s"),
        (2, 15.0, "fail: 2 device lists in 15 s although no device changed, limit 1 per minute"),
        (2, 120.0, "pass: 2 device lists in 120 s"),
        (3, 120.0, "fail: 3 device lists in 120 s although no device changed, limit 1 per minute"),
    ],
)
def test_w12(count: int, idle: float, expected: str) -> None:
    of = {
        GPU: [listed(stream_message=1), *[listed(stream_message=2)] * count],
        NIC: [listed(stream_message=1)] * 5,
    }
    run = Run(lists=lambda resource: of[resource])
    run.resources = (GPU, NIC)
    run.limits = Limits(idle_seconds=idle)
    assert outcome("W12", run) == expected


# -- Allocate ----------------------------------------------------------------------------------


def allocating(*devices: str, **answers: Any) -> Run:
    run = Run(*map(device, devices or ("a", "b")), client=Client(**answers))
    run.rng = random.Random(1)
    run.plugin.path = Path
    run.kubelet.plugin_dir = Path("/tmp/p")
    run.observed.is_serving = lambda resource: True
    return run


_ALLOCATE = "Allocate failed with INTERNAL: no"
_REJECTED = " (pods with these devices are rejected with UnexpectedAdmissionError)"


@pytest.mark.parametrize("id_", ["A06", "A09", "A10", "A11", "A12", "A13", "A14", "A15", "A18"])
def test_checks_of_responses_need_devices_and_responses(id_: str) -> None:
    run = allocating(allocate=error())
    assert outcome(id_, run) == f"skip A05: Allocate of a: {_ALLOCATE}"
    run = allocating(allocate=lambda *groups: answer())
    text = "skip A01: Allocate of a returned 0 responses for one container"
    assert outcome(id_, run) in (text, text.replace(" a ", " a, b "))
    run.observed.devices = lambda resource: [device("a", "Unhealthy")]
    assert outcome(id_, run) == "skip: needs 1 healthy device, the plugin has none"


@pytest.mark.parametrize(
    ("id_", "answers", "expected"),
    [
        ("A01", each_container(envs={"A": "1"}), "pass: None"),
        ("A01", lambda *groups: answer(container()), "fail: Allocate returned 1 response for 2 "
         "containers"),
        ("A01", lambda *groups: error() if len(groups) > 1 else answer(container()), "fail: "
         f"Allocate for 2 containers: {_ALLOCATE}"),
        ("A01", lambda *groups: answer(*[
            container(envs={group[0]: "1"} if len(groups) < 3 else {}) for group in groups]),
         "fail: Allocate for 4 containers: the response for the container with a lacks [('env', "
         "'a')]"),
        ("A02", lambda group: error("NOT_FOUND"), "pass: NOT_FOUND"),
        ("A02", each_container(), "fail: Allocate accepted an unknown ID"),
        ("A03", lambda group: error(), "pass: None"),
        ("A03", each_container(), "fail: Allocate accepted a, which is unhealthy"),
        ("A04", lambda *groups: error(), "pass: None"),
        ("A04", each_container(), "fail: Allocate accepted an unknown ID next to a valid one: "
         "[['a', 'no-such-device']]"),
        ("A04", lambda *groups: error() if len(groups) == 1 else answer(), "fail: Allocate "
         "accepted an unknown ID next to a valid one: [['a'], ['no-such-device']]"),
        ("A05", each_container(envs={"A": "1"}), "pass: 2 devices"),
        ("A05", lambda group: error(), f"fail: Allocate of a: {_ALLOCATE}{_REJECTED}"),
        ("A06", each_container(), "pass: None"),
        ("A07", each_container(), "pass: 1000 allocations"),
        ("A08", each_container(), "pass: None"),
        ("A09", each_container(), "pass: 0.000 s"),
    ],
)  # fmt: skip
def test_allocate(id_: str, answers: Any, expected: str) -> None:
    run = allocating(allocate=answers)
    run.timed = lambda call, what: (call(), 0.0)[1]  # type: ignore[method-assign]
    run.assume_broken = lambda id_: run.seen.append(f"break {id_}")  # type: ignore[method-assign]
    assert outcome(id_, run) == expected
    made = [groups for _, *groups in run.to_plugin.made]
    wanted: dict[str, Any] = {
        "A02": [[["no-such-device"]]],
        "A03": [[["a"]]],
        "A05": [[["a"]], [["b"]], [["a", "b"]]],
        "A06": [[["a"]], [["a", "b"]], [["a", "b"]]],
        "A09": [[["a"]], [["a"]], [["a", "b"]]],
    }
    if expected.startswith("pass"):
        assert made[: len(wanted.get(id_, []))] == wanted.get(id_, [])
        number = {"A07": 1001, "A08": 161, "A05": 7}.get(id_, len(made))
        assert len(made) == number
    if id_ == "A02":
        assert run.alive == (["an unknown ID"] if expected.startswith("pass") else [])
    if id_ == "A03":
        assert run.seen == ["start", "break a"]


def test_a05_and_a06_compare_two_responses() -> None:
    run = allocating(
        "a", "b", "c", allocate=lambda group: answer(container(envs={group[0].upper(): "1"}))
    )
    run.rng = SimpleNamespace(sample=lambda ids, count: ids[:count][::-1])  # type: ignore[assignment]
    assert outcome("A05", run) == (
        f"fail: {GPU}: the Allocate response contains env A for only one order of the same IDs"
    )
    answers = [answer(container()), answer(container()), answer(container(envs={"B": "1"}))]
    assert outcome("A06", allocating(allocate=answers)) == (
        f"fail: {GPU}: only one of two Allocate responses for the same IDs contains env B"
    )


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"devices": [dp.DeviceSpec(host_path="/h", container_path="/c", permissions="rw")]},
         ("device", "/h:/c:rw")),
        ({"mounts": [dp.Mount(host_path="/h", container_path="/c", read_only=True)]},
         ("mount", "/h:/c:True")),
        ({"cdi_devices": [dp.CDIDevice(name="v/c=n")]}, ("cdi", "v/c=n")),
        ({"envs": {"A": "1"}}, ("env", "A")),
    ],
)  # fmt: skip
def test_content_of_a_response(fields: Any, content: tuple[str, str]) -> None:
    response = container(annotations={"x": "y"}, **fields)
    assert allocate._content(response) == {content}


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1.0, 1.0], "pass: 1.000 s"),
        ([0.1, 5.0, 0.7], "pass: 0.700 s"),
        ([2.0, 1.5, 3.0, 0.1], "warn: Allocate took 1.5 s, more than 1 s"),
    ],
)
def test_a09_repeats_slow_calls(times: list[float], expected: str) -> None:
    run, left = allocating(), iter(times)
    run.timed = lambda call, what: next(left)  # type: ignore[method-assign]
    assert outcome("A09", run) == expected
    assert list(left) == []


def node(host: str = "/dev/null", inside: str = "/dev/x", permissions: str = "rw") -> Any:
    return dp.DeviceSpec(host_path=host, container_path=inside, permissions=permissions)


def mount(host: str = "/dev", inside: str = "/x") -> Any:
    return dp.Mount(host_path=host, container_path=inside)


_WHAT = f"{GPU} a"
_ON_MACHINE = "does not exist on this machine"


@pytest.mark.parametrize(
    ("id_", "fields", "expected"),
    [
        ("A10", {}, "pass: None"),
        ("A10", {"devices": [node(), node()]}, "pass: None"),
        ("A10", {"devices": [node(permissions="mwr")]}, "pass: None"),
        *[("A10", {"devices": [node(permissions=each)]}, f"fail: {_WHAT}: /dev/null has invalid "
         f"permissions {each!r}: use r, w, m") for each in ("", "rr", "x", "rwmm")],
        ("A10", {"devices": [node("dev/null")]}, f"fail: {_WHAT}: invalid path 'dev/null': "
         "expected an absolute path"),
        ("A10", {"devices": [node(inside="x")]}, f"fail: {_WHAT}: invalid path 'x': expected an "
         "absolute path"),
        ("A10", {"devices": [node(), node("/dev/zero")]}, f"fail: {_WHAT}: the response has two "
         "devices for the container path /dev/x: /dev/null and /dev/zero"),
        ("A11", {}, "skip: no response has device nodes"),
        ("A11", {"devices": [node(), node("/dev/zero")]}, "pass: 2 device nodes"),
        ("A11", {"devices": [node(), node("/dev")]}, "pass: 2 device nodes"),
        ("A11", {"devices": [node("x")]}, f"skip A10: {_WHAT}: 'x' is not an absolute path"),
        ("A11", {"devices": [node("/etc/passwd")]}, f"fail: {_WHAT}: /etc/passwd is not a device "
         "node"),
        ("A11", {"devices": [node("/dev/no"), node("/dev/n1"), node()]}, f"warn: {_WHAT}: the "
         f"device node /dev/no {_ON_MACHINE}: declare fake hardware with --dev"),
        ("A12", {}, "pass: None"),
        ("A12", {"mounts": [mount(), mount()]}, "pass: None"),
        ("A12", {"mounts": [mount("x")]}, f"fail: {_WHAT}: invalid path 'x': expected an absolute "
         "path"),
        ("A12", {"mounts": [mount(inside="x")]}, f"fail: {_WHAT}: invalid path 'x': expected an "
         "absolute path"),
        *[("A12", {"mounts": [mount(each)]}, f"fail: {_WHAT}: the response mounts the plugin "
         f"directory {each}") for each in ("/tmp/p", "/tmp/p/", "/var/lib/kubelet/device-plugins")],
        ("A12", {"mounts": [mount("/no/a"), mount("/no/b", "/y")]}, f"warn: {_WHAT}: the mount "
         f"/no/a {_ON_MACHINE}"),
        ("A12", {"mounts": [mount(), mount("/etc")]}, f"fail: {_WHAT}: the response has two mounts "
         "for the container path /x: /dev and /etc"),
        ("A13", {"envs": {"A": "1", "é.-": ""}}, "pass: None"),
        *[("A13", {"envs": {each: "1"}}, f"fail: {_WHAT}: invalid variable name {each!r}: use no = "
         "and no control characters") for each in ("", "A=", "A\n", "A\x7f", "\x1f")],
        ("A13", {"envs": {"A": "x\0"}}, f"fail: {_WHAT}: the value of variable A contains a NUL "
         "character"),
        ("A14", {}, "skip: no response has CDI devices"),
        ("A14", {"cdi_devices": [dp.CDIDevice(name="v.com/c=a")]}, "pass: 1 CDI device"),
        ("A14", {"cdi_devices": [dp.CDIDevice(name="a")]}, f"fail: {_WHAT}: invalid CDI device "
         "'a': expected vendor/class=name"),
        ("A15", {"annotations": {"example.com/" + "x" * 63: "1", "a.B-c_1": ""}}, "pass: None"),
        *[("A15", {"annotations": {each: "1"}}, f"fail: {_WHAT}: invalid annotation key {each!r}: "
         "expected a valid name of up to 63 characters") for each in ("x" * 64, "-a", "a-", "a/")],
        ("A15", {"annotations": {"cdi.k8s.io/x": "v/c=a,v/c=b"},
                 "cdi_devices": [dp.CDIDevice(name="v/c=b")]}, f"fail: {_WHAT}: CDI device v/c=b "
         "is in an annotation and in cdi_devices"),
        ("A15", {"annotations": {"other/x": "v/c=b"},
                 "cdi_devices": [dp.CDIDevice(name="v/c=b")]}, "pass: None"),
        ("A18", {}, "pass: 0 device nodes"),
        ("A18", {"devices": [node()]}, f"warn: {GPU}: all devices have the same device node "
         "/dev/null, so a device may be used by several pods"),
    ],
)  # fmt: skip
def test_contents_of_responses(id_: str, fields: dict[str, Any], expected: str) -> None:
    assert outcome(id_, allocating(allocate=each_container(**fields))) == expected


def test_paths_in_declared_directories_must_exist(tmp_path: Path) -> None:
    run = allocating(allocate=each_container(devices=[node("/dev/no")]))
    run.plugin.under_test.hardware = Hardware(dev=tmp_path)
    assert outcome("A11", run) == (
        f"fail: {_WHAT}: the device node /dev/no does not exist in {tmp_path} (--dev)"
    )
    (tmp_path / "no").touch()
    run.plugin.path = lambda path: tmp_path / Path(path).name
    assert outcome("A11", run) == "pass: 1 device node"


def test_a14_resolves_names_in_the_declared_directory(tmp_path: Path) -> None:
    spec = '{"cdiVersion": "0.6.0", "kind": "v.com/c", "devices": [{"name": "a", "containerEdits": '
    (tmp_path / "c.json").write_text(spec + '{"env": ["A=1"]}}]}')
    for name, expected in (("v.com/c=a", "pass: 1 CDI device"), ("v.com/c=b", "warn: ")):
        run = allocating(allocate=each_container(cdi_devices=[dp.CDIDevice(name=name)]))
        run.plugin.under_test.hardware = Hardware(cdi=tmp_path)
        found = outcome("A14", run)
        assert found.startswith(expected)
        assert expected.startswith("pass") or found.endswith(f", in {tmp_path}")


@pytest.mark.parametrize(
    ("resources", "names", "expected"),
    [
        ((GPU,), [], "skip: needs 2 resources, the plugin has 1"),
        ((GPU, NIC), [{"envs": {"A": "1"}}, {"envs": {"A": "1"}}], "pass: None"),
        ((GPU, NIC), [{"envs": {"A": "1"}}, {"envs": {"A": "2"}}], f"fail: variable A is '1' for "
         f"{GPU}, but '2' for {NIC}"),
        ((GPU, NIC), [{"mounts": [mount("/a")]}, {"mounts": [mount("/b")]}], "fail: mount /x is "
         f"'/a' for {GPU}, but '/b' for {NIC}"),
        ((GPU, NIC), [{"devices": [node("/a")]}, {"devices": [node("/b")]}], "fail: device /dev/x "
         f"is '/a' for {GPU}, but '/b' for {NIC}"),
        ((GPU, NIC), [{"envs": {"/x": "1"}}, {"mounts": [mount("/b")]}], "pass: None"),
    ],
)  # fmt: skip
def test_a16(resources: Any, names: list[Any], expected: str) -> None:
    responses = [answer(container(**fields)) for fields in names for _ in range(2)]
    run = allocating(allocate=responses)
    run.resources = resources
    assert outcome("A16", run) == expected


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (0, "an empty request"),
        (1, "a request without device IDs"),
        (2, "a request with an ID twice"),
        (3, "a request with an unknown field"),
    ],
)
def test_a17(number: int, what: str) -> None:
    answers: list[Any] = [b"", error(), b"", b""]
    run = allocating(raw=list(answers))
    assert outcome("A17", run) == "pass: None"
    assert run.alive == ["unusual requests"]
    path = "/v1beta1.DevicePlugin/Allocate"
    twice, once = b"\n\x06\n\x01a\n\x01a", b"\n\x03\n\x01a"
    requests = [b"", b"\n\0", twice, b"\xc2\x3e\x01x" + once]
    assert run.to_plugin.made == [("raw", path, request, 10.0) for request in requests]
    answers[number] = error("UNAVAILABLE")
    run = allocating(raw=answers)
    assert outcome("A17", run) == f"fail: {what}: Allocate failed with UNAVAILABLE: no"
    assert run.alive == [what]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["a", "b", "c"], "pass: 3 device nodes"),
        (["ax", "bx", "cx"], "pass: 4 device nodes"),
        (["ax", "b", "cx"], f"fail: {GPU}: a and c have the same device node /x"),
        (["xy", "xy", "xy"], f"warn: {GPU}: all devices have the same device node /x, so a device "
         "may be used by several pods"),
        (["", "", ""], "pass: 0 device nodes"),
    ],
)  # fmt: skip
def test_a18(nodes: list[str], expected: str) -> None:
    of = dict(zip("abc", nodes, strict=True))
    run = allocating(
        *"abc",
        allocate=lambda group: answer(
            container(devices=[node(f"/{each}", f"/{each}") for each in of[group[0]]])
        ),
    )
    assert outcome("A18", run) == expected


def test_one_device_shares_no_node() -> None:
    run = allocating("a", allocate=each_container(devices=[node()]))
    assert outcome("A18", run) == "pass: 1 device node"


@pytest.mark.parametrize(
    ("alone", "both", "is_failure"),
    [
        ([{"A": "1"}, {"A": "2"}], {"A": "1,2"}, False),
        ([{"A": "1"}, {"A": "1"}], {"A": "1"}, False),
        ([{"A": "1"}, {"A": "2"}], {"A": "1"}, True),
        ([{"A": "1"}, {"A": "2"}], {"A": "2"}, True),
        ([{"A": "1"}, {"A": "2"}], {}, False),
        # The other device is named elsewhere.
        ([{"A": "1"}, {"A": "2"}], {"A": "1", "B": "x2x"}, False),
        ([{"A": "1"}, {"A": "2", "B": ""}], {"A": "1", "B": ""}, False),
        ([{"A": "1", "B": ""}, {"A": "2"}], {"A": "1", "B": ""}, True),
        ([{"A": "1", "B": ""}, {"A": "2"}], {"A": "2", "B": ""}, False),
        # Each common variable is compared.
        *[
            ([{"A": "1", **more}, {"A": "2", **more}], {"A": "1", **more}, True)
            for more in ({each: "same"} for each in "BCDEFGH")
        ],
    ],
)
def test_both_devices_are_named(alone: Any, both: dict[str, str], is_failure: bool) -> None:
    try:
        allocate._check_both_named(GPU, ["a", "b"], alone, both)
    except Failed as failed:
        assert is_failure
        assert str(failed) == (
            f"{GPU}: variable A is '1' for a, '2' for b, and {both['A']!r} for both together: the "
            "value of one device is missing"
        )
    else:
        assert not is_failure


@pytest.mark.parametrize(
    ("later", "lists", "expected"),
    [
        ([device("a"), device("n")], 1, "pass: None"),
        ([device("a")], 1, "fail: no device list contains a new device within 0 s: the hook "
         "add-device must add a device that the plugin did not have"),
        ([device("a")], 0, "fail W07: the plugin sent no device list after the first one: none "
         "came within 0 s after add-device"),
    ],
)  # fmt: skip
def test_a19(later: list[dp.Device], lists: int, expected: str) -> None:
    run = allocating("a", allocate=each_container())
    run.observed.lists = lambda resource, since: [listed(stream_message=1)] * lists
    known = iter([[device("a")]] * 2)
    run.observed.devices = lambda resource: next(known, later)
    symptom = " (a device that is added is not used until the plugin restarts)"
    is_pass = expected.startswith("pass")
    assert outcome("A19", run) == (expected if is_pass else expected + symptom)
    assert run.seen[:3] == ["start", "hook add-device", ("add-device", "")]
    if is_pass:
        assert run.to_plugin.made[-1] == ("allocate", ["n"])


def test_newest_health_is_that_of_the_last_list() -> None:
    def health(*lists: list[dp.Device]) -> str:
        answers = [dp.ListAndWatchResponse(devices=each) for each in lists]
        stream: Any = Client(next=[*answers, error()])
        return listandwatch._newest_health(Run(), stream, "a")

    assert health() == ""
    assert health([device("a")]) == "Healthy"
    assert health([device("a")], [device("a", "Unhealthy")]) == "Unhealthy"
    assert health([device("b")]) == "Unhealthy"
    assert health([], [device("a")]) == "Healthy"


@pytest.mark.parametrize(
    ("ended", "again", "expected"),
    [
        ([False, False], False, "pass: None"),
        ([True], False, f"skip W02: the plugin ended the ListAndWatch stream of {GPU}"),
        ([False, True], False, f"fail: the kubelet's ListAndWatch stream of {GPU} ended when a "
         "second one closed"),
        ([False, True], True, f"warn: the kubelet's ListAndWatch stream of {GPU} ended when a "
         "second one closed; the plugin registered again"),
    ],
)  # fmt: skip
def test_w11(ended: list[bool], again: bool, expected: str) -> None:
    run, left = streaming(dp.ListAndWatchResponse()), iter(ended)
    run.observed.ended_streams = lambda resource: [0] if next(left) else []
    run.registers_again = lambda since: again  # type: ignore[method-assign]
    opened: list[str] = []
    run.new_list = lambda resource, of: opened.append(f"{resource} {of}")  # type: ignore[method-assign, assignment, return-value, func-returns-value]
    assert outcome("W11", run) == expected
    assert opened == ([f"{GPU} a third stream"] if expected.startswith("pass") else [])
    assert run.seen[0] == "start" and run.seen.count("wait 0 s") == len(ended)


def test_w11_without_a_list_on_the_second_stream() -> None:
    run = streaming(error("UNKNOWN", "ListAndWatch"))
    run.observed.ended_streams = lambda resource: []
    assert outcome("W11", run) == (
        "fail: the first device list of a second stream: ListAndWatch failed with UNKNOWN: no"
    )
    assert run.disproved == {"W11"}


def streaming(*lists: Any) -> Changing:
    """Return a run whose plugin sends these lists to a second stream."""
    stream = Client(next=[*lists])
    run = Changing(device("a"), client=Client(watch=contextlib.nullcontext(stream)))
    run.limits = attrs.evolve(LIMITS, changes=4)
    return run


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ([100 << 20, 120 << 20], "pass: memory +20.0%"),
        ([100 << 20, 90 << 20], "pass: memory -10.0%"),
        ([100 << 20, (120 << 20) + 1], "fail: the plugin's memory grew by 20% during 4 device "
         "changes"),
    ],
)  # fmt: skip
def test_w13(memory: list[int], expected: str) -> None:
    run, left = streaming(dp.ListAndWatchResponse(), dp.ListAndWatchResponse()), iter(memory)
    run.plugin.usage = lambda: SimpleNamespace(memory=next(left))
    assert outcome("W13", run) == expected
    assert run.seen == ["start", "wait 0 s"]
    when = " while a second stream is open and not read"
    assert run.changes == [
        "break a",
        "recover a",
        *[f"{each} a{when}" for each in ("break", "recover", "break", "recover")],
    ]


@pytest.mark.parametrize(
    ("number", "health", "skipped"),
    [(0, "Unhealthy", True), (0, "Healthy", False), (1, "Healthy", True), (1, "Unhealthy", False)],
)
def test_w13_of_a_change_that_the_kubelet_does_not_see(
    number: int, health: str, skipped: bool
) -> None:
    lists = [dp.ListAndWatchResponse(), dp.ListAndWatchResponse(devices=[device("a", health)])]
    run = streaming(*lists, error())
    run.takes = iter([0.0, 0.0, *[0.0] * number, Failed("no")])
    run.plugin.usage = lambda: SimpleNamespace(memory=1)
    assert outcome("W13", run) == (
        "skip: the plugin sent a device list to the second stream instead of the kubelet's: it "
        "sends each list to only one stream"
        if skipped
        else "fail W08: no (the kubelet misses device changes while another stream is open and "
        "not read)"
    )


@pytest.mark.parametrize(
    ("lists", "running", "exited", "expected"),
    [
        ([["a"], [], ["n"]], True, [False, False], "pass: None"),
        ([["a"], ["a"]], True, [], "fail: the device list still has 1 healthy device 0 s after all "
         "devices were removed (removed devices stay on the node)"),
        ([["a"], []], False, [True], "fail: the plugin exited when it had no devices: exit status "
         "1 (after a race at boot, the plugin exits and its pod restarts in a loop)"),
        ([["a"], [], []], True, [False, False], "fail: the plugin works without devices, but does "
         "not list the device that is added then: no device list contains it within 0 s after "
         "add-device (a device that is added is not used until the plugin restarts)"),
        ([["a"], [], []], True, [False, True], "fail: the plugin exited after add-device: exit "
         "status 1"),
    ],
)  # fmt: skip
def test_w14(lists: list[Any], running: bool, exited: list[bool], expected: str) -> None:
    left, last = iter(lists), lists[-1]
    run = Changing(lists=lambda resource, since: [listed()])
    run.observed.devices = lambda resource: [device(id_) for id_ in next(left, last)]
    run.plugin.process.is_running = running
    exits = iter(exited)
    run.plugin = Seen(has_exited=lambda: next(exits, exited[-1]), **_without(run, "has_exited"))
    assert outcome("W14", run) == expected
    assert run.seen[:3] == ["start", "hook remove-device a", ("remove-device", "a")]
    assert ("hook add-device" in run.seen) is (len(exited) > 1)


def _without(run: Any, name: str) -> dict[str, Any]:
    return {key: value for key, value in vars(run.plugin).items() if key != name}


class Seen(SimpleNamespace):
    """Plugin whose property ``has_exited`` is a function."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value() if name == "has_exited" else value


# -- restarts ----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        (10.0, "pass: back after 10.00 s"),
        (10.5, "warn: "),
        (Lost("no"), "lost: no"),
    ],
)
def test_k01(took: Any, expected: str) -> None:
    run = Restarting(took)
    run.limits = RESTARTS
    assert outcome("K01", run).startswith(expected)
    assert run.seen == [
        "start",
        "restart the kubelet",
        "kubelet.restart",
        "wait 60 s after the restart",
    ]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "pass: 3 restarts, back after at most 7.00 s"),
        (2, f"fail: {GPU} was registered 2 times after restart 3 (older kubelets leak a connection "
         "with each restart; newer ones reject Register with \"device plugin already connected\")"),
    ],
)  # fmt: skip
def test_k02(count: int, expected: str) -> None:
    made = [register(number=number, time=number + 0.5) for number in range(count)]
    run = Restarting(2.0, 7.0, 3.0, **calls(*made))
    run.limits, lines = RESTARTS, []
    run.timeline = SimpleNamespace(step=lambda *words: lines.append(words))
    assert outcome("K02", run) == expected
    waits = [each for each in run.seen if str(each).startswith("wait 60")]
    assert waits == [f"wait 60 s after restart {number}" for number in (1, 2, 3)]
    again = [(f"not expected: {GPU} registers again (call 1)", 1.5)]
    assert [each for each in lines if len(each) > 1] == again[: count - 1]


def test_k03_has_random_gaps_and_restarts_at_two_points() -> None:
    run = Restarting(*[1.0] * 5, 4.0)
    run.limits = RESTARTS
    run.rng = SimpleNamespace(shuffle=lambda gaps: gaps.reverse())  # type: ignore[assignment]
    gaps: list[Any] = []
    run.settle = gaps.append  # type: ignore[method-assign, assignment]
    spent = [SimpleNamespace(is_spent=True)]
    run.kubelet.faults.list = lambda: spent
    assert outcome("K03", run) == "pass: back after at most 4.00 s"
    assert gaps == [1.0, 0.3, 0.05, 0.01, 0.0]
    assert [str(each) for each in run.seen if str(each).startswith("wait")] == [
        *[f"wait 60 s after two restarts {each} ms apart" for each in (1000, 300, 50, 10, 0)],
        "wait 60 s after a restart between Register and the first device list",
        "wait 60 s after a restart at the first device list",
    ]
    assert [each for each in run.seen if each == "clear" or each[0] == "set"] == [
        ("set", "restart", {"at": "registered"}),
        "clear",
        ("set", "restart", {"at": "list"}),
        "clear",
    ]
    assert run.seen.count("kubelet.restart") == 12


@pytest.mark.parametrize(
    ("share", "exited", "expected"),
    [
        (0.05, False, "pass: 5.0% of a core without a kubelet, back after 1.50 s"),
        (0.06, False, "fail: the plugin used 6% of a core while no kubelet was running, limit 5%"),
        (0.0, True, "fail: the plugin exited when the kubelet stopped: exit status 1 (if it relies "
         "on its DaemonSet to start it again, use --restart always)"),
    ],
)  # fmt: skip
def test_k04(share: float, exited: bool, expected: str, tmp_path: Path) -> None:
    run = Restarting(1.5)
    run.limits = attrs.evolve(RESTARTS, away_cpu_share=0.05)
    run.kubelet.plugin_dir = tmp_path
    (tmp_path / "checkpoint").touch()
    registration._leave_stale_socket(tmp_path / "p.sock")
    run.plugin.idle_cpu_share, run.plugin.has_exited = share, exited
    run.plugin.begin_idle = lambda: run.seen.append("idle")
    assert outcome("K04", run) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert run.seen[:5] == ["start", "stop the kubelet", "kubelet.stop", "idle", "wait 0 s"]


_K05 = "an abandoned Allocate call"


@pytest.mark.parametrize(
    ("exited", "lists", "expected", "alive"),
    [
        (False, [dp.ListAndWatchResponse()], "pass: back after 1.50 s", []),
        (True, [dp.ListAndWatchResponse()], "pass: back after 1.50 s", [_K05]),
        (False, [error()], "skip W11: the first device list of a second stream: Allocate failed "
         "with INTERNAL: no", [_K05]),
    ],
)  # fmt: skip
def test_k05(exited: bool, lists: list[Any], expected: str, alive: list[str]) -> None:
    run = Restarting(1.5, 9.0, devices=[device("a"), device("b")])
    stream = contextlib.nullcontext(Client(next=lists))
    run.to_plugin = Client(watch=stream)
    run.plugin.has_exited = exited
    run.limits = RESTARTS
    assert outcome("K05", run) == expected
    assert run.to_plugin.made[0] == ("abandon_allocate", ["a"])
    assert run.seen[:2] == ["start", "close the connection during Allocate"]
    assert run.alive == alive
    if expected.startswith("pass"):
        assert run.seen[-1] == "wait 60 s after another restart"


_BACK = [
    ("K06", "its socket was deleted", "delete p.sock", None),
    ("K07", "kubelet.sock was recreated", "restart the kubelet, keep the sockets of plugins",
     ("set", "restart", {"keep_sockets": True})),
    ("K08", "its ListAndWatch stream was closed", "end the ListAndWatch streams",
     ("set", "end-list-stream", {})),
]  # fmt: skip


@pytest.mark.parametrize(("id_", "after", "step", "fault"), _BACK)
@pytest.mark.parametrize(
    ("registered", "exited", "expected"),
    [
        (True, False, "pass: back after 0.00 s"),
        (False, True, "lost: the plugin exited after {}: exit status 1"),
        (False, False, "lost: the plugin did not re-register within 0 s after {}"),
    ],
)
def test_plugin_must_notice_and_return(
    id_: str, after: str, step: str, fault: Any, registered: bool, exited: bool, expected: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    registration._leave_stale_socket(tmp_path / "p.sock")
    run = Run(
        is_registered=lambda since, resources: registered,
        socket=lambda resource: tmp_path / "p.sock",
    )
    run.plugin.has_exited = exited
    if id_ == "K08" and exited:
        expected = "pass: exits with an error, which is accepted: exit status 1"
    assert outcome(id_, run) == expected.format(after)
    assert run.seen == ["start", step, *([fault] if fault else [])]
    assert (tmp_path / "p.sock").exists() is (id_ != "K06")


def test_slow_return_is_a_warning() -> None:
    run = Run(is_registered=lambda since, resources: True)
    run.until = lambda condition, seconds: 10.5  # type: ignore[method-assign]
    run.limits = RESTARTS
    assert outcome("K07", run).startswith("warn: ")
    assert "kubelet.sock was recreated" in outcome("K07", run)


def test_k09_changes_a_device_after_each_group_of_restarts() -> None:
    run = Restarting(takes=[0.0, 0.0, 1.0, 1.0, 1.0, 6.0])
    assert outcome("K09", run) == "pass: reported after at most 6.00 s, over 6 restarts"
    assert run.changes == [
        "break a",
        "recover a",
        *[
            f"{each} a after {count}"
            for count in ("1 kubelet restart", "3 kubelet restarts", "6 kubelet restarts")
            for each in ("break", "recover")
        ],
    ]
    waits = [str(each) for each in run.seen if str(each).startswith("wait")]
    assert waits == [f"wait 0 s after restart {number}" for number in range(1, 7)]


@pytest.mark.parametrize("restart", ["never", "always"])
def test_k10(restart: str) -> None:
    run = Restarting(2.5)
    run.plugin.process.kill = lambda: run.seen.append("kill")
    run.plugin.under_test.restart = restart
    assert outcome("K10", run) == "pass: back after 2.50 s"
    launched = ["launch"] if restart == "never" else []
    assert run.seen == ["start", "SIGKILL", "kill", *launched, "wait 0 s after its new start"]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([device("a"), device("b", "Unhealthy")], "pass: None"),
        ([device("a"), device("c")], f"fail: {GPU}: the devices have changed: lost ['b'], new "
         "['c']"),
    ],
)  # fmt: skip
def test_k13(later: list[dp.Device], expected: str) -> None:
    lists = iter([[device("a"), device("b")]])
    run = Restarting()
    run.observed.devices = lambda resource: next(lists, later)
    run.plugin.end = lambda process: run.seen.append("end")
    assert outcome("K13", run) == expected
    assert run.seen[:3] == ["start", "end", "relaunch after the plugin's restart"]
    if expected.startswith("pass"):
        assert run.seen[3:] == [
            "restart the kubelet",
            "kubelet.restart",
            "wait 0 s after the kubelet's restart",
        ]


@pytest.mark.parametrize(
    ("fields", "gone", "expected"),
    [
        ({}, "", "skip: the response names no device node and no mount"),
        ({"mounts": [mount("/no")], "devices": [node("/no2")]}, "", "skip A12: the response names "
         "/no, which does not exist"),
        ({"devices": [node("/no2")]}, "", "skip A11: the response names /no2, which does not "
         "exist"),
        ({"devices": [node("null")]}, "", "skip A11: the response names null, which does not "
         "exist"),
        ({"mounts": [mount("T"), mount("/dev/null")], "devices": [node("T")]}, "", "pass: 2 host "
         "paths"),
        ({"mounts": [mount("T")]}, "stop", "fail: T was removed by the plugin's exit, but a "
         "container may still use it"),
        ({"mounts": [mount("T")]}, "start", "fail: T was removed by the plugin's new start, but a "
         "container may still use it"),
    ],
)  # fmt: skip
def test_k14(
    fields: Any, gone: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    path.touch()
    for each in [*fields.get("mounts", ()), *fields.get("devices", ())]:
        if each.host_path == "T":
            each.host_path = str(path)
    run = allocating("a", allocate=each_container(**fields))
    run.plugin.process.machine_path = Path
    relaunch = run.relaunch

    def stop(run: Any) -> None:
        run.seen.append("stop")
        path.unlink() if gone == "stop" else None

    def start(after: str) -> None:
        relaunch(after)
        path.unlink() if gone == "start" else None

    run.relaunch = start  # type: ignore[method-assign]
    monkeypatch.setattr("devicemanager.conformance.checks.restarts.stop", stop)
    assert outcome("K14", run).replace(str(path), "T") == expected
    for each in [*fields.get("mounts", ()), *fields.get("devices", ())]:
        if each.host_path == str(path):
            each.host_path = "T"
    if expected.startswith("pass"):
        assert run.seen == ["start", "stop", "relaunch after the plugin's restart"]


@pytest.mark.parametrize(
    ("starts", "running", "status", "restart", "expected"),
    [
        (1, True, None, "never", "skip: the plugin does not exit when the kubelet stops"),
        (1, False, 0, "never", "fail: the plugin exited with status 0 when the kubelet stopped, "
         "expected non-zero"),
        (1, False, 3, "never", "pass: exit status 1, back after 1.00 s"),
        (2, True, 3, "always", "pass: exit status 1, back after 1.00 s"),
    ],
)  # fmt: skip
def test_k15(
    starts: int, running: bool, status: Any, restart: str, expected: str, tmp_path: Path
) -> None:
    run = Restarting()
    run.limits = RESTARTS
    run.kubelet.plugin_dir = tmp_path
    registration._leave_stale_socket(tmp_path / "p.sock")
    run.plugin.process.exit_status, run.plugin.under_test.restart = status, restart
    stop = run.kubelet.stop

    def stopped() -> None:
        stop()
        run.plugin.process.starts, run.plugin.process.is_running = starts, running

    run.kubelet.stop = stopped
    assert outcome("K15", run) == expected
    assert not (tmp_path / "p.sock").exists()
    is_pass = expected.startswith("pass")
    assert ("launch" in run.seen) is (is_pass and restart == "never")
    assert run.seen[:3] == ["start", "stop the kubelet", "kubelet.stop"]
    assert ("kubelet.start" in run.seen) is is_pass
    assert (run.seen[-1] == "wait 60 s after the kubelet's start") is is_pass


# -- the life cycle ----------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("ends", "status", "expected"),
    [
        (True, 0, "pass: SIGTERM 0.00 s, SIGINT 0.00 s"),
        (True, 1, "warn: exit status 1, 0.00 s after SIGTERM: expected exit status 0"),
        (False, None, "fail: the plugin still runs 0 s after SIGTERM"),
    ],
)
def test_l01(ends: bool, status: int | None, expected: str) -> None:
    run = ending(Run(), ends=ends, status=status)
    run.limits = attrs.evolve(LIMITS, stop_seconds=0)
    run.relaunch = lambda after: (  # type: ignore[method-assign]
        run.seen.append(f"relaunch after {after}"),
        setattr(run.plugin.process, "is_running", True),
    )
    assert outcome("L01", run) == expected
    assert run.disproved == (set() if ends else {"L01"})
    seen = ["start", "SIGTERM", "stay down", 15]
    more = ["relaunch after its start", "SIGINT", "stay down", 2]
    assert run.seen == (seen + more if expected.startswith("pass") else seen)


def test_l02(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    run = ending(Run(socket=lambda resource: path))
    assert outcome("L02", run) == "pass: None"
    registration._leave_stale_socket(path)
    assert outcome("L02", run) == ("fail: the plugin's socket p.sock still exists after its exit")
    run = ending(Run(socket=lambda resource: path), ends=False)
    run.limits = attrs.evolve(LIMITS, stop_seconds=0)
    assert outcome("L02", run) == "skip L01: the plugin still runs 0 s after SIGTERM"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({"others.txt": 1, "others.sock": 2, "new": 3}, "pass: None"),
        ({"others.sock": 2}, "fail: the plugin removed others.txt, which is not its file"),
        ({"others.txt": 1, "others.sock": 3}, "fail: the plugin replaced or changed others.sock, "
         "which is not its file"),
    ],
)  # fmt: skip
def test_l03(after: dict[str, int], expected: str, tmp_path: Path) -> None:
    found: list[Any] = []

    def other_files() -> dict[str, int]:
        found.append({path.name: path.is_socket() for path in tmp_path.iterdir()})
        return after if len(found) > 1 else {"others.txt": 1, "others.sock": 2}

    run = ending(Run(other_files=other_files))
    run.kubelet.plugin_dir = tmp_path
    assert outcome("L03", run) == expected
    assert found[0] == {"others.txt": False, "others.sock": True}
    assert run.seen[2:5] == [
        "create a file and a socket in the plugin directory",
        "relaunch after its start",
        "SIGTERM",
    ]


@pytest.mark.parametrize(
    ("memory", "hooks", "expected", "changes"),
    [
        ([100 << 20, 110 << 20], (), "pass: memory +10.0%", 0),
        ([100 << 20, 121 << 20], (), "fail: the plugin's memory grew by 21% during 5 allocations",
         0),
        ([1, 1], ("break-device", "recover-device"), "pass: memory +0.0%", 12),
        ([1, 1], ("break-device",), "pass: memory +0.0%", 0),
        ([1, 1], ("recover-device",), "pass: memory +0.0%", 0),
    ],
)  # fmt: skip
def test_l06(memory: list[int], hooks: Any, expected: str, changes: int) -> None:
    run, left = Changing(device("a"), device("b")), iter(memory)
    run.limits = attrs.evolve(LIMITS, allocations=5, changes=7)
    run.plugin.under_test.hooks = hooks
    run.plugin.usage = lambda: SimpleNamespace(memory=next(left))
    assert outcome("L06", run) == expected
    ids = [["a"], ["b"], ["a"], ["b"], ["a"]] * 2
    assert run.to_plugin.made == [("allocate", id_) for id_ in ids]
    assert len(run.changes) == changes
    run.to_plugin = Client(allocate=[None, error()])
    assert outcome("L06", run) == f"skip A07: Allocate call 2: {_ALLOCATE}"


_UNKNOWN = ["/v1beta1.DevicePlugin/NoSuchMethod", "/v9.NoSuchService/Call"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([error("UNIMPLEMENTED")] * 2, "pass: None"),
        ([error("UNIMPLEMENTED"), b""], f"fail: unknown method {_UNKNOWN[1]} succeeded, expected "
         "UNIMPLEMENTED"),
        ([error("UNKNOWN")], f"fail: unknown method {_UNKNOWN[0]}: Allocate failed with UNKNOWN: "
         "no, expected UNIMPLEMENTED"),
    ],
)  # fmt: skip
def test_l08(answers: list[Any], expected: str) -> None:
    run = Run(client=Client(raw=list(answers)))
    assert outcome("L08", run) == expected
    made = [("raw", method, b"", 10.0) for method in _UNKNOWN[: len(answers)]]
    assert run.to_plugin.made == [("options",), *made]
    assert run.alive == (["unknown methods"] if expected.startswith("pass") else [])


def test_l09_and_l10() -> None:
    run = Run()
    for fixed, expected in (
        (False, "pass: the directory is configurable"),
        (True, "warn: the plugin has a fixed plugin directory: it was run with --at-node-paths"),
    ):
        run.plugin.under_test.at_node_paths = fixed
        assert outcome("L09", run) == expected
    run.limits = Limits(idle_seconds=30)
    for ports, lines, expected in (
        ([], [], "pass: listens on no TCP port; 0 lines per minute when idle"),
        (["a:1", "b:2"], ["x"] * 300, "pass: listens on a:1, b:2; 600 lines per minute when idle"),
    ):
        run.plugin.listening_ports = lambda ports=ports: ports
        run.timeline = SimpleNamespace(output=lambda lines=lines: lines)
        assert outcome("L10", run) == expected


@pytest.mark.parametrize(
    ("hook", "running", "status", "output", "expected"),
    [
        (True, True, None, ["x"], "fail: the misconfigured plugin keeps running"),
        (False, True, None, ["x", "y" * 300], "pass: the misconfigured plugin keeps running, and "
         f"prints: {'y' * 200}"),
        (False, True, None, [], "fail: the plugin neither exited nor printed anything without its "
         "plugin directory"),
        (True, False, 0, ["x"], "fail: the misconfigured plugin exited with status 0, expected "
         "non-zero"),
        (True, False, 1, [], "fail: exit status 1: the misconfigured plugin exited without any "
         "output"),
        (True, False, 2, ["panic: x"], "fail: the misconfigured plugin crashed (exit status 1), "
         "expected a message and a non-zero exit status without a crash"),
        (True, False, 1, ["a", "z" * 300], f"pass: exit status 1: {'z' * 200}"),
    ],
)  # fmt: skip
def test_l11(
    hook: bool, running: bool, status: Any, output: list[str], expected: str, tmp_path: Path
) -> None:
    run = Run()
    run.kubelet.plugin_dir = tmp_path / "p"
    run.plugin.under_test.has = lambda name: hook and name == "misconfigure"
    run.plugin.process = SimpleNamespace(
        is_running=running, exit_status=status, output=lambda: output
    )
    run.timeline = SimpleNamespace(step=run.seen.append, output=lambda: output)
    launched: list[str] = []
    run.launch = lambda *before, hook: launched.append(hook) or run.plugin.process  # type: ignore[method-assign, func-returns-value]
    assert outcome("L11", run) == expected
    assert launched == (["misconfigure"] if hook else [""])
    assert (tmp_path / "p").is_file() is not hook
    step = "create a file in place of the plugin directory"
    assert run.seen == (["start the kubelet", "kubelet.start"] if hook else [step])


@pytest.mark.parametrize(
    ("instances", "resources", "reason", "expected"),
    [
        (3, 2, "no", "fail: the plugin has 3 inotify instances, limit 2"),
        (2, 2, "no", "skip: 2 inotify instances; a limit of inotify instances cannot be tested on "
         "this machine: no"),
        (1, 1, "", "skip K01: 1 inotify instance; lost"),
    ],
)  # fmt: skip
def test_l07(
    instances: int, resources: int, reason: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Restarting(Failed("lost"))
    run.resources = (GPU, NIC)[:resources]
    run.plugin.usage = lambda: SimpleNamespace(inotify=instances)
    monkeypatch.setattr(
        "devicemanager.conformance.checks.lifecycle.why_inotify_cannot_be_limited", lambda: reason
    )
    assert outcome("L07", run) == expected


# -- steps of several checks -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "health", "expected"),
    [
        ([device("a"), device("b")], True, ""),
        ([device("b"), device("a")], True, ""),
        ([device("a"), device("b", "Unhealthy")], False, ""),
        ([device("a"), device("b", "Unhealthy")], True, "the health of b has changed from Healthy "
         "to Unhealthy"),
        ([device("a")], False, "the devices have changed: lost ['b'], new []"),
        ([*map(device, "abhgfedc")], True, "the devices have changed: lost [], new ['c', 'd', "
         "'e', 'f', 'g']"),
    ],
)  # fmt: skip
def test_devices_are_compared(now: list[dp.Device], health: bool, expected: str) -> None:
    run = Run(*now)
    before = {GPU: {"a": "Healthy", "b": "Healthy"}}
    try:
        steps.check_same_devices(run, before, health=health)
    except Failed as failed:
        assert str(failed) == f"{GPU}: {expected}"
    else:
        assert expected == ""


def test_health_is_compared_by_default() -> None:
    with pytest.raises(Failed, match=r"the health of a has changed from Healthy to Unhealthy$"):
        steps.check_same_devices(Run(device("a", "Unhealthy")), {GPU: {"a": "Healthy"}})


# -- two instances -----------------------------------------------------------------------------


def bound(path: Path) -> Path:
    registration._leave_stale_socket(path)
    return path


class Instances(Run):
    """Run in which a second instance binds a socket when it is launched."""

    def __init__(self, directory: Path, name: str, *, exits: bool = False) -> None:
        super().__init__()
        self.limits = RESTARTS
        self.old, self.new = bound(directory / "old"), directory / name
        self.starts = bool(name)
        self.registered = [(GPU, self.old)]
        self.observed.sockets = lambda since: self.registered[0 if since == EVER else 1 :]
        self.observed.is_serving = lambda resource: True
        self.exits = exits  # type: ignore[assignment]
        self.removes: Any = lambda: None
        self.plugin.stop = lambda process: (self.seen.append("stop"), self.removes())
        self.until = lambda condition, seconds: (  # type: ignore[method-assign]
            self.seen.append(seconds) or (0.5 if condition() else None)  # type: ignore[func-returns-value]
        )

    def launch(self, *before: str, hook: str = "") -> Any:
        self.seen.append("launch")
        if self.exits:
            self.plugin.has_exited = True
        elif self.starts:
            # The old file still exists, so that the new one has another inode.
            if self.new == self.old:
                self.old.rename(self.old.with_name("kept"))
            self.registered.append((GPU, bound(self.new)))
        return SimpleNamespace(is_running=not self.exits)


_UPDATE = " (an update with maxSurge never ends: the new pod fails while the old one runs)"


@pytest.mark.parametrize("name", ["new", "old"])
def test_k11_passes_if_the_second_instance_keeps_its_socket(name: str, tmp_path: Path) -> None:
    run = Instances(tmp_path, name)
    assert outcome("K11", run) == "pass: 0 registrations after the exit of the first instance"
    step = "SIGTERM to the first instance"
    assert run.seen == ["start", "launch", 0, step, "stop", "wait 0 s", 60]


@pytest.mark.parametrize("name", ["new", "old"])
@pytest.mark.parametrize("again", [False, True])
def test_k11_fails_if_the_first_instance_removes_it(name: str, again: bool, tmp_path: Path) -> None:
    run = Instances(tmp_path, name)

    def removes() -> None:
        run.new.rename(tmp_path / "removed")
        if again:
            bound(run.new)

    run.removes = removes
    text = f"the first instance removed {name}, the socket of the second instance"
    # With another name, the second instance may create its socket again.
    is_pass = again and name == "new"
    assert (outcome("K11", run) == f"fail: {text}") is not is_pass


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        (10.0, "pass: 0 registrations after the exit of the first instance"),
        (10.5, "warn: no ListAndWatch stream was open for 10.5 s after the exit of the first "
         "instance"),
        (None, "fail: no ListAndWatch stream is open 60 s after the exit of the first instance"),
    ],
)  # fmt: skip
def test_k11_waits_for_the_streams(took: float | None, expected: str, tmp_path: Path) -> None:
    run = Instances(tmp_path, "new")
    results = iter([0.5, took])
    run.until = lambda condition, seconds: next(results)  # type: ignore[method-assign]
    assert outcome("K11", run) == expected


@pytest.mark.parametrize(
    ("id_", "exits", "expected"),
    [
        ("K11", True, f"fail: a second instance cannot start: exit status 1{_UPDATE}"),
        ("K12", True, "skip K11: a second instance cannot start: exit status 1"),
        ("K11", False, f"fail: a second instance did not register within 0 s{_UPDATE}"),
        ("K12", False, "skip K11: a second instance did not register within 0 s"),
    ],
)
def test_second_instance_must_register(
    id_: str, exits: bool, expected: str, tmp_path: Path
) -> None:
    assert outcome(id_, Instances(tmp_path, "", exits=exits)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("new", "pass: None"),
        ("old", "warn: both instances of the plugin use the same socket old"),
    ],
)
def test_k12(name: str, expected: str, tmp_path: Path) -> None:
    assert outcome("K12", Instances(tmp_path, name)) == expected


# -- streams and their handlers ----------------------------------------------------------------


class Uses:
    """Resource use that has grown, or not."""

    def __init__(self, number: int, grown: bool) -> None:
        self.number, self.grown = number, grown

    def has_more_handles(self, before: Any, limits: Any) -> bool:
        return self.grown

    def __str__(self) -> str:
        return f"use {self.number}"


@pytest.mark.parametrize(
    ("grown", "waits", "expected"),
    [
        ([False], [2.0], "pass: handlers"),
        ([True, True, False], [2.0, 2.0, 2.0], "pass: handlers"),
        ([True] * 4, [2.0, 2.0, 2.0, 10.0], "fail: 4 batches of 3 streams were opened and closed; "
         "resource use after the last one: use 8; before it: use 6"),
    ],
)  # fmt: skip
def test_w15(
    grown: list[bool], waits: list[float], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, count, found = Run(), iter(range(20)), iter(grown)
    run.limits = Limits(stream_batches=4, streams=3)
    uses: list[Uses] = []

    def usage() -> Uses:
        number = next(count)
        uses.append(Uses(number, next(found) if number % 2 else False))
        return uses[-1]

    seen: list[float] = []
    opened: list[str] = []
    monkeypatch.setattr(listandwatch, "assume_new_list", lambda run: opened.append("list"))
    monkeypatch.setattr(listandwatch, "_check_handlers", lambda run: "handlers")
    run.kubelet.calls = SimpleNamespace(in_progress=[SimpleNamespace(rpc="ListAndWatch")])
    run.plugin.usage = usage
    run.settle = lambda seconds: run.seen.append(f"settle {seconds}")  # type: ignore[method-assign, assignment, misc]
    run.until = lambda condition, seconds: (  # type: ignore[method-assign]
        seen.append(seconds) or (0.1 if condition() else None)  # type: ignore[func-returns-value]
    )
    assert outcome("W15", run) == expected
    assert (seen, len(opened)) == (waits, 1 + 3 * len(waits))
    assert run.seen == ["start", "settle 0.2"]


@pytest.mark.parametrize(("streams", "closes"), [([1, 1], False), ([1, 2], True)])
def test_w15_closes_streams_of_earlier_registrations(
    streams: list[int], closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = Run(), iter(streams)
    run.limits = Limits(stream_batches=1)
    monkeypatch.setattr(listandwatch, "assume_new_list", lambda run: None)
    monkeypatch.setattr(listandwatch, "_check_handlers", lambda run: "handlers")
    monkeypatch.setattr(listandwatch, "_open_streams", lambda run: next(left))
    run.plugin.usage = lambda: Uses(0, False)
    run.settle = lambda seconds=1.5: run.seen.append(f"settle {seconds}")  # type: ignore[method-assign, assignment, misc]
    assert outcome("W15", run) == "pass: handlers"
    restart = ["settle 1.5", "restart the kubelet", "kubelet.restart", "wait 60 s after the "
               "restart", "settle 0.2"]  # fmt: skip
    assert run.seen == ["start", "settle 0.2", *(restart if closes else [])]


_AS_BEFORE = "threads and descriptors as before"


@pytest.mark.parametrize(
    ("is_go", "handlers", "rounds", "expected"),
    [
        (False, [], 0, _AS_BEFORE),
        (True, [None], 1, f"{_AS_BEFORE}; no stacks on SIGABRT, so no goroutines counted"),
        (True, [2], 1, "2 goroutines in ListAndWatch"),
        (True, [1], 1, "1 goroutine in ListAndWatch"),
        (True, [5, 2], 2, "2 goroutines in ListAndWatch"),
        (True, [5, 5, 0], 3, "0 goroutines in ListAndWatch"),
        (True, [5, 4, 3], 3, "1 ListAndWatch handler did not return after the end of the stream: "
         "the plugin has 3 goroutines in ListAndWatch, and 2 open streams"),
    ],
)  # fmt: skip
def test_handlers_are_counted(
    is_go: bool, handlers: list[Any], rounds: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = ending(Run()), iter(handlers)
    run.plugin.process.pid = 7
    run.limits = Limits(stream_end_seconds=10, streams=3)
    calls = [SimpleNamespace(rpc=rpc) for rpc in ("ListAndWatch", "Register", "ListAndWatch")]
    run.kubelet.calls = SimpleNamespace(in_progress=calls)
    run.settle = lambda seconds=None: run.seen.append(f"settle {seconds}")  # type: ignore[method-assign, assignment, misc]
    relaunch = run.relaunch
    run.relaunch = lambda after: (relaunch(after), setattr(run.plugin.process, "is_running", True))  # type: ignore[method-assign]
    run.until = lambda condition, seconds: run.seen.append(f"until {seconds:g}")  # type: ignore[method-assign]
    monkeypatch.setattr(listandwatch, "assume_new_list", lambda run: run.seen.append("list"))
    path = "devicemanager.conformance.process_checks"
    monkeypatch.setattr(f"{path}.is_go", lambda pid: is_go and pid == 7)
    monkeypatch.setattr(
        f"{path}.goroutines_in",
        lambda output, name: next(left) if name == "ListAndWatch" else None,
    )
    try:
        found = listandwatch._check_handlers(run)
    except Failed as failed:
        found = str(failed)
    assert found == expected
    abort = ["SIGABRT", "stay down", 6, "until 10"]
    again = ["relaunch after its new start", "list", "list", "list"]
    whole = [["settle None", *abort], [*again, "settle 10.0", *abort],
             [*again, "until 35", "settle None", *abort]]  # fmt: skip
    assert [str(each) for each in run.seen] == [
        str(each).replace("10.0", str(run.limits.stream_end_seconds))
        for part in whole[:rounds]
        for each in part
    ]


# -- inotify -----------------------------------------------------------------------------------

_NONE = "with a limit of 0 inotify instances"


@pytest.mark.parametrize(
    ("registers", "took", "exited", "status", "output", "expected"),
    [
        (True, 2.0, False, None, [], "back after 2.00 s"),
        (True, Failed("no"), False, None, [], f"{_NONE}: no"),
        (False, 2.0, False, None, [], f"{_NONE}, the plugin neither registered nor exited"),
        (False, 2.0, True, 0, ["inotify"], f"{_NONE}, the plugin exited with status 0, expected "
         "non-zero"),
        (False, 2.0, True, 1, ["x"], f"{_NONE}: exit status 1, and its output does not mention "
         "inotify"),
        *[(False, 2.0, True, 1, [line, "x"], "exits with an error, which is accepted: exit status "
          f"1: {line}") for line in ("Inotify", "cannot watch", "Too many open files", "EMFILE")],
        (True, Failed("no"), True, 1, ["inotify 1", "inotify " + "y" * 300], "exits with an error, "
         f"which is accepted: exit status 1: inotify {'y' * 192}"),
    ],
)  # fmt: skip
def test_plugin_without_inotify(
    registers: bool, took: Any, exited: bool, status: Any, output: list[str], expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run = Restarting(took)
    limits: list[int] = []
    monkeypatch.setattr(
        lifecycle, "_registers", lambda run, instances: limits.append(instances) or registers
    )
    run.plugin.has_exited_once = exited
    run.plugin.process.exit_status = status
    run.plugin.process.output = lambda: output
    try:
        found = lifecycle._without_inotify(run)
    except Failed as failed:
        found = str(failed)
    assert found == expected
    assert (limits, run.seen[0]) == ([0], "no inotify instances")
    assert ("wait 0 s after restart 1" in run.seen) is registers


@pytest.mark.parametrize(
    ("without", "in_namespace", "expected"),
    [
        ("text", True, "pass: 1 inotify instance; without any: text"),
        (Failed("no"), True, "fail: no"),
        (Failed("no"), False, "skip: 1 inotify instance; in a user namespace, the plugin fails "
         "even if inotify works"),
    ],
)  # fmt: skip
def test_l07_repeats_a_failure_with_inotify(
    without: Any, in_namespace: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Restarting()
    run.plugin.end = lambda process: run.seen.append("end")
    run.plugin.usage = lambda: SimpleNamespace(inotify=1)
    monkeypatch.setattr(lifecycle, "why_inotify_cannot_be_limited", lambda: "")
    client = Client(without=without)
    monkeypatch.setattr(lifecycle, "_without_inotify", client.without)
    limits: list[int] = []
    monkeypatch.setattr(
        lifecycle, "_registers", lambda run, instances: limits.append(instances) or in_namespace
    )
    assert outcome("L07", run) == expected
    is_pass = expected.startswith("pass")
    assert (limits, run.seen.count("end")) == (([], 1) if is_pass else ([128], 2))
    waits = [each for each in run.seen if str(each).startswith("wait")]
    assert len(waits) == 1 + (not is_pass and in_namespace)


@pytest.mark.parametrize(
    ("registered", "exited", "expected"),
    [(True, False, True), (True, True, True), (False, True, False), (False, False, False)],
)
def test_registration_with_a_limit_of_inotify(
    registered: bool, exited: bool, expected: bool
) -> None:
    run = Run(is_registered=lambda since, resources: registered and since == "mark")
    run.plugin.has_exited_once = exited
    launched: list[Any] = []
    run.launch = lambda *before, hook="": launched.append(before)  # type: ignore[method-assign, assignment, misc]
    run.begin_set_up = lambda: run.seen.append("set up")  # type: ignore[method-assign]
    assert lifecycle._registers(run, 3) is expected
    assert launched == [lifecycle.limited_inotify(3)]
    assert launched[0][-1] == "3"
    assert run.seen == (["set up"] if expected else [])
