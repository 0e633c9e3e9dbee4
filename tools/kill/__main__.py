"""``python -m tools.kill --times 200``: SIGKILL a kubelet under load, at random moments.

After each kill the checkpoint must load, must hold every admission that was answered,
with the same devices, and no device twice; then the kubelet starts on the same directory
and every pod must have kept what it had. Ends with one line; exit 0 only if all held.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import checkpoint
from devicemanager.kubelet.directories import CLAIMS_STATE_NAME
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from tools.kill.node import RESOURCES
from tools.kill.records import Broken, CrashRecord

DEVICES = 64
_AT_START = 0.15
"""The share of kills that come while the kubelet starts."""
_START_SECONDS = 0.8
_MOST_ANSWERS, _BETWEEN_SECONDS = 20, 0.01
"""The others come after so many answers at most, and a little later, between two of them: as
many on a busy machine as on a quick one."""
_PATIENCE = 60.0


class _Life:
    """One kubelet process, from start to kill."""

    def __init__(self, root: Path, name: str, seed: int, record: CrashRecord) -> None:
        self._record = record
        self._root = root
        self._log = (root / "node.log").open("w+")
        command = [sys.executable, "-m", "tools.kill.node"]
        command += ["--root", str(root), "--life", name, "--seed", str(seed)]
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
        """Take reports until it has started. Raises Broken."""
        self.read(_PATIENCE, lambda: self._record.is_ready)
        if not self._record.is_ready:
            raise Broken("the kubelet was not ready in time")
        self._check_clean()

    def wait_for_answers(self, count: int) -> None:
        """Take reports until so many more admissions were answered. Raises Broken."""
        wanted = self._record.answered + count
        self.read(_PATIENCE, lambda: self._record.answered >= wanted)
        if self._record.answered < wanted:
            raise Broken(f"the kubelet did not answer {count} admissions in time")

    def read(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Take reports for so long, or until that is true. Raises Broken if the process ends
        by itself."""
        limit = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            while not until() and (rest := limit - time.monotonic()) > 0:
                if selector.select(rest) and not self._take():
                    raise Broken(f"the kubelet ended by itself: {self._last_words()}")

    def kill(self) -> None:
        """SIGKILL, then take what it had still said."""
        self._process.kill()
        self._process.wait()
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

    def _last_words(self) -> str:
        self._log.seek(0)
        return (self._log.read().strip().splitlines() or ["no word"])[-1]

    def _check_clean(self) -> None:
        """A start removes the half-written files of those who were killed before."""
        mine = f".tmp-{self._process.pid}-"
        files = [*self._root.iterdir(), *(self._root / "device-plugins").iterdir()]
        left = [path.name for path in files if ".tmp-" in path.name and mine not in path.name]
        if left:
            raise Broken(f"a start left {left[0]} lying about")


def run(times: int, seed: int) -> CrashRecord:
    """Kill ``times`` kubelets. Raises Broken at the first that did not keep its word."""
    choice = random.Random(seed)
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    record = CrashRecord()
    try:
        with ExitStack() as plugins:
            (root / "device-plugins").mkdir()
            for resource in RESOURCES:
                plugins.enter_context(_plugin(resource, root / "device-plugins"))
            for number in range(times):
                _one(root, number, seed, choice, record)
    finally:
        shutil.rmtree(root)
    return record


def _plugin(resource: str, directory: Path) -> SimulatedPlugin:
    settings = SimulationSettings(
        resource_name=resource,
        plugin_name=resource.partition("/")[2],
        number_devices=DEVICES,
        node_name="node",
    )
    return SimulatedPlugin(settings, directory)


def _one(root: Path, number: int, seed: int, choice: random.Random, record: CrashRecord) -> None:
    life = _Life(root, str(number), seed, record)
    try:
        if choice.random() < _AT_START:
            life.read(choice.uniform(0, _START_SECONDS))
        else:
            life.wait_until_ready()
            life.wait_for_answers(choice.randint(0, _MOST_ANSWERS))
            life.read(choice.uniform(0, _BETWEEN_SECONDS))
        life.kill()
    except Broken as broken:
        raise Broken(f"life {number}: {broken}") from broken
    finally:
        life.close()
    try:
        record.compare(
            root / "device-plugins" / checkpoint.CHECKPOINT_NAME, root / CLAIMS_STATE_NAME
        )
    except Broken as broken:
        raise Broken(f"after kill {number + 1}: {broken}") from broken


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kill", description=__doc__)
    parser.add_argument("--times", type=int, default=200, help="how many kills (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all random choices (%(default)s)")
    args = parser.parse_args(argv)
    # The plugins log that their kubelet died.
    logging.getLogger("devicemanager").addHandler(logging.NullHandler())
    begin = time.monotonic()
    try:
        record = run(args.times, args.seed)
    except Broken as broken:
        print(f"broken, seed {args.seed}: {broken}")
        return 1
    print(
        f"{args.times} kills in {time.monotonic() - begin:.0f} s, seed {args.seed}: "
        f"{record.answered} admissions answered, none lost; {record.kept} pods kept their devices "
        "over a restart; every file loaded; no device had two holders"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
