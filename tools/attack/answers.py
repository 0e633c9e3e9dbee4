"""Answers to Allocate: huge, or never."""

from __future__ import annotations

import time
from functools import partial

from tools.attack.beside import HOSTILE, beside
from tools.attack.messages import LIMIT, device, field
from tools.attack.model import Attack, Limits, Target
from tools.attack.plugins import HostilePlugin, register

_PODS = 40
_SECONDS = 20.0


def attacks() -> list[Attack]:
    """Pods of the attacker's plugin come while a good one is probed."""
    limits = Limits(memory=600.0, kept=400.0)
    return [
        beside(
            "answers-4mb",
            f"Allocate answers {_PODS} pods with almost 4 MiB each",
            partial(_offer, size=LIMIT - 4096),
            limits,
            pods=_PODS,
        ),
        beside(
            "answers-envs",
            f"Allocate answers {_PODS} pods with 100,000 variables each",
            partial(_offer, size=0),
            limits,
            pods=_PODS,
        ),
    ]


def _offer(target: Target, size: int) -> None:
    answer = field(1, _variable(b"BIG", b"x" * size) if size else _variables())
    lists = [b"".join(device(b"%d" % number) for number in range(_PODS))]
    socket = target.plugin_dir / "hostile.sock"
    with HostilePlugin(socket, lambda: iter(lists), allocate=lambda: answer):
        register(target, socket.name, HOSTILE)
        time.sleep(_SECONDS)


def _variable(name: bytes, value: bytes) -> bytes:
    return field(1, field(1, name) + field(2, value))


def _variables() -> bytes:
    return b"".join(_variable(b"N%d" % number, b"") for number in range(100_000))
