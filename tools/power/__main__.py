"""``python -m tools.power``: record file operations, and simulate a power failure after each.

These are the promises of the durability levels for a failure at any moment:

1. ``process``: if the process is killed, the file has all confirmed allocations.
2. ``kubelet``: if power is lost, the file is undamaged, but it can be an older one.
3. ``power``: if power is lost, the file has all confirmed allocations.

At every level, no device is allocated twice. ``claims`` has the promises for the state file of the
DRA manager.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import checkpoint
from checkpoint import Durability
from devicemanager import MockKubelet, Settings
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from tools.harness.command import Run, parser
from tools.harness.model import Broken, Confirmed, Devices, devices, devices_on_disk
from tools.power import claims
from tools.power.disk import Files, Mark, Operation, moments
from tools.power.recording import Recording, recording

RESOURCE: Final = "example.com/device"
THREADS: Final = 3
_DEVICES: Final = 64
_MAX_PODS: Final = 8
_TIMEOUT: Final = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and simulate failures. Return 0 if every promise was kept, else 1."""
    options = parser(
        "power",
        "Simulate a power failure after every file operation, and check the files.",
        rounds=(10, "rounds per level"),
        admissions=(120, "admissions per round"),
        seed=(1, "seed of the first round"),
    )
    options.add_argument(
        "--level",
        action="append",
        choices=list(Durability),
        metavar="LEVEL",
        help="durability level to check; repeatable (all)",
    )
    chosen = options.parse_args(arguments)
    run, total = Run("power", chosen.seed), 0
    with run.recording_problems():
        for level in map(Durability, chosen.level or Durability):
            operations = left = 0
            for seed in range(chosen.seed, chosen.seed + chosen.rounds):
                run.seed = seed  # the verdict names the round that fails
                done = recorded(level, chosen.admissions, seed)
                operations += len(done.operations)
                left += check(level, done.start, done.operations, Confirmed())
                of_claims = claims.recorded(level, chosen.admissions, seed)
                operations += len(of_claims.operations)
                left += claims.check(level, of_claims.start, of_claims.operations)
            what = "process kills" if level is Durability.PROCESS else "power failures"
            total += operations
            run.say(
                f"power: {level}: {chosen.rounds * chosen.admissions} admissions and calls of the "
                f"DRA manager each, {what} after each of {operations} operations, {left} "
                "different outcomes: all promises kept"
            )
        run.seed = chosen.seed
    return run.finish(f"{total} operations", "all promises kept")


# -- the load ----------------------------------------------------------------------------


def recorded(level: Durability, admissions: int, seed: int) -> Recording:
    """Record the file operations of a kubelet that admits and terminates pods, with a restart in
    the middle."""
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


@contextmanager
def _node(level: Durability) -> Iterator[tuple[MockKubelet, Recording]]:
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as root:
        kubelet = MockKubelet(root, Settings(durability=level))
        # Create the directory before the kubelet starts, because its first operations are recorded,
        # too.
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
        if mine and choice.random() < len(mine) / _MAX_PODS:
            uid = mine.pop(choice.randrange(len(mine)))
            recorder.mark("ending", uid)
            kubelet.terminate(uid)
            recorder.mark("ended", uid)
        uid = f"{name}-{number}"
        wants = {RESOURCE: choice.randint(1, 2)}
        admission = kubelet.admit(pod_manifest(f"pod-{uid}", wants, uid=uid))
        if admission.admitted:
            recorder.mark("allocated", uid, devices(admission.containers["main"].devices))
            mine.append(uid)


# -- the promises ------------------------------------------------------------------------


def check(
    level: str, start: Mapping[str, bytes], operations: Sequence[Operation], confirmed: Confirmed
) -> int:
    """Simulate a power failure at every moment, and return the number of different outcomes.

    Raises Broken for the first outcome that breaks a promise of the level. ``confirmed`` is the
    state at the start and is updated.
    """
    checked: set[tuple[bytes | None, int, int]] = set()
    for moment, disk in enumerate(moments(start, operations)):
        if moment and isinstance(mark := operations[moment - 1], Mark):
            confirmed.add(mark.what, mark.uid, mark.devices)
        for left in [disk.seen()] if level == "process" else disk.lost():
            file = left.get(checkpoint.CHECKPOINT_NAME)
            # The same contents are checked again only if the kubelet has confirmed more allocations
            # since.
            key = (file, len(confirmed.allocated), len(confirmed.ended))
            if key not in checked:
                checked.add(key)
                if problem := next(_broken(level, left, confirmed), None):
                    after = operations[moment - 1] if moment else "the start"
                    raise Broken(f"{level}: power lost after {after!r:.120}: {problem}")
    return len(checked)


def _broken(level: str, left: Files, confirmed: Confirmed) -> Iterator[str]:
    try:
        on_disk = read_devices(left)
    except checkpoint.CheckpointError as error:
        yield f"the checkpoint is damaged: {error}"
    except Broken as broken:
        yield str(broken)
    else:
        if level != "kubelet":
            yield from confirmed.problems(on_disk)


def read_devices(files: Files) -> dict[str, Devices]:
    """Return the devices of each pod in the checkpoint; empty if there is no checkpoint.

    Raises CheckpointError, or Broken if a device is allocated twice.
    """
    data = files.get(checkpoint.CHECKPOINT_NAME)
    return {} if data is None else devices_on_disk(checkpoint.loads(data))


if __name__ == "__main__":
    sys.exit(main())
