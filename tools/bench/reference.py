"""The kubelet's own device manager beside ours: one Go plugin serves both, on one file
system, and each pod is admitted by both, one after the other.

Times of the real one are taken inside its process, from the topology manager's Admit to its
answer, which is all of a kubelet that has to be asked; ours from ``admit`` to its answer.
Both write a checkpoint that a crash leaves whole; neither flushes the directory.

In turns with both, the baseline of :mod:`tools.bench.baseline`: one Allocate through grpcio
and one write of our checkpoint's bytes. The real one's time by that is what the ratio would be
if all else took no time.
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

__all__ = ["CASES", "Beside", "compare", "table"]

_SAMPLES: Final = 300
"""Pods at least in a case; a small node is filled and emptied repeatedly."""
_CALLS: Final = 50
_PLUGIN_SOCKET: Final = "bench.sock"
_TIMEOUT: Final = 120.0


@attrs.frozen
class BesideCase:
    """A size and a policy, and the goals for the ratio of the medians."""

    devices: int
    pods: int
    policy: str = "none"
    nodes: int = 0
    goal: float | None = None
    lists: bool = False
    """Whether PodResources is asked, too, once all pods are there."""

    @property
    def name(self) -> str:
        """What is measured."""
        aligned = f", {self.policy}, {self.nodes} NUMA nodes" if self.nodes else ""
        return f"admission: {self.devices} devices, 0-{self.pods} pods{aligned}"


CASES: Final = (
    BesideCase(8, 8, goal=0.9, lists=True),
    BesideCase(110, 110, goal=1.3, lists=True),
    BesideCase(1000, 1000, goal=5, lists=True),
    BesideCase(5000, 1000),
    BesideCase(10_000, 1000, lists=True),
    BesideCase(5000, 5000, goal=15),
    BesideCase(1000, 1000, "single-numa-node", 2),
    BesideCase(1000, 1000, "best-effort", 8, goal=15),
)
"""The sizes of figures that are known of a node, from small to large."""


@attrs.frozen
class Beside:
    """One line: the times of both, in ms."""

    name: str
    real: Sequence[float]
    ours: Sequence[float]
    goal: float | None = None
    baseline: Sequence[float] = ()
    """What Python cannot do without, if that was measured."""

    @property
    def ratio(self) -> float:
        """Above 1 ours is quicker."""
        return median(self.real) / median(self.ours)

    @property
    def at_best(self) -> float | None:
        """The ratio if ours took no longer than the baseline."""
        return median(self.real) / median(self.baseline) if self.baseline else None


class _Go:
    """A Go process that answers a command a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line; the first comes unasked, once the process is ready."""
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference ended: {self._process.stderr.read()}")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise RuntimeError(f"the reference: {answer['error']}")
        return answer

    def milliseconds(self, command: dict[str, Any]) -> float:
        nanoseconds: int = self.ask(command)["ns"]
        return nanoseconds / 1e6


@contextlib.contextmanager
def _running(process: subprocess.Popen[str]) -> Iterator[_Go]:
    try:
        yield _Go(process)
    finally:
        process.kill()
        process.communicate()


def compare(
    release: str, cases: Sequence[BesideCase], tell: Callable[[str], None]
) -> Iterator[Beside]:
    """Every case in fresh processes. Raises BuildError if the real one cannot be built."""
    program = build(release)
    for case in cases:
        tell(case.name)
        yield from _measure(program, case)


def _measure(program: Path, case: BesideCase) -> Iterator[Beside]:
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


def _plugin(program: Path, case: BesideCase) -> subprocess.Popen[str]:
    command = [str(program), "plugin", RESOURCE, str(case.devices), str(case.nodes)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _await(done: Callable[[], bool]) -> None:
    deadline = now() + _TIMEOUT
    while not done():
        if now() > deadline:
            raise TimeoutError("the reference does not take in the plugin's list")
        time.sleep(0.01)


def admissions(case: BesideCase, kubelet: MockKubelet, real: _Go, baseline: Baseline) -> Beside:
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
            # Each comes after each other as often: what the real one's garbage collector still
            # does is nobody's in particular.
            for times, take in orders[number % len(orders)]:
                times.append(take())
            baseline.refresh()
        if turn + 1 < rounds:
            real.ask({"remove": list(range(turn * case.pods, (turn + 1) * case.pods))})
            kubelet.terminate(*(pod(number).uid for number in range(case.pods)))
    return Beside(case.name, theirs, ours, case.goal, least)


def _calls(case: BesideCase, plugin: _Go, call: str, sockets: tuple[Path, Path]) -> Beside:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(_CALLS + 1):
        for which, socket in enumerate(sockets):
            taken = plugin.milliseconds({"call": call, "socket": str(socket)})
            if number:  # the first one connects
                times[which].append(taken)
    return Beside(f"{call}: {case.devices} devices, {case.pods} pods", *times)


def table(lines: Sequence[Beside], release: str) -> str:
    """For people."""
    title = (
        f"ms, p50: the device manager of Kubernetes {release} and ours; ratio: real / ours; "
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


def _met(line: Beside) -> str:
    assert line.goal is not None
    return "met" if line.ratio >= line.goal else "missed"
