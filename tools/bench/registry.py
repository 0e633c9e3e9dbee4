"""List of all benchmark cases; runs them in new processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from tools.bench import (
    admission,
    claims,
    control,
    dra,
    dra_kubelet,
    fleet,
    lists,
    memory,
    podresources,
    searching,
    startup,
    topology,
    web,
)
from tools.bench.model import SCALES, Case, Measurement, Scale

MODULES = (
    admission,
    web,
    control,
    searching,
    podresources,
    startup,
    lists,
    topology,
    memory,
    claims,
    dra,
    dra_kubelet,
    fleet,
)


class BenchmarkFailed(Exception):
    """Error of a case whose process failed. The standard error of the process has the reason."""


def cases(scale: Scale) -> list[Case]:
    """Return all cases in the order of the table."""
    return [case for module in MODULES for case in module.cases(scale)]


def measure(case: str, scale: str) -> list[Measurement]:
    """Run one case in a new process and return its measurements."""
    (measured,) = measure_together([case], scale).values()
    return measured


def measure_together(names: Sequence[str], scale: str) -> dict[str, list[Measurement]]:
    """Run several cases in one new process, and return their measurements by case.

    The cases affect each other's times, so this only shows that they run.
    """
    homes = {
        case.name: module.__name__ for module in MODULES for case in module.cases(SCALES[scale])
    }
    # Use a new process, so that caches, garbage and threads of other cases have no effect.
    places = [f"{homes[name]}:{name}" for name in names]
    worker = [sys.executable, "-m", "tools.bench.worker", scale, *places]
    done = subprocess.run(worker, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise BenchmarkFailed(
            f"benchmark {', '.join(names)} failed with exit status {done.returncode}: see its "
            "output"
        )
    return {
        name: [Measurement(**each) for each in measured]
        for name, measured in json.loads(done.stdout).items()
    }
