"""Run an attacker in a separate process while a good plugin on the same kubelet is probed.

``python -m tools.attack.beside NAME ROOT`` runs the attacker.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Any, Self

import attrs
import psutil

from tools.attack.drivers import HOSTILE_DRIVER
from tools.attack.model import Hostile, Limits, Outcome, Target, attack
from tools.attack.plugins import HOSTILE
from tools.harness.driver import DRIVER, driver_process
from tools.harness.plugin import RESOURCE, plugin_process
from tools.harness.process import HelperProcess, RequestFailed, exit_now, short_directory
from tools.harness.usage import Watch

_DEVICES = 8
_NICE = 10
_AFTERWARDS = 2.0
_STABLE_ROUNDS = 5
_MAX_ROUNDS = 100
_PAUSE = 0.05
_TIMEOUT = 150.0
_REQUESTED = ("api", "nodes")
"""Servers to which each probe sends a request."""
_SECONDS = 240.0
"""Seconds after which an attacker is killed. Most end much earlier, but on a busy machine an
attacker may need a minute for its connections."""


@attrs.frozen
class Scene:
    """Settings of an attack: the attacked kubelet, its good plugin and the load."""

    settings: Mapping[str, object] = attrs.field(factory=dict)
    devices: int = _DEVICES
    id_length: int = 0
    """Minimum length of the good plugin's device IDs."""
    descriptors: int | None = None
    """Limit of file descriptors for the kubelet's process; None for no limit."""
    pods: int = 0
    """Number of pods that request a device of the attacker's plugin during the attack, or with
    ``claims`` a ResourceClaim of its driver."""
    claims: bool = False
    """True if a good DRA driver also runs, and each probe prepares a ResourceClaim for this
    driver."""
    comes: str = "register"
    """How the good plugin registers: ``register`` calls Register, ``announce`` creates a socket in
    plugins_registry."""
    serves: str = ""
    """Additional server of the kubelet: ``control`` for the control API, ``http`` for HTTP and the
    control API, ``api`` for an API server, ``nodes`` for an HTTP server of many nodes, or ``nri``
    for an NRI runtime. Each probe sends a request to ``api`` or ``nodes``."""


def beside(
    name: str, about: str, limits: Limits | None = None, **scene: Any
) -> Callable[[Hostile], Hostile]:
    """Register the decorated function as an attack. The function runs in the attacker's process."""

    def register(hostile: Hostile) -> Hostile:
        attack(name, about, limits, hostile)(partial(_run, name, Scene(**scene)))
        return hostile

    return register


class Probe:
    """Thread that registers the good plugin and admits a pod, repeatedly, during a ``with`` block.

    It records the longest times in seconds. ``problems`` has a text for each failure.
    """

    def __init__(self, node: HelperProcess, good: HelperProcess, scene: Scene) -> None:
        self._node, self._good, self._scene = node, good, scene
        self._numbers = itertools.count()
        self.registration = self.admission = 0.0
        self.problems: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="probe")

    def once(self) -> None:
        """Make one registration and one admission, and with ``claims`` one preparation."""
        self.registration = max(self.registration, self._timed("registration", self._register))
        self.admission = max(self.admission, self._timed("admission", self._admit))
        if self._scene.serves in _REQUESTED:
            self.admission = max(self.admission, self._timed("request", self._request))
        if self._scene.claims:
            # A preparation counts as an admission: the pod's containers wait for it.
            self.admission = max(self.admission, self._timed("preparation", self._prepare))

    def _timed(self, what: str, act: Callable[[], object]) -> float:
        begin = time.monotonic()
        try:
            act()
        except RequestFailed as error:
            self.problems.append(f"a good {what} failed: {error}")
        return time.monotonic() - begin

    def _register(self) -> None:
        self._good.ask(self._scene.comes, timeout=_TIMEOUT)
        self._node.ask("wait", RESOURCE, self._scene.devices, _TIMEOUT, timeout=_TIMEOUT)

    def _admit(self) -> None:
        uid = f"good-{next(self._numbers)}"
        self._node.ask("admit", uid, RESOURCE, 1, timeout=_TIMEOUT)
        # Do not wait for the termination: its time is not measured.
        self._node.begin("terminate", uid)

    def _request(self) -> None:
        self._node.ask("request", timeout=_TIMEOUT)

    def _prepare(self) -> None:
        uid = f"good-{next(self._numbers)}"
        self._node.ask("prepare", uid, DRIVER, timeout=_TIMEOUT)
        self._node.begin("end", uid)

    def _work(self) -> None:
        while not self._end.wait(_PAUSE):
            self.once()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def _run(name: str, scene: Scene) -> Outcome:
    settings = json.dumps(scene.settings)
    with (
        short_directory() as root,
        HelperProcess("tools.attack.node", root, settings, scene.serves) as node,
    ):
        if scene.descriptors is not None:
            limit = (scene.descriptors, scene.descriptors)
            psutil.Process(node.process.pid).rlimit(psutil.RLIMIT_NOFILE, limit)
        plugin = plugin_process(Target(root).plugin_dir, scene.devices, scene.id_length)
        driver = driver_process(root) if scene.claims else contextlib.nullcontext()
        with plugin as good, driver:
            return _attack(name, scene, root, node, good)


