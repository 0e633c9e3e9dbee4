"""Read the records that a command prints with ``-o json``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

Record = dict[str, Any]


def until(process: subprocess.Popen[Any], test: Callable[[Record], bool]) -> list[Record]:
    """Yield the records up to a matching one."""
    assert process.stdout is not None
    found: list[Record] = []
    for line in process.stdout:
        found.append(json.loads(line))
        if test(found[-1]):
            return found
    raise AssertionError(found)


def until_ready(process: subprocess.Popen[Any]) -> list[Record]:
    """Return the records up to the one that reports that the command is ready."""
    return until(process, lambda record: bool(record["kind"] == "ready"))
