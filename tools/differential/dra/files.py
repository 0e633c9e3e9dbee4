"""Random contents of ``dra_manager_state``: valid, old and damaged files."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any
from zlib import crc32

import checkpoint.dra
from checkpoint.dra import ClaimState, Device, DriverState, State


def state_file(
    random: Random, claims: Collection[Mapping[str, Any]], pods: Sequence[str], *, share_ids: bool
) -> str | None:
    """Return the contents of a file; None for no file."""
    made = [_claim(random, claim, pods) for claim in claims if random.random() < 0.7]
    if random.random() < 0.1:
        return None
    text = checkpoint.dra.dumps(State(tuple(made)), share_ids=share_ids).decode()
    return text if random.random() < 0.4 else _odd(random, text)


def _claim(random: Random, claim: Mapping[str, Any], pods: Sequence[str]) -> ClaimState:
    drivers = {
        result["driver"]: DriverState(
            random.choice(
                [
                    None,
                    (),
                    (Device("worker", result["device"], None, ("r",), ("example.com/x=y",)),),
                ]
            )
        )
        for result in claim["results"]
    }
    uids = frozenset(random.sample(list(pods), random.randint(0, len(pods))))
    uid = claim["uid"] if random.random() < 0.8 else f"{claim['name']}-other-uid"
    return ClaimState(claim["namespace"], claim["name"], uid, uids, drivers)


def _odd(random: Random, text: str) -> str:
    outer = json.loads(text)
    inner = outer["Data"]
    return random.choice(
        [
            "{}",
            "",
            " { } ",
            "null",
            "[]",
            "7",
            '{"Data":null}',
            '{"Data":"","Checksum":0}',
            '{"Data":7,"Checksum":0}',
            '{"Data":"x","Checksum":"1"}',
            f"  {text}\n",
            f"{text}x",
            text[: random.randrange(len(text))],
            text.replace("Checksum", "checksum").replace("Data", "DATA"),
            text.replace("DRACheckpoint", "Other"),
            _wrapped(inner, crc32(inner.encode()) + 1),
            _wrapped(inner, -1),
            _valid("{}"),
            _valid("null"),
            _valid("[]"),
            _valid(inner[:-1]),
            _valid(inner.replace('"ClaimName"', '"claimname"')),
            _valid(inner.replace('"Namespace":"', '"Extra":[1],"Namespace":"')),
            '{"version":"v1","entries":[],"checksum":0}',
            '{"version":"v1","entries":[],"checksum":4010664294}',
        ]
    )


def _valid(inner: str) -> str:
    return _wrapped(inner, crc32(inner.encode()))


def _wrapped(inner: str, checksum: int) -> str:
    return json.dumps({"Data": inner, "Checksum": checksum}, separators=(",", ":"))