def _attack(
    name: str, scene: Scene, root: Path, node: HelperProcess, good: HelperProcess
) -> Outcome:
    warm = Probe(node, good, scene)
    _settle(warm, psutil.Process(node.process.pid))
    with Watch(node.process.pid) as watch:
        with Probe(node, good, scene) as probe:
            problems = _attacked(name, scene, root, node)
        time.sleep(_AFTERWARDS)
        # The attack is over: now everything must work again.
        probe.once()
    try:
        node.ask("check", timeout=60.0)
    except RequestFailed as error:
        problems.append(f"afterwards: {error}")
    errors = [line for line in node.errors() if "Error: " in line or line.startswith("Traceback")]
    problems += _counted([f"on standard error: {line}" for line in errors])
    return Outcome.measured(
        watch.peak - watch.before,
        registration=probe.registration,
        admission=probe.admission,
        kept=watch.now().memory - watch.before.memory,
        problems=(*warm.problems, *_counted(probe.problems), *problems),
    )


def _settle(probe: Probe, node: psutil.Process) -> None:
    """Probe until memory no longer grows, so that memory for the good plugin does not count as an
    effect of the attack."""
    highest = stable = 0
    for _ in range(_MAX_ROUNDS):
        probe.once()
        memory = node.memory_info().rss
        stable = stable + 1 if memory <= highest else 0
        highest = max(highest, memory)
        if stable == _STABLE_ROUNDS:
            return


def _attacked(name: str, scene: Scene, root: Path, node: HelperProcess) -> list[str]:
    """Run the attacker and return problems of the attacker itself."""
    command = [sys.executable, "-m", "tools.attack.beside", name, str(root)]
    limit = time.monotonic() + _SECONDS
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        try:
            if scene.claims:
                _prepare(node, scene.pods, limit)
            elif scene.pods:
                _admit(node, scene.pods, limit)
            code = attacker.wait(max(0.1, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            # Without its last steps, an attack proves nothing.
            raise RequestFailed(f"the attacker was killed after {_SECONDS:g} s") from None
        except RequestFailed as error:
            return [f"hostile pods: {error}"]
        finally:
            attacker.kill()
    return [f"the attacker failed with exit status {code}"] if code else []


def _admit(node: HelperProcess, pods: int, limit: float) -> None:
    """Admit pods that use the attacker's plugin, one after another. A rejection is not a
    problem."""
    node.ask("wait", HOSTILE, pods, 60.0, timeout=70.0)
    for number in range(pods):
        if (rest := limit - time.monotonic()) <= 0:
            return
        future = node.begin("admit", f"hostile-{number}", HOSTILE, 1)
        try:
            future.result(rest)
        except (RequestFailed, TimeoutError):
            continue


def _prepare(node: HelperProcess, pods: int, limit: float) -> None:
    """Admit pods with a claim of the attacker's driver, all at once. A failure is not a problem."""
    if pods:
        node.ask("wait_for_driver", HOSTILE_DRIVER, timeout=70.0)
    futures = [node.begin("prepare", f"hostile-{n}", HOSTILE_DRIVER) for n in range(pods)]
    wait(futures, max(0.0, limit - time.monotonic()))


def _counted(problems: list[str]) -> Iterator[str]:
    """Yield each distinct problem once, with the number of its occurrences."""
    for problem in dict.fromkeys(problems):
        times = problems.count(problem)
        yield problem if times == 1 else f"{problem} ({times} times)"


def good_registration(root: Path, timeout: float) -> tuple[float | None, list[str]]:
    """Register a good plugin with a kubelet. Return the seconds and a list of problems. If the
    registration fails, the seconds are None."""
    with plugin_process(Target(root).plugin_dir, _DEVICES) as good:
        try:
            return good.ask("register", timeout=timeout).seconds, []
        except RequestFailed as error:
            return None, [f"a good registration failed: {error}"]


def main(arguments: Sequence[str]) -> None:
    """Run the attack with the name in the arguments against the kubelet in the directory."""
    # Imported here: the registry imports modules that import this module.
    from tools.attack.registry import attacks

    name, root = arguments
    (chosen,) = (each for each in attacks() if each.name == name)
    assert chosen.hostile is not None, f"attack {name} has no function for an attacker's process"
    # Many attacks open thousands of connections, so raise the limit of descriptors.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Not earlier: on a busy machine, the imports would use up the time of the attack.
    os.nice(_NICE)
    chosen.hostile(Target(Path(root)))


if __name__ == "__main__":
    main(sys.argv[1:])
    # Calls without a response must not delay the exit of the process.
    exit_now()
