"""Attack with device lists and Allocate responses: too many, too large, or slow to read."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import grpc

from tools.attack.beside import beside
from tools.attack.model import Limits, Target
from tools.attack.plugins import (
    LIMIT,
    Lists,
    cut,
    device,
    field,
    filled,
    hostile_plugin,
    node,
)

_SECONDS = 6.0
_READ_SECONDS = 20.0
"""Seconds that the kubelet may need on a busy machine to read a list of 4 MiB. The devices of the
list are counted afterwards."""
_MOST = Limits(registration=100.0, admission=600.0, memory=300.0, kept=250.0)
"""Limits for lists of 4 MiB, which can have hundreds of thousands of devices.

The kubelet must store the devices, and reading them uses a CPU for a while.
"""


def _offer(
    target: Target,
    lists: Lists,
    compression: grpc.Compression | None = None,
    seconds: float = _SECONDS,
) -> None:
    """Register a plugin that sends these device lists. Then wait ``seconds``, so that the lists can
    have an effect. Raises TimeoutError if they cannot be sent."""
    with hostile_plugin(target, lists, compression=compression) as plugin:
        plugin.wait_until_sent()
        time.sleep(seconds)


# -- single lists ----------------------------------------------------------------------


def _numa(count: int) -> bytes:
    return cut(device(b"%d" % number, [number]) for number in range(count))


def _many_nodes() -> bytes:
    """Return an encoded device list in which each device has many NUMA nodes, all different."""
    numbers = itertools.count()
    return cut(device(b"%d" % each, itertools.islice(numbers, 100)) for each in range(LIMIT))


def _one_device_of_nodes() -> bytes:
    nodes = cut((node(number) for number in range(LIMIT)), LIMIT - 64)
    return field(1, field(1, b"d") + field(3, nodes))


def _empty_nodes() -> bytes:
    # Each node has two bytes in the message, but would be a large object if it were decoded.
    return field(1, field(1, b"d") + field(3, filled(field(1, b""), LIMIT - 64)))


def _huge_numbers() -> bytes:
    # The kubelet must not allocate memory in proportion to the number of a node.
    return cut(device(b"%d" % number, [(1 << 62) + number]) for number in range(LIMIT))


def _distinct() -> bytes:
    # The shortest IDs give the largest number of devices.
    return cut(field(1, field(1, b"%x" % number)) for number in range(LIMIT))


_NAMELESS, _SAME = field(1, b""), device(b"a", health=b"")
WORST: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "list-numa-40000": ("40,000 devices on as many NUMA nodes", partial(_numa, 40_000)),
    "list-numa-80000": ("80,000 devices on as many NUMA nodes", partial(_numa, 80_000)),
    "list-numa-huge": ("4 MiB of devices on NUMA nodes above 2^62", _huge_numbers),
    "list-topology": ("4 MiB of devices with 100 NUMA nodes each", _many_nodes),
    "list-one-topology": ("one device with 4 MiB of NUMA nodes", _one_device_of_nodes),
    "list-empty-nodes": ("one device with 2 million empty NUMA nodes", _empty_nodes),
    "list-empty-ids": ("2 million devices without an id", partial(filled, _NAMELESS)),
    "list-duplicates": ("800,000 devices of one id", partial(filled, _SAME)),
    "list-distinct": ("4 MiB of devices with the shortest ids", _distinct),
}
"""Single device lists of up to 4 MiB by name: description, and function that encodes the list."""


# -- floods ----------------------------------------------------------------------------


def _flood(
    messages: Callable[[], Iterable[bytes]], seconds: float = _SECONDS
) -> Callable[[Target], None]:
    def offer(target: Target) -> None:
        ready = messages()

        def lists() -> Iterator[bytes]:
            end = time.monotonic() + _SECONDS
            for message in ready:
                yield message
                if time.monotonic() > end:
                    return

        _offer(target, lists, seconds=seconds)

    return offer


def _small() -> Iterator[bytes]:
    # Each list has new IDs: a list that equals the previous one would be skipped.
    for turn in itertools.count():
        yield b"".join(device(b"%d-%d" % (turn, number)) for number in range(100))


def _large() -> Iterator[bytes]:
    return itertools.cycle([_distinct(), cut(device(b"%d" % n) for n in range(LIMIT))])


def _bomb() -> Iterator[bytes]:
    # Zeros compress well. The limit of message sizes must apply to the decompressed size.
    for _ in range(2):
        yield bytes(128_000_000)


# Called once per attack, so that each attack has a separate variable ``build``.
def _register_single(name: str, about: str, build: Callable[[], bytes]) -> None:
    def offer(target: Target) -> None:
        message = build()
        _offer(target, lambda: iter([message]), seconds=_READ_SECONDS)

    beside(name, about, _MOST)(offer)


for _name, (_about, _build) in WORST.items():
    _register_single(_name, _about, _build)
beside("list-flood", "lists of 100 devices as fast as possible")(_flood(_small))
beside("list-flood-large", "lists of 4 MiB as fast as possible", _MOST)(
    _flood(_large, _READ_SECONDS)
)
beside("list-gzip", "lists of 128 MB, 0.1 MB after gzip")(
    partial(_offer, lists=_bomb, compression=grpc.Compression.Gzip)
)


_PODS = 40
_ANSWER_SECONDS = 20.0
_ANSWERS = Limits(memory=600.0, kept=400.0)


def _offer_answers(target: Target, size: int) -> None:
    answer = field(1, _variable(b"BIG", b"x" * size) if size else _variables())
    lists = [b"".join(device(b"%d" % number) for number in range(_PODS))]
    with hostile_plugin(target, lambda: iter(lists), allocate=lambda: answer):
        time.sleep(_ANSWER_SECONDS)


def _variable(name: bytes, value: bytes) -> bytes:
    return field(1, field(1, name) + field(2, value))


def _variables() -> bytes:
    return b"".join(_variable(b"N%d" % number, b"") for number in range(100_000))


beside(
    "answers-4mb", f"Allocate answers {_PODS} pods with almost 4 MiB each", _ANSWERS, pods=_PODS
)(partial(_offer_answers, size=LIMIT - 4096))
beside(
    "answers-envs",
    f"Allocate answers {_PODS} pods with 100,000 variables each",
    _ANSWERS,
    pods=_PODS,
)(partial(_offer_answers, size=0))
