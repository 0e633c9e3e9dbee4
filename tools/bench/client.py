"""Run a PodResources client in a separate process. It does not decode responses.

Arguments: ``SOCKET [BARE_SOCKET]``. Each line on stdin is a number of rounds, optionally followed
by method names. Each round calls these methods, by default all three. ``list`` calls List.
``nothing`` and ``same`` call the bare server, which returns an empty response, or a response as
large as List's. The output line is a JSON list with the times per method in ms.
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
    """Return a function that calls ``method`` with an empty request over a separate, established
    connection."""
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
    """Connect to the servers, print "ready", and measure calls until stdin is closed."""
    calls = {"list": _call(arguments[0], LIST)}
    for bare in arguments[1:]:
        calls |= {"nothing": _call(bare, NOTHING), "same": _call(bare, SAME)}
    print("ready", flush=True)
    for line in sys.stdin:
        number, *names = line.split()
        selected = [calls[name] for name in names or calls]
        print(json.dumps(in_turns(int(number), *selected)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
