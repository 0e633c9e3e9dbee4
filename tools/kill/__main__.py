"""``python -m tools.kill``: SIGKILL a kubelet under load at random moments.

After each kill, the checkpoint and the state files of claims must load. They must contain the
devices of each admission that was reported, and no device twice. They must also contain each
ResourceClaim that the DRA driver has prepared. The next kubelet starts in the
same directory, and every pod must have the same devices as before.
"""

from __future__ import annotations

import json
import logging
import os
import random
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import attrs

import checkpoint
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.directories import CLAIMS_STATE_NAME
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from tools.harness.command import Run, parser
from tools.harness.model import Broken, Confirmed, devices, devices_on_disk
from tools.harness.process import short_directory
from tools.kill.claims import claims_on_disk
from tools.kill.dra import DRIVER, NUMBER_DEVICES, PREFIX, claim, dra_on_disk
from tools.kill.node import RESOURCES, Wants

DEVICES = 64
_AT_START = 0.15
"""Fraction of kills that happen while the kubelet starts."""
_START_SECONDS = 0.8
# The other kills follow a number of reported admissions and a short pause. So they hit the same
# moments on a busy and on an idle machine.
_MAX_ANSWERS, _MAX_PAUSE = 20, 0.01
_TIMEOUT = 60.0


@attrs.define
class CrashRecord(Confirmed):
    """Record of what the kubelet processes have reported, one process after another."""

    answered: int = 0
    with_dra: int = 0
    """Number of reported admissions with ResourceClaims."""
    readmitted: int = 0
    is_ready: bool = False

    def begin(self) -> dict[str, Wants]:
        """Begin with a new process. Return the devices that each of its pods requests, by UID."""
        # Decide now about pods in the states *ending* and *ended*: the next process has exactly the
        # pods with allocations.
        self.ending.clear()
        self.ended.clear()
        self.is_ready = False
        return {
            uid: dict(Counter(device.rpartition(" ")[0] for device in found))
            for uid, found in self.allocated.items()
        }

    def take(self, line: bytes) -> None:
        """Add a report of ``node``. Raises Broken if a pod has other devices than before the
        restart."""
        match json.loads(line):
            case ["ready"]:
                self.is_ready = True
            case ["readmitted", uid, found]:
                self.readmitted += 1
                if (after := devices(found)) != (before := self.allocated[uid]):
                    raise Broken(
                        f"pod {uid} had {sorted(before)} before the restart, now {sorted(after)}"
                    )
            case ["allocated", uid, found]:
                self.answered += 1
                self.with_dra += any(name.startswith(PREFIX) for name in found)
                self.add("allocated", uid, devices(found))
            case [what, uid]:
                self.add(what, uid)

    def compare(self, root: Path, prepared: Collection[str]) -> None:
        """Raise Broken if the checkpoint or a state file of claims contradicts the reports.

        ``prepared`` are the UIDs of the claims that the DRA driver has prepared.
        """
        path = root / "device-plugins" / checkpoint.CHECKPOINT_NAME
        try:
            on_disk = devices_on_disk(checkpoint.load(path))
        except checkpoint.CheckpointNotFound:
            on_disk = {}  # correct if no admission was reported, which is checked below
        except checkpoint.CheckpointError as error:
            raise Broken(str(error)) from error
        of_claims = claims_on_disk(root / CLAIMS_STATE_NAME), dra_on_disk(root, prepared)
        for uid, found in chain.from_iterable(each.items() for each in of_claims):
            on_disk[uid] = on_disk.get(uid, frozenset()) | found
        for problem in self.problems(on_disk):
            raise Broken(problem)


