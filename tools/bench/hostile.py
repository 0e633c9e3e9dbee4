"""Run hostile plugins in a separate process. Processing their device lists takes a long time.

Argument: ``DIRECTORY``. Each line on stdin is the name of a list from ``tools.attack.lists``. A new
plugin registers and sends this list. The output line is the time at which its registration started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tools.attack.lists import WORST
from tools.attack.model import Target
from tools.attack.plugins import HostilePlugin, register
from tools.bench.clock import now


def main(arguments: Sequence[str]) -> None:
    """Run plugins until stdin is closed."""
    directory = Path(arguments[0])
    target = Target(directory.parent)
    print("ready", flush=True)
    with ExitStack() as plugins:
        for line in sys.stdin:
            name = line.strip()
            message = WORST[name][1]()
            socket = directory / f"{name}.sock"
            plugins.enter_context(HostilePlugin(socket, partial(iter, [message])))
            begin = now()
            register(target, socket.name, f"hostile.example.com/{name}")
            print(begin, flush=True)
        # Skip the normal shutdown: open streams would block it.
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
