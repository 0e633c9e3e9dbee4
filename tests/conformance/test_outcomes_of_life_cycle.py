"""What the checks of the process and its resources say about a plugin: one row per outcome."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from devicemanager.conformance import Limits
from devicemanager.conformance.checks import (
    lifecycle,
    registration,
)
from devicemanager.conformance.outcomes import Failed
from tests.conformance.recorded_run import (
    GPU,
    LIMITS,
    NIC,
    Changing,
    Client,
    Restarting,
    Run,
    device,
    ending,
    error,
    outcome,
)


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
    assert run.seen == ["start", "SIGTERM", "stay down", 15]
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
    text = "Allocate failed with INTERNAL: no"
    assert outcome("L06", run) == f"skip A07: Allocate call 2: {text}"


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
