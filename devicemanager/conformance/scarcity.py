"""Starting a plugin where there are few inotify instances, or none."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = ["scarce", "scarce_fault"]

# By its path: the plugin's directory and environment may hide it.
_SCARCE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r}); "
    "from devicemanager.plugin.processes.scarce import main; main()"
)


def scarce(instances: int) -> tuple[str, ...]:
    """The words before a command that is to have so many, in a user namespace of its own."""
    return (sys.executable, "-c", _SCARCE, str(instances))


@cache
def scarce_fault() -> str:
    """Why that cannot be done on this machine; empty if it can."""
    done = subprocess.run(
        [*scarce(0), "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or "it failed"
