"""A PodResources client in a process of its own, which decodes nothing.

``SOCKET [BARE_SOCKET]``. A line with a number on stdin asks for that many calls of List,
each followed by two calls of the bare server if there is one: one that is answered with
nothing and one that is answered with as many bytes as List. Names after the number ask for
these alone: ``list``, ``nothing``, ``same``. The answer is one JSON list of times, in ms, per
method.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from podresources import sockets
from tools.bench.clock import in_turns

LIST: Final = "/v1.PodResourcesLister/List"
NOTHING: Final = "/bench/Nothing"
SAME: Final = "/bench/Same"
_SIZE_LIMIT: Final = 64 * 1024 * 1024


def _call(socket: str, method: str) -> Callable[[], object]:
    """A call without a message, over a connection of its own that is up already."""
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", _SIZE_LIMIT),
    ]
    channel = grpc.insecure_channel(sockets.target(Path(socket)), options)
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    ready = partial(call, b"")
    ready()
    return ready


def main(arguments: Sequence[str]) -> None:
    """Connect, say "ready", and measure what is asked for until stdin ends."""
    calls = {"list": _call(arguments[0], LIST)}
    for bare in arguments[1:]:
        calls |= {"nothing": _call(bare, NOTHING), "same": _call(bare, SAME)}
    print("ready", flush=True)
    for line in sys.stdin:
        number, *names = line.split()
        asked = [calls[name] for name in names or calls]
        print(json.dumps(in_turns(int(number), *asked)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
