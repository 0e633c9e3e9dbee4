"""A plugin in a process of its own whose lists are made to take long.

``DIRECTORY``, then on stdin the name of a list from ``tools.attack.lists``, a line each. It
is sent by a plugin of its own; answered with the time at which its registration began.
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
    """Serve until stdin ends."""
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
        # Streams still wait for something to send: there is nothing to clean up.
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
