"""Results that all workers of a run share, because they take long to make."""

import fcntl
import os
from collections.abc import Callable

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[], str]) -> str:
    """Return the text that ``make`` returns. In a run, only one worker calls it.

    Without this, each worker that gets a test of a module sets up the fixtures of the module.
    """
    place = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # each worker has a directory of its own in it
    path = place / f"once-{name}"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_text(make())
    return path.read_text()
