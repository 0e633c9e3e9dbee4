"""What the checks of restarts say about a plugin: one row per outcome."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from devicemanager.conformance.checks import (
    registration,
    steps,
)
from devicemanager.conformance.observations import EVER
from devicemanager.conformance.outcomes import Failed, Lost
from protos import deviceplugin_v1beta1 as dp
from tests.conformance.recorded_run import (
    GPU,
    RESTARTS,
    Client,
    Restarting,
    Run,
    allocating,
    bound,
    calls,
    device,
    each_container,
    error,
    mount,
    node,
    outcome,
    register,
)


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
