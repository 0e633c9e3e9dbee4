"""All cases, and running one in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import attrs

from tools.bench import admission, claims, lists, memory, podresources, startup, topology, web
from tools.bench.model import Case, Measurement
from tools.bench.scale import SCALES, Scale

MODULES = (admission, web, podresources, startup, lists, topology, memory, claims)


class BenchmarkFailed(Exception):
    """A case could not be measured; its process has said why."""


def cases(scale: Scale) -> list[Case]:
    """Every case, in the order of the table."""
    return [case for module in MODULES for case in module.cases(scale)]


def measure(case: str, scale: str) -> list[Measurement]:
    """Run a case in a fresh process."""
    (measured,) = measure_together([case], scale).values()
    return measured


def measure_together(names: Sequence[str], scale: str) -> dict[str, list[Measurement]]:
    """Run several cases one after the other in a fresh process: they have an effect on each
    other, so this only shows that they run."""
    worker = [sys.executable, "-m", "tools.bench.registry", scale, *names]
    done = subprocess.run(worker, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise BenchmarkFailed(f"{', '.join(names)}: the process ended with {done.returncode}")
    return {
        name: [Measurement(**each) for each in measured]
        for name, measured in json.loads(done.stdout).items()
    }


def main(arguments: Sequence[str]) -> None:
    """The fresh process: measure the named cases, print what came out as JSON."""
    scale, *names = arguments
    known = {case.name: case for case in cases(SCALES[scale])}
    measured = {name: [attrs.asdict(each) for each in known[name].run()] for name in names}
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
    # Threads that a case has left waiting must not keep the process.
    os._exit(0)
