"""Compare the mock kubelet with the kubelet's real device manager.

One Go plugin serves both, and both use one file system. Each pod is admitted by both, alternately.
The real device manager is timed inside its process, around the topology manager's Admit, and the
mock around ``admit``. Both flush the checkpoint before the rename, and neither flushes the
directory.

The baseline of :mod:`tools.bench.baseline` is measured for each pod, too: one Allocate call through
grpcio and one write of the mock's checkpoint. The best possible ratio is the time of the real
device manager divided by that of the baseline.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any, Final

import attrs

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from tools.bench.baseline import Baseline
from tools.bench.clock import now, timed
from tools.bench.environment import admit, pod, topology
from tools.bench.plugin import RESOURCE
from tools.differential.building import build
from tools.differential.reference import launch

_SAMPLES: Final = 300
"""Minimum number of admissions per case. Small nodes are filled repeatedly."""
_CALLS: Final = 50
_PLUGIN_SOCKET: Final = "bench.sock"
_TIMEOUT: Final = 120.0


@attrs.frozen
class ReferenceCase:
    """Size and topology policy of a node, and the goal for the ratio of the medians."""

    devices: int
    pods: int
    policy: str = "none"
    nodes: int = 0
    goal: float | None = None
    lists: bool = False
    """True if PodResources calls are measured after all admissions."""

    @property
    def name(self) -> str:
        """Name of the table row."""
        aligned = f", {self.policy}, {self.nodes} NUMA nodes" if self.nodes else ""
        return f"admission: {self.devices} devices, 0-{self.pods} pods{aligned}"


CASES: Final = (
    ReferenceCase(8, 8, goal=0.9, lists=True),
    ReferenceCase(110, 110, goal=1.3, lists=True),
    ReferenceCase(1000, 1000, goal=5, lists=True),
    ReferenceCase(5000, 1000),
    ReferenceCase(10_000, 1000, lists=True),
    ReferenceCase(5000, 5000, goal=15),
    ReferenceCase(1000, 1000, "single-numa-node", 2),
    ReferenceCase(1000, 1000, "best-effort", 8, goal=15),
)
"""Typical sizes of nodes, from small to large."""


@attrs.frozen
class Comparison:
    """Row of the table: times of the real device manager and of the mock, in ms."""

    name: str
    real: Sequence[float]
    ours: Sequence[float]
    goal: float | None = None
    baseline: Sequence[float] = ()
    """Times of the baseline in ms; empty if it was not measured."""

    @property
    def ratio(self) -> float:
        """Median time of the real device manager divided by that of the mock. Above 1, the mock is
        faster."""
        return median(self.real) / median(self.ours)

    @property
    def at_best(self) -> float | None:
        """Median time of the real device manager divided by that of the baseline: the best possible
        ratio. None without a baseline."""
        return median(self.real) / median(self.baseline) if self.baseline else None


class _GoProcess:
    """Go process that responds to each command line with a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Read one line of output. When the process is ready, it prints a first line without a
        command."""
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Go process exited: {self._process.stderr.read()}")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise RuntimeError(f"error of the Go process: {answer['error']}")
        return answer

    def milliseconds(self, command: dict[str, Any]) -> float:
        nanoseconds: int = self.ask(command)["ns"]
        return nanoseconds / 1e6


@contextlib.contextmanager
def _running(process: subprocess.Popen[str]) -> Iterator[_GoProcess]:
    try:
        yield _GoProcess(process)
    finally:
        process.kill()
        process.communicate()


def compare(
    release: str, cases: Sequence[ReferenceCase], on_case: Callable[[str], None]
) -> Iterator[Comparison]:
    """Measure each case in new processes and yield its rows. Raises BuildError if the Go program
    cannot be built."""
    program = build(release)
    for case in cases:
        on_case(case.name)
        yield from _measure(program, case)


def _measure(program: Path, case: ReferenceCase) -> Iterator[Comparison]:
    settings = Settings(
        topology_policy=case.policy, numa=topology(case.nodes or 1), pod_resources_qps=None
    )
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp")))
        directory, socket = root / "real", root / "real.sock"
        directory.mkdir()
        kubelet = stack.enter_context(MockKubelet(root / "ours", settings=settings))
        real = stack.enter_context(_running(launch(program, directory, "bench")))
        node = {
            "numa_nodes": list(range(case.nodes or 1)),
            "policy": case.policy,
            "resource": RESOURCE,
            "pod_resources": str(socket),
        }
        real.ask(node)
        plugin = stack.enter_context(_running(_plugin(program, case)))
        plugin.answer()
        for each in (directory, kubelet.plugin_dir):
            plugin.ask({"register": str(each)})
        kubelet.wait_for_resource(RESOURCE, case.devices, timeout=_TIMEOUT)
        _await(lambda: real.ask({"allocatable": True})["count"] == case.devices)
        with Baseline(kubelet.plugin_dir / _PLUGIN_SOCKET, kubelet.checkpoint_path) as baseline:
            yield admissions(case, kubelet, real, baseline)
        if case.lists:
            sockets = (socket, kubelet.pod_resources_socket)
            for call in ("List", "GetAllocatableResources"):
                yield _calls(case, plugin, call, sockets)


def _plugin(program: Path, case: ReferenceCase) -> subprocess.Popen[str]:
    command = [str(program), "plugin", RESOURCE, str(case.devices), str(case.nodes)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _await(is_done: Callable[[], bool]) -> None:
    deadline = now() + _TIMEOUT
    while not is_done():
        if now() > deadline:
            raise TimeoutError(
                "the real device manager did not process the plugin's device list in time"
            )
        time.sleep(0.01)


def admissions(
    case: ReferenceCase, kubelet: MockKubelet, real: _GoProcess, baseline: Baseline
) -> Comparison:
    """Admit each pod with the real device manager and the mock, and run the baseline. The order
    changes from pod to pod."""
    theirs: list[float] = []
    ours: list[float] = []
    least: list[float] = []
    rounds = max(1, _SAMPLES // case.pods)
    for turn in range(rounds):
        for number in range(case.pods):
            turns = (
                (theirs, partial(real.milliseconds, {"admit": turn * case.pods + number})),
                (ours, partial(timed, partial(admit, kubelet, pod(number)))),
                (least, partial(timed, baseline.both)),
            )
            orders = tuple(permutations(turns))
            # Use all orders equally often: Go's garbage collector still runs after the real
            # admission and slows down what follows.
            for times, take in orders[number % len(orders)]:
                times.append(take())
            # The checkpoint has grown: the baseline must write the new contents next time.
            baseline.refresh()
        if turn + 1 < rounds:
            real.ask({"remove": list(range(turn * case.pods, (turn + 1) * case.pods))})
            kubelet.terminate(*(pod(number).uid for number in range(case.pods)))
    return Comparison(case.name, theirs, ours, case.goal, least)


def _calls(
    case: ReferenceCase, plugin: _GoProcess, call: str, sockets: tuple[Path, Path]
) -> Comparison:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(_CALLS + 1):
        for which, socket in enumerate(sockets):
            taken = plugin.milliseconds({"call": call, "socket": str(socket)})
            if number:  # the first call includes the time to connect
                times[which].append(taken)
    return Comparison(f"{call}: {case.devices} devices, {case.pods} pods", *times)


def table(lines: Sequence[Comparison], release: str) -> str:
    """Return the rows as an aligned table."""
    title = (
        f"ms, p50: the device manager of Kubernetes {release} and the mock; ratio: real / mock; "
        "at best: real / (Allocate through grpcio + the write)"
    )
    width = max(len(line.name) for line in lines)
    shown = [f"{'':{width}}  {'real':>8}  {'ours':>8}  {'ratio':>6}  {'at best':>7}  goal"]
    for line in lines:
        goal = "" if line.goal is None else f">= {line.goal:g} {_met(line)}"
        best = "" if line.at_best is None else f"{line.at_best:.2f}"
        shown.append(
            f"{line.name:{width}}  {median(line.real):8.2f}  {median(line.ours):8.2f}  "
            f"{line.ratio:6.2f}  {best:>7}  {goal}".rstrip()
        )
    return "\n".join((title, *shown))


def _met(line: Comparison) -> str:
    assert line.goal is not None
    return "met" if line.ratio >= line.goal else "missed"
