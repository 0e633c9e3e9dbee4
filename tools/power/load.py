"""Record the file operations of a kubelet under load."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from checkpoint import Durability
from devicemanager import MockKubelet, Settings
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from tools.power.promises import Confirmed, check
from tools.power.recording import Recording, recording

RESOURCE: Final = "example.com/device"
THREADS: Final = 3
_DEVICES: Final = 64
_MOST_PODS: Final = 8
_TIMEOUT: Final = 30.0


def recorded(level: Durability, admissions: int, seed: int) -> Recording:
    """Record a kubelet that admits and terminates pods, with a restart in the middle."""
    with _node(level) as (kubelet, recorder):
        for half in range(2):
            with ThreadPoolExecutor(THREADS) as pool:
                each = admissions // (2 * THREADS) or 1
                work = [
                    pool.submit(_churn, kubelet, recorder, f"{half}-{thread}", each, seed)
                    for thread in range(THREADS)
                ]
                for done in work:
                    done.result()
            if not half:
                kubelet.restart()
                kubelet.wait_for_resource(RESOURCE, _DEVICES, _TIMEOUT)
        return recorder


def round_of(level: Durability, admissions: int, seed: int) -> tuple[int, int]:
    """Record and check one load; return the number of operations and of outcomes. Raises
    Broken."""
    done = recorded(level, admissions, seed)
    return len(done.operations), check(level, done.start, done.operations, Confirmed())


@contextmanager
def _node(level: Durability) -> Iterator[tuple[MockKubelet, Recording]]:
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as root:
        kubelet = MockKubelet(root, Settings(durability=level))
        kubelet.plugin_dir.mkdir(mode=0o750)
        simulation = SimulationSettings(
            resource_name=RESOURCE, number_devices=_DEVICES, node_name="node"
        )
        with (
            recording(Path(kubelet.plugin_dir)) as recorder,
            kubelet,
            SimulatedPlugin(simulation, kubelet.plugin_dir),
        ):
            kubelet.wait_for_resource(RESOURCE, _DEVICES, _TIMEOUT)
            yield kubelet, recorder


def _churn(kubelet: MockKubelet, recorder: Recording, name: str, count: int, seed: int) -> None:
    choice, mine = random.Random(f"{seed}-{name}"), list[str]()
    for number in range(count):
        if mine and choice.random() < len(mine) / _MOST_PODS:
            uid = mine.pop(choice.randrange(len(mine)))
            recorder.mark("ending", uid)
            kubelet.terminate(uid)
            recorder.mark("ended", uid)
        uid = f"{name}-{number}"
        wants = {RESOURCE: choice.randint(1, 2)}
        admission = kubelet.admit(pod_manifest(f"pod-{uid}", wants, uid=uid))
        if admission.admitted:
            devices = sorted(admission.containers["main"].devices[RESOURCE])
            recorder.mark("allocated", uid, devices)
            mine.append(uid)
