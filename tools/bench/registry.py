"""All cases, and running one in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import attrs

from tools.bench import admission, claims, lists, memory, podresources, startup, topology
from tools.bench.model import Case, Measurement
from tools.bench.scale import SCALES, Scale

_MODULES = (admission, podresources, startup, lists, topology, memory, claims)


class BenchmarkFailed(Exception):
    """A case could not be measured; its process has said why."""


def cases(scale: Scale) -> list[Case]:
    """Every case, in the order of the table."""
    return [case for module in _MODULES for case in module.cases(scale)]


def measure(case: str, scale: str) -> list[Measurement]:
    """Run a case in a fresh process."""
    worker = [sys.executable, "-m", "tools.bench.registry", case, scale]
    done = subprocess.run(worker, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise BenchmarkFailed(f"{case}: its process ended with {done.returncode}")
    return [Measurement(**measured) for measured in json.loads(done.stdout)]


def main(arguments: Sequence[str]) -> None:
    """The fresh process: measure one case, print what came out as JSON."""
    name, scale = arguments
    (case,) = (each for each in cases(SCALES[scale]) if each.name == name)
    print(json.dumps([attrs.asdict(measured) for measured in case.run()]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
    # Threads that a case has left waiting must not keep the process.
    os._exit(0)
