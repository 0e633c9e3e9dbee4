"""Divide the result of a step into facts.

If the kubelet iterates over a Go map and the order has no meaning, the value is sorted. If a driver
or a container sees the order, the order is a separate fact with a path that begins with
``order``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import checkpoint
import checkpoint.dra

Facts = dict[str, Any]
Step = Mapping[str, Any]

_SHARES: Final = '\\"ShareID\\"'
_TRANSPORT: Final = re.compile(r"(code = Unavailable desc = )(?!driver: ).*", re.DOTALL)
"""gRPC's own messages differ between versions. Messages of a driver begin with ``driver: ``."""
_DEADLINE: Final = re.compile(r"(code = DeadlineExceeded desc = ).*", re.DOTALL)


def with_known_changes(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the steps with the file's claims sorted.

    If a file differs from the previous one only in order, omit the file from the step.
    """
    found = []
    before: str | None = None
    for step in steps:
        known = dict(step)
        if "file" in step:
            after = _sorted_file(step["file"])
            known["file"] = after
            if after == before:
                del known["file"]
            before = after
        found.append(known)
    return found


def _sorted_file(text: str | None) -> str | None:
    try:
        claims = checkpoint.dra.loads((text or "").encode()).claims or ()
    except checkpoint.CheckpointError:
        return text
    if len(claims) < 2:
        return text
    document = checkpoint.dra.StateDocument(share_ids=_SHARES in (text or ""))
    ordered = sorted(claims, key=lambda claim: (claim.namespace, claim.name))
    return document.render(ordered).decode()


def facts_of(step: Step) -> Facts:
    """Return all facts of a step."""
    return dict(_facts(step))


def _facts(step: Step) -> Iterator[tuple[str, Any]]:
    for name in ("error", "stage", "answer", "prepared", "blocked_in"):
        if step.get(name) is not None:
            yield name, _plain(step[name])
    if "file" in step:
        yield from _file(step["file"])
    if step.get("writes"):
        yield "writes", step["writes"]
    for name in ("wipes", "updates"):
        if step.get(name):
            yield name, sorted(step[name])
    yield from _calls(step.get("calls") or ())
    if step.get("cdi") is not None:
        yield "cdi", sorted(step["cdi"])
        yield "order of cdi", step["cdi"]
    if step.get("dynamic_resources") is not None:
        yield "dynamic resources", [_claim(each) for each in step["dynamic_resources"]]
    if step.get("status") is not None:
        yield "status", {name: _health(each) for name, each in step["status"].items()}


def _file(text: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the checksum and a summary of a file; if it is not in the kubelet's form, its text."""
    share_ids = _SHARES in (text or "")
    try:
        state = checkpoint.dra.loads((text or "").encode())
    except checkpoint.CheckpointError:
        yield "file", text
        return
    document = checkpoint.dra.StateDocument(share_ids=share_ids)
    if document.render(state.claims).decode() != text:
        yield "file", text
        return
    # An equal checksum means that the bytes are equal.
    yield "file", checkpoint.dra.checksum(state, share_ids=share_ids)
    yield "claims", [_summary(claim) for claim in state.claims or ()]


def _summary(claim: checkpoint.dra.ClaimState) -> list[Any]:
    devices = {name: len(each.devices or ()) for name, each in claim.drivers.items()}
    return [f"{claim.namespace}/{claim.name}", claim.uid, sorted(claim.pods), devices]


def _plain(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return _DEADLINE.sub(r"\1context deadline exceeded", _TRANSPORT.sub(r"\1TRANSPORT", value))


def _calls(calls: Sequence[Step]) -> Iterator[tuple[str, Any]]:
    by_instance: dict[str, list[Step]] = {}
    for call in calls:
        by_instance.setdefault(call["instance"], []).append(call)
    for instance, each in sorted(by_instance.items()):
        what = [[call["method"], call["version"], *sorted(call["claims"])] for call in each]
        yield f"calls of {instance}", sorted(what)
        yield f"order of claims of {instance}", [call["claims"] for call in each]
    if len(calls) > 1:
        yield "order of calls", [call["instance"] for call in calls]


def _claim(listed: Step) -> dict[str, Any]:
    # Do not sort a driver's devices: their order has a meaning.
    devices = sorted(listed["claim_resources"], key=lambda device: device["driver_name"])
    return {**listed, "claim_resources": devices}


def _health(entries: Sequence[Step]) -> list[Any]:
    return [
        {**entry, "resources": sorted(entry["resources"], key=lambda each: each["resource_id"])}
        for entry in entries
    ]
