"""Supervised plugin processes: their starts, restarts, waits and texts, with runs in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager import ManualClock, WaitTimeout
from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventStream
from devicemanager.testing import PluginProcess, ProcessEnded
from devicemanager.testing.processes import PluginProcessFactory, _how, last_lines

GPU = "vendor.com/gpu"


class Run:
    """Run of a command, whose exit the test decides."""

    made: list[Run]

    def __init__(self, command: Any, env: Any, cwd: Any, binds: Any, output: Any) -> None:
        self.command, self.env, self.cwd, self.binds, self.output = command, env, cwd, binds, output
        self.status: int | None = None
        self.pid = 100 + len(self.made)
        self.done: list[Any] = []
        self.late: int | None = None
        self.ended: Callable[[], None] = lambda: None
        self.made.append(self)

    def start(self, ended: Callable[[], None]) -> None:
        self.ended = ended

    def exit(self, status: int) -> None:
        self.status = status
        self.ended()

    def signal(self, number: int) -> None:
        self.done.append(int(number))

    def terminate(self) -> None:
        self.done.append("terminate")

    def wait(self, timeout: float) -> int | None:
        self.done.append(f"wait {timeout:g}")
        if self.status is None and self.late is not None:
            self.exit(self.late)
        return self.status

    def end(self, timeout: float = 10.0) -> None:
        self.done.append(f"end {timeout:g}")
        if self.status is None:
            self.exit(-15)


class Kubelet:
    """What a process needs of a kubelet."""

    def __init__(self) -> None:
        self.root = Path("/node")
        self.plugin_dir = self.root / "device-plugins"
        self.plugin_socket = self.plugin_dir / "kubelet.sock"
        self.clock = ManualClock(1000.0)
        self.events = EventStream(self.clock)
        self.counts: dict[str, int] = {}
        self.waits: list[Any] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def allocatable(self) -> dict[str, int]:
        return self.counts

    def wait_for(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        if condition():
            return
        self.waits.append((timeout, what))
        self.meanwhile()
        if not condition():
            raise WaitTimeout("waited")

    def messages(self) -> list[str]:
        return [f"{event.kind}: {event.message}" for event in self.events.recent()]


@pytest.fixture
def kubelet() -> Kubelet:
    return Kubelet()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    made: list[Run] = []
    monkeypatch.setattr(Run, "made", made, raising=False)
    monkeypatch.setattr("devicemanager.testing.processes.SupervisedRun", Run)
    return made


@pytest.fixture
def make(kubelet: Any, runs: list[Run]) -> Callable[..., PluginProcess]:
    def made(*words: str, **options: Any) -> PluginProcess:
        return PluginProcess(kubelet, words or ("bin/plugin",), **options)

    return made


def test_process_has_these_states(make: Any, kubelet: Any, runs: list[Run]) -> None:
    process = make()
    assert (process.name, process.starts, process.exit_status) == ("plugin", 0, None)
    assert not process.is_running and not process.waits and process.output() == []
    assert process.start() is process
    assert (process.starts, process.pid, process.is_running) == (1, 100, True)
    assert process.exit_status is None
    with pytest.raises(RuntimeError, match=r"^plugin is already started: stop it first$"):
        process.start()
    runs[0].exit(3)
    assert (process.exit_status, process.is_running, process.starts) == (3, False, 1)
    process.stop()
    assert len(runs) == 1
    with process:
        assert (process.starts, process.pid) == (2, 101)
        assert process.is_running
    assert runs[1].done == ["end 10"]
    process.stop(2)
    assert runs[1].done == ["end 10", "end 2"]
    assert kubelet.messages() == [
        "process-started: plugin runs as process 100",
        "process-ended: plugin exited with status 3",
        "process-started: plugin runs as process 101",
        "process-ended: plugin was killed by SIGTERM",
    ]


def test_command_and_variables_are_filled(
    make: Any, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEVICE_PLUGIN_DIRECTORY", "/other")
    monkeypatch.setenv("MINE", "1")
    words = ("plugin", "--dir={plugin_dir}", "{kubelet_socket}", "{root}/x", "{other}")
    make(*words, env={"A": "{root}", "MINE": "2"}, cwd="/tmp").start()
    (run,) = runs
    assert run.command == [
        "plugin",
        "--dir=/node/device-plugins",
        "/node/device-plugins/kubelet.sock",
        "/node/x",
        "{other}",
    ]
    assert (run.env["A"], run.env["MINE"], run.cwd, run.binds) == ("/node", "2", "/tmp", ())
    assert run.env["DEVICE_PLUGIN_DIRECTORY"] == "/node/device-plugins"


def test_paths_of_a_process_at_node_paths(
    make: Any, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def binds(root: Path, **places: Any) -> Any:
        given.append((root, places))
        return ((Path("/mine"), Path("/dev"), ("shm",)), (Path("/k"), Path("/var/lib/k"), ()))

    given: list[Any] = []
    monkeypatch.setattr("devicemanager.testing.processes.node_binds", binds)
    monkeypatch.setenv("DEVICE_PLUGIN_DIRECTORY", "/other")
    places = {"dev": Path("/a"), "sys": Path("/b"), "cdi": Path("/c")}
    process = make(at_node_paths=True, **places).start()
    assert given == [(Path("/node"), places)]
    assert runs[0].env["DEVICE_PLUGIN_DIRECTORY"] == "/other"
    assert len(runs[0].binds) == 2
    for path, found in {
        "/dev/gpu0": "/mine/gpu0",
        "/dev": "/mine",
        "/dev/shm/x": "/dev/shm/x",
        "/var/lib/k/p.sock": "/k/p.sock",
        "/etc/x": "/etc/x",
    }.items():
        assert process.machine_path(path) == Path(found)
    seen: list[Any] = []
    monkeypatch.setattr(
        "devicemanager.testing.processes.resolved", lambda *paths: seen.append(paths)
    )
    process.seen_path("/dev/x")
    assert seen == [(Path("/proc/100/root"), Path("/dev/x"))]
    runs[0].exit(0)
    with pytest.raises(ProcessEnded, match=r"^plugin exited with status 0\n  \(no output\)$"):
        process.seen_path("/dev/x")


@pytest.mark.parametrize(("restart", "starts"), [("never", 1), ("always", 2)])
def test_command_is_restarted_only_on_request(
    make: Any, runs: list[Run], restart: str, starts: int
) -> None:
    process = make(restart=restart).start()
    runs[0].exit(1)
    assert process.starts == starts and not process.waits


def test_pauses_between_restarts_grow_until_they_are_forgotten(
    make: Any, kubelet: Any, runs: list[Run]
) -> None:
    process, clock = make(restart="always").start(), kubelet.clock
    for pause in (0, 10, 20):
        count = process.starts
        runs[-1].exit(1)
        assert process.waits is bool(pause)
        if pause:
            clock.advance(pause - 0.1)
            assert process.starts == count
            clock.advance(0.1)
        assert process.starts == count + 1 and not process.waits
    process.forget_exits()
    runs[-1].exit(1)
    assert (process.starts, process.waits) == (5, False)
    # After more than ten minutes, the pauses begin again.
    clock.advance(601)
    runs[-1].exit(1)
    assert (process.starts, process.waits) == (6, False)
    runs[-1].exit(1)
    assert process.waits
    process.stop()
    assert not process.waits and clock._timers == []
    clock.advance(1000)
    assert process.starts == 6
    # A new start has no exits.
    process.start()
    runs[-1].exit(1)
    assert (process.starts, process.waits) == (8, False)


def test_restart_that_comes_too_late_starts_nothing(
    make: Any, kubelet: Any, runs: list[Run]
) -> None:
    """A timer can call back just after it was cancelled."""
    late: list[Callable[[], None]] = []
    kubelet.clock = SimpleNamespace(
        monotonic=lambda: 1000.0,
        call_at=lambda due, callback: late.append(callback) or (lambda: None),
    )
    process = make(restart="always").start()
    runs[0].exit(1)
    runs[1].exit(1)
    assert process.waits and len(late) == 1
    process.stop()
    late[0]()
    assert process.starts == 2
    process.start()
    late[0]()
    assert (process.starts, len(runs)) == (3, 3)


def test_command_that_stays_down_is_not_restarted(make: Any, runs: list[Run]) -> None:
    process = make(restart="always").start()
    process.stay_down()
    runs[0].exit(0)
    assert process.starts == 1 and not process.waits
    process.start()
    assert process.starts == 2
    runs[0].exit(0)  # a late exit of the run that was replaced
    assert process.starts == 2 and not process.waits


def test_signals_reach_the_run(make: Any, runs: list[Run]) -> None:
    process = make().start()
    process.pause()
    process.resume()
    process.send_signal(10)
    assert runs[0].done == [19, 18, 10]
    runs[0].late = 7
    assert process.terminate() == 7
    assert runs[0].done[3:] == [15, 18, "wait 10"]
    process.stop()
    process.start()
    runs[1].late = -9
    assert process.kill(3) == -9
    assert runs[1].done == [9, 18, "wait 3"]


def test_command_that_still_runs_is_a_timeout_with_its_output(make: Any, runs: list[Run]) -> None:
    process = make().start()
    runs[0].output.extend(f"line {number}" for number in range(25))
    lines = "\n".join(f"  | line {number}" for number in range(5, 25))
    for do, text in (
        (process.terminate, "plugin still runs 10 s after SIGTERM"),
        (lambda: process.kill(0.5), "plugin still runs 0.5 s after SIGKILL"),
        (process.wait, "plugin still runs after 10 s"),
        (lambda: process.wait(0), "plugin still runs after 0 s"),
    ):
        with pytest.raises(WaitTimeout) as raised:
            do()
        assert str(raised.value) == f"{text}\n{lines}"
    runs[0].status = 4
    assert process.wait() == 4


def test_command_that_was_never_started_has_no_status(make: Any) -> None:
    process = make()
    with pytest.raises(ProcessEnded, match=r"^plugin was never started$"):
        process.wait()
    for use in (process.terminate, process.kill, process.pause, lambda: process.pid):
        with pytest.raises(ProcessEnded, match=r"^plugin was never started\n  \(no output\)$"):
            use()
    process.stop()


@pytest.mark.parametrize(
    ("count", "wrong", "right", "what"),
    [
        (None, [{}, {GPU: 0}, {"vendor.com/nic": 1}], {GPU: 1}, "any devices"),
        (0, [{}, {GPU: 1}], {GPU: 0}, "0 devices"),
        (1, [{}, {GPU: 2}], {GPU: 1}, "1 device"),
        (2, [{}, {GPU: 1}], {GPU: 2}, "2 devices"),
    ],
)
def test_wait_for_a_resource(
    make: Any, kubelet: Any, runs: list[Run], count: int | None, wrong: Any, right: Any, what: str
) -> None:
    process = make().start()
    for kubelet.counts in wrong:
        with pytest.raises(WaitTimeout):
            process.wait_for_resource(GPU, count)
        assert kubelet.waits.pop() == (10.0, f"{what} of {GPU} from plugin")
        with pytest.raises(WaitTimeout):
            process.wait_for_resource(GPU, count, 2.5)
        assert kubelet.waits.pop()[0] == 2.5
    kubelet.counts = right
    process.wait_for_resource(GPU, count)
    assert kubelet.waits == []
    for resource, number in (("gpu", None), (GPU, -1)):
        with pytest.raises(RequestError):
            process.wait_for_resource(resource, number)


def test_wait_for_a_resource_ends_with_the_command(make: Any, runs: list[Run]) -> None:
    with pytest.raises(ProcessEnded, match=r"^plugin was never started"):
        make().wait_for_resource(GPU)
    process = make().start()
    runs[0].exit(2)
    with pytest.raises(ProcessEnded, match=r"^plugin exited with status 2"):
        process.wait_for_resource(GPU)
    process = make(restart="always").start()
    runs[1].exit(2)
    runs[2].exit(2)
    with pytest.raises(WaitTimeout):  # the next run may register
        process.wait_for_resource(GPU)


def test_upgrade_ends_the_old_command_after_the_new_one_has_devices(
    make: Any, kubelet: Any, runs: list[Run]
) -> None:
    process = make().start()
    kubelet.events.publish("devices-updated", "before", resource=GPU)

    def registers() -> None:
        kubelet.events.publish("devices-updated", "other", resource="vendor.com/nic")
        assert runs[0].done == []
        kubelet.events.publish("devices-updated", "now", resource=GPU)

    kubelet.meanwhile = registers
    process.upgrade([Path("new/other"), "--x"], GPU)
    assert kubelet.waits == [(10.0, f"{GPU} from the new other")]
    assert (process.name, process.pid, process.starts) == ("other", 101, 2)
    assert runs[1].command == ["new/other", "--x"]
    assert (runs[0].done, runs[1].done) == (["terminate"], [])


def test_failed_upgrade_ends_the_new_command(make: Any, kubelet: Any, runs: list[Run]) -> None:
    process = make().start()
    kubelet.events.publish("devices-updated", "before", resource=GPU)
    with pytest.raises(WaitTimeout):
        process.upgrade(["other"], GPU, 3)
    assert kubelet.waits == [(3, f"{GPU} from the new other")]
    assert (process.name, process.pid, process.is_running) == ("plugin", 100, True)
    assert (runs[0].done, runs[1].done) == ([], ["end 10"])


def test_upgrade_whose_command_cannot_start_keeps_the_old_one(
    make: Any, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = make().start()

    def fail(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(Run, "start", fail)
    with pytest.raises(OSError, match=r"^no$"):
        process.upgrade(["other"], GPU)
    assert (process.name, process.pid, runs[0].done) == ("plugin", 100, [])


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "runs"),
        (0, "exited with status 0"),
        (1, "exited with status 1"),
        (-1, "was killed by SIGHUP"),
        (-9, "was killed by SIGKILL"),
    ],
)
def test_status_is_described(status: int | None, text: str) -> None:
    assert _how(status) == text


def test_last_lines_are_indented_and_printable() -> None:
    assert last_lines([]) == ""
    assert last_lines([str(number) for number in range(21)]).splitlines()[0] == "  | 1"
    assert len(last_lines(["x"] * 30).splitlines()) == 20
    assert "\x1b" not in last_lines(["\x1b[31m"])


def test_only_the_last_thousand_lines_are_kept(make: Any, runs: list[Run]) -> None:
    process = make().start()
    runs[0].output.extend(map(str, range(1001)))
    assert (len(process.output()), process.output()[0]) == (1000, "1")


def test_factory_waits_reports_and_stops(kubelet: Any, runs: list[Run]) -> None:
    other = Kubelet()
    other.plugin_dir = Path("/other")
    with PluginProcessFactory(kubelet) as factory:
        factory(["silent"])
        kubelet.counts = {GPU: 2}
        process = factory(["a/b"], GPU, 2, restart="always")
        runs[1].output.append("first")
        assert factory.report() == "b, started once\n  | first"
        runs[1].exit(1)
        assert (process.starts, factory.report()) == (2, "b, started 2 times\n  | first")
        factory(["{plugin_dir}"], kubelet=other)  # type: ignore[arg-type]
        assert runs[3].command == ["/other"]
        with pytest.raises(WaitTimeout):
            factory(["late"], GPU, 3)
        assert kubelet.waits.pop() == (10.0, f"3 devices of {GPU} from late")
        with pytest.raises(WaitTimeout):
            factory(["late"], GPU, 3, timeout=4)
        assert kubelet.waits.pop()[0] == 4
        runs[-1].output.append("last")
        assert factory.report().splitlines()[-2:] == ["late, started once", "  | last"]
    assert all(run.done == ["end 10"] for run in runs if run is not runs[1])
