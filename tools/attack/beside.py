"""An attacker in a process of its own, beside a good plugin."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import psutil

from tools.attack.model import Attack, Limits, Outcome, Target
from tools.attack.probe import DEVICES, Probe
from tools.attack.requests import Helper, RequestFailed
from tools.attack.watch import Watch

HOSTILE = "hostile.example.com/device"
"""What the attacker's plugin offers, where it has one."""
_NICE = 10
"""The attack is meant for the kubelet, not for the machine's processors."""
_AFTERWARDS = 2.0
_CALM_ROUNDS = 5
_MOST_ROUNDS = 100


@attrs.frozen
class Scene:
    """What is special about a kubelet that is attacked, and its good plugin."""

    settings: Mapping[str, object] = attrs.field(factory=dict)
    devices: int = DEVICES
    id_length: int = 0
    """Ids of the good plugin's devices are filled up to so many bytes."""
    descriptors: int | None = None
    """How many the kubelet's process may have."""
    pods: int = 0
    """How many pods ask for a device of the attacker's plugin meanwhile."""
    comes: str = "register"
    """How the good plugin comes: it registers, or waits to be found (``announce``)."""
    serves: str = ""
    """What the kubelet serves besides: the API (``control``), or ``http`` with that."""
    seconds: float = 90.0
    """When the attacker is ended, if it does not end by itself."""


def beside(
    name: str,
    about: str,
    hostile: Callable[[Target], None],
    limits: Limits | None = None,
    **scene: Any,
) -> Attack:
    """An attack by ``hostile``, which runs in the attacker's process."""
    run = partial(_run, name, Scene(**scene))
    return Attack(name, about, run, limits or Limits(), hostile)


def _run(name: str, scene: Scene) -> Outcome:
    settings = json.dumps(scene.settings)
    with directory() as root, Helper("tools.attack.node", root, settings, scene.serves) as node:
        if scene.descriptors is not None:
            limit = (scene.descriptors, scene.descriptors)
            psutil.Process(node.process.pid).rlimit(psutil.RLIMIT_NOFILE, limit)
        plugins = Target(root).plugin_dir
        with Helper("tools.attack.good", plugins, scene.devices, scene.id_length) as good:
            return _attack(name, scene, root, node, good)


def _attack(name: str, scene: Scene, root: Path, node: Helper, good: Helper) -> Outcome:
    warm = Probe(node, good, scene.devices, scene.comes)
    _settle(warm, psutil.Process(node.process.pid))
    with Watch(node.process.pid) as watch:
        with Probe(node, good, scene.devices, scene.comes) as probe:
            problems = _attacked(name, scene, root, node)
        time.sleep(_AFTERWARDS)
        probe.once()
    try:
        node.ask("check", timeout=60.0)
    except RequestFailed as error:
        problems.append(f"afterwards: {error}")
    problems += _summary([f"on standard error: {line}" for line in node.noise() if _is_ours(line)])
    after = watch.now()
    return Outcome(
        registration=probe.registration,
        admission=probe.admission,
        memory=watch.peak.memory - watch.before.memory,
        kept=after.memory - watch.before.memory,
        threads=watch.peak.threads - watch.before.threads,
        descriptors=watch.peak.descriptors - watch.before.descriptors,
        problems=(*warm.problems, *_summary(probe.problems), *problems),
    )


def _settle(probe: Probe, node: psutil.Process) -> None:
    """Let the good plugin come and go until that takes no more memory: what it needs by itself
    is not the attack's."""
    highest = calm = 0
    for _ in range(_MOST_ROUNDS):
        probe.once()
        memory = node.memory_info().rss
        calm = calm + 1 if memory <= highest else 0
        highest = max(highest, memory)
        if calm == _CALM_ROUNDS:
            return


def _attacked(name: str, scene: Scene, root: Path, node: Helper) -> list[str]:
    """Let the attacker do its work; what went wrong with that."""
    command = [sys.executable, "-m", "tools.attack.attacker", name, str(root)]
    command = ["nice", "-n", str(_NICE), *command]
    limit = time.monotonic() + scene.seconds
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        try:
            if scene.pods:
                _admit(node, scene.pods, limit)
            code = attacker.wait(max(0.1, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            return []
        except RequestFailed as error:
            return [f"hostile pods: {error}"]
        finally:
            attacker.kill()
    return [f"the attacker itself failed with {code}"] if code else []


def _admit(node: Helper, pods: int, limit: float) -> None:
    """Admit pods of the attacker's plugin, one after the other; a rejection is no trouble."""
    node.ask("wait", HOSTILE, pods, 60.0, timeout=70.0)
    for number in range(pods):
        if (rest := limit - time.monotonic()) <= 0:
            return
        future = node.begin("admit", f"hostile-{number}", HOSTILE, 1)
        try:
            future.result(rest)
        except (RequestFailed, TimeoutError):
            continue


def _is_ours(line: str) -> bool:
    """Whether a line on standard error is the end of a traceback, or its beginning."""
    return "Error: " in line or line.startswith("Traceback")


def _summary(problems: list[str]) -> Iterator[str]:
    """Each kind of trouble once, with how often it came."""
    for problem in dict.fromkeys(problems):
        times = problems.count(problem)
        yield problem if times == 1 else f"{problem} ({times} times)"


@contextmanager
def directory() -> Iterator[Path]:
    """One for a kubelet, short enough for sockets, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="dm-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def raise_descriptors() -> None:
    """As many descriptors for this process as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
