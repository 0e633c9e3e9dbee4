"""What the checks of registration say about a plugin: one row per outcome."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from devicemanager.conformance.checks import (
    registration,
)
from devicemanager.conformance.outcomes import Failed, Warned
from tests.conformance.recorded_run import (
    GPU,
    LIMITS,
    NIC,
    Client,
    Run,
    calls,
    listed,
    options,
    outcome,
    register,
)


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
    waits: list[Any] = []
    run.until = lambda condition, seconds: waits.append((condition, seconds))  # type: ignore[method-assign]
    assert outcome("R02", run) == expected
    [(is_answered, seconds)] = waits
    assert (is_answered(), seconds) == (bool(made), 15)
    run.plugin.has_exited = True
    assert is_answered()


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


def test_r07_waits_for_each_resource() -> None:
    run = Run(**calls(register(), register(NIC, code="Unknown")))
    run.resources = (GPU, NIC, "v.com/x")
    run.limits = attrs.evolve(LIMITS, start_seconds=4, register_delay_seconds=9)
    run.until = lambda condition, seconds: None  # type: ignore[method-assign]
    assert outcome("R07", run) == f"fail: Register of {GPU} did not complete within 31 s"


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
    for each in ("end", "kubelet.stop", "kubelet.start"):
        assert run.seen.count(each) == 3
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