class _Kubelet:
    """Kubelet process, from its start until it is killed."""

    def __init__(self, root: Path, name: str, seed: int, record: CrashRecord) -> None:
        self._record = record
        self._root = root
        self._log = (root / "node.log").open("w+")
        command = [sys.executable, "-m", "tools.kill.node"]
        command += ["--root", str(root), "--name", name, "--seed", str(seed)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._rest = b""
        with self._process.stdin as stdin:
            stdin.write(json.dumps(record.begin()).encode() + b"\n")

    def wait_until_ready(self) -> None:
        """Read reports until the kubelet is ready. Raises Broken on timeout."""
        self.read(_TIMEOUT, lambda: self._record.is_ready)
        if not self._record.is_ready:
            raise Broken("the kubelet was not ready before the timeout")
        self._check_temporary_files()

    def wait_for_answers(self, count: int) -> None:
        """Read reports until ``count`` more admissions were reported. Raises Broken on timeout."""
        wanted = self._record.answered + count
        self.read(_TIMEOUT, lambda: self._record.answered >= wanted)
        if self._record.answered < wanted:
            raise Broken(f"the kubelet did not complete {count} admissions before the timeout")

    def read(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Read reports until ``until()`` is true, or for ``seconds``. Raises Broken if the process
        exits."""
        limit = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            # The process must never exit by itself. Therefore the end of its output is an error.
            while not until() and (rest := limit - time.monotonic()) > 0:
                if selector.select(rest) and not self._take():
                    raise Broken(f"the kubelet exited: {self._last_line()}")

    def kill(self) -> None:
        """Send SIGKILL, then read the reports that the process wrote before."""
        self._process.kill()
        self._process.wait()
        # The pipe outlives the process, so no report from before the kill is lost.
        while self._take():
            pass

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _take(self) -> bytes:
        data = os.read(self._out, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._record.take(line)
        return data

    def _last_line(self) -> str:
        self._log.seek(0)
        return (self._log.read().strip().splitlines() or ["no message"])[-1]

    def _check_temporary_files(self) -> None:
        """Raise Broken if the start has not removed temporary files of killed processes."""
        # Ignore temporary files of the running process, which may be writing.
        mine = f".tmp-{self._process.pid}-"
        files = [*self._root.iterdir(), *(self._root / "device-plugins").iterdir()]
        left = [path.name for path in files if ".tmp-" in path.name and mine not in path.name]
        if left:
            raise Broken(f"the kubelet did not remove the temporary file {left[0]} at its start")


def run(times: int, seed: int) -> CrashRecord:
    """Kill ``times`` kubelets and return the record. Raises Broken at the first broken promise."""
    choice, record = random.Random(seed), CrashRecord()
    with short_directory() as root, ExitStack() as plugins:
        (root / "device-plugins").mkdir()
        # The plugins run in this process. They survive each kill, and must re-register.
        for resource in RESOURCES:
            settings = SimulationSettings(
                resource_name=resource,
                plugin_name=resource.partition("/")[2],
                number_devices=DEVICES,
                node_name="node",
            )
            plugins.enter_context(SimulatedPlugin(settings, root / "device-plugins"))
        driver = SimulatedDriver(
            DRIVER, NUMBER_DEVICES, root=root, claims=lambda _, name: claim(name)
        )
        plugins.enter_context(driver)
        for number in range(times):
            _kill_one(root, number, seed, choice, record, driver)
    return record


def _kill_one(
    root: Path,
    number: int,
    seed: int,
    choice: random.Random,
    record: CrashRecord,
    driver: SimulatedDriver,
) -> None:
    kubelet = _Kubelet(root, str(number), seed, record)
    try:
        # Some kills come during a start, because a start restores and rewrites files.
        if choice.random() < _AT_START:
            kubelet.read(choice.uniform(0, _START_SECONDS))
        else:
            kubelet.wait_until_ready()
            kubelet.wait_for_answers(choice.randint(0, _MAX_ANSWERS))
            kubelet.read(choice.uniform(0, _MAX_PAUSE))
        kubelet.kill()
    except Broken as broken:
        raise Broken(f"kubelet {number}: {broken}") from broken
    finally:
        kubelet.close()
    try:
        record.compare(root, driver.prepared)
    except Broken as broken:
        raise Broken(f"after kill {number + 1}: {broken}") from broken


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the kills and print the verdict. Return 0 if every promise was kept, else 1."""
    options = parser(
        "kill",
        "SIGKILL a kubelet under load, and check the files and the next start.",
        times=(200, "number of kills"),
        seed=(1, "seed for random choices"),
    ).parse_args(arguments)
    # Suppress logs: the plugins log each disconnect of their kubelet.
    logging.getLogger("devicemanager").addHandler(logging.NullHandler())
    verdict, record = Run("kill", options.seed), CrashRecord()
    with verdict.recording_problems():
        record = run(options.times, options.seed)
    return verdict.finish(
        f"{options.times} kills, {record.answered} admissions answered, {record.with_dra} of them "
        f"with ResourceClaims, {record.readmitted} pods admitted again",
        "every file loaded, no admission lost, no device allocated twice, same devices after "
        "each restart",
    )


if __name__ == "__main__":
    sys.exit(main())
