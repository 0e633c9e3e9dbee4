"""Format a rehearsal as text, as JSON data, or as Markdown for a change request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from devicemanager.core.printable import counted
from devicemanager.rehearsal.result import Devices, Fate, Outcome, PodResult, Rehearsal

__all__ = ["HEADER", "as_data", "markdown", "rows", "summary"]

HEADER = ("POD", "OUTCOME", "DEVICES", "ORDERS")


def summary(result: Rehearsal) -> str:
    """Return one line that says whether pods would be lost."""
    if not result.kubelet_starts:
        return f"the kubelet does not start: {counted(len(result.pods), 'pod')} would be lost"
    pods, lost = len(result.pods), sum(pod.can_be_lost for pod in result.pods)
    # Count each pod once: ``lost`` already has the pods that can be lost.
    without = sum(pod.without_devices > 0 and not pod.can_be_lost for pod in result.pods)
    certain = sum(pod.is_always_lost for pod in result.pods)
    # The outcome of a single order is certain. With several, it depends on the order.
    verb = "would" if result.orders == 1 else "can"
    if lost:
        text = f"{lost} of {counted(pods, 'pod')} {verb} be lost"
        text += f", and {without} more {verb} be without their devices" if without else ""
        text += "" if result.orders == 1 else f"; pods that are lost in every order: {certain}"
    else:
        text = f"{counted(pods, 'pod')}, none would be lost"
        text += f", but {without} {verb} be without their devices" if without else ""
    if result.orders == 1 or not result.bad_orders:
        return text
    # A sample says nothing about the orders that were not tried.
    kind = "possible" if result.all_orders else "sampled"
    orders = f"{result.bad_orders} of {result.orders} {kind}"
    return f"{text}; orders that lose pods or devices: {orders}"


def rows(result: Rehearsal) -> Iterator[tuple[str, str, str, str]]:
    """Yield a table row for each outcome of each pod."""
    for pod in result.pods:
        for outcome, number in pod.outcomes.items():
            orders = f"{number} of {result.orders}"
            yield pod.name, _outcome(outcome), _devices(pod, outcome), orders


def _outcome(outcome: Outcome) -> str:
    if not outcome.reason:
        return str(outcome.fate)
    return f"{outcome.fate}: {outcome.reason}: {outcome.message}"


def _devices(pod: PodResult, outcome: Outcome) -> str:
    before, after = _ids(pod.before), _ids(outcome.devices)
    changed = before or after
    # A pod that is lost or deleted has no devices in any case.
    if outcome.fate is Fate.STAYS and before != after:
        changed = f"{before} -> {after or 'none'}"
    return "; ".join(filter(None, [changed, _ids(pod.claims)])) or "-"


def _ids(devices: Devices) -> str:
    return "; ".join(f"{resource}: {','.join(ids)}" for resource, ids in devices.items())


def as_data(result: Rehearsal) -> dict[str, Any]:
    """Return the rehearsal as JSON data (docs/json.md)."""
    return {
        "node": result.node,
        "steps": list(result.steps),
        "kubelet_starts": result.kubelet_starts,
        "loses_pods": result.loses_pods,
        "orders": {
            "tried": result.orders,
            "bad": result.bad_orders,
            "complete": result.all_orders,
        },
        "pods": [_pod_data(pod) for pod in result.pods],
        "moved_devices": [
            {"resource": resource, "device": id_, "from": old, "to": new}
            for (resource, id_), (old, new) in result.moved.items()
        ],
        "statements": [
            {"text": each.text, "basis": each.basis, "advice": each.advice}
            for each in result.statements
        ],
        "assumptions": list(result.assumptions),
    }


def _pod_data(pod: PodResult) -> dict[str, Any]:
    return {
        "uid": pod.uid,
        "name": pod.name,
        "devices": _plain(pod.before),
        "claims": [{"driver": name, "devices": list(ids)} for name, ids in pod.claims.items()],
        "outcomes": [
            {
                "outcome": str(outcome.fate),
                "reason": outcome.reason,
                "message": outcome.message,
                "devices": _plain(outcome.devices),
                "missing": list(outcome.missing),
                "orders": number,
            }
            for outcome, number in pod.outcomes.items()
        ],
    }


def _plain(devices: Devices) -> dict[str, list[str]]:
    return {resource: list(ids) for resource, ids in devices.items()}


def markdown(result: Rehearsal) -> Iterator[str]:
    """Yield the lines of the rehearsal as Markdown text."""
    yield f"## Rehearsal for node {_cell(result.node)}"
    yield ""
    yield from (f"{number}. {_cell(step)}" for number, step in enumerate(result.steps, 1))
    yield ""
    yield f"**Result:** {summary(result)}."
    yield ""
    yield from _table(HEADER, list(rows(result)))
    if result.statements:
        yield ""
        yield from _list(
            "What to do first",
            [_statement(each.text, each.advice, each.basis) for each in result.statements],
        )
    yield ""
    yield from _list("Assumptions", result.assumptions)


def _statement(text: str, advice: str, basis: str) -> str:
    return f"{text} ({basis}): {advice}"


def _list(title: str, items: Sequence[str]) -> Iterator[str]:
    yield f"**{title}**"
    yield ""
    yield from (f"- {_cell(item)}" for item in items)


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    for line in (header, ["---"] * len(header), *lines):
        yield f"| {' | '.join(map(_cell, line))} |"


def _cell(text: str) -> str:
    # Escape characters that would end the cell or the line: names come from plugins.
    return " ".join(text.split()).replace("|", "\\|")
