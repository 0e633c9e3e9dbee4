"""Convert a snapshot to text for people and to data for programs: findings first, then the node's
state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from devicemanager.core.printable import listed, printable
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.rules import ADVICE, Finding, Severity

__all__ = ["as_data", "lines"]

_MOST_IDS = 12
_HEADINGS = ("RESOURCE", "IN CHECKPOINT", "ALLOCATABLE", "ALLOCATED", "DEVICES")


def lines(node: Node, found: Sequence[Finding]) -> Iterator[str]:
    """Iterate over the lines of a node's report. Control characters are escaped for the
    terminal."""
    # The texts in a snapshot are untrusted: the terminal must not interpret them.
    for line in _lines(node, found):
        yield printable(line)


def _lines(node: Node, found: Sequence[Finding]) -> Iterator[str]:
    snapshot = node.snapshot
    yield f"node {snapshot.node}, {snapshot.taken}, kubelet in {snapshot.root}"
    yield ""
    yield _summary(node, found)
    for finding in found:
        yield ""
        yield from _finding(finding)
    # The parts that could not be read come before the tables, because without them the tables are
    # incomplete.
    yield from _unread(node)
    yield from _resources(node)
    yield from _pods(node)
    yield from _sockets(node)
    yield from _machine(node)


def _summary(node: Node, found: Sequence[Finding]) -> str:
    # If there are findings, only they are counted. Otherwise mention unread parts, because they
    # limit what "no problems" means.
    counts = {each: sum(one.severity is each for one in found) for each in Severity}
    if found:
        return ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for word, n in counts.items() if n)
    unread = sum(part.problem is not None and not part.absent for part in node.snapshot.parts)
    parts = f"{unread} part{'s' if unread > 1 else ''} could not be read" if unread else ""
    return "no problems found" + (f", but {parts}" if parts else "")


def _finding(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity.upper()}: {finding.message}"
    advice = ADVICE[finding.kind]
    yield from (f"  {detail}" for detail in finding.details)
    yield from (f"  -> {step}" for step in advice.steps)
    see = " ".join(filter(None, (advice.page, *advice.links)))
    if see:
        yield f"  see {see}"


def _unread(node: Node) -> Iterator[str]:
    parts = [part for part in node.snapshot.parts if part.problem is not None]
    for title, absent in (("could not be read:", False), ("do not exist:", True)):
        some = [part for part in parts if part.absent is absent]
        if some:
            yield from ("", title)
        for part in some:
            yield f"  {part.name}: {part.source}" + ("" if absent else f": {part.problem}")


def _resources(node: Node) -> Iterator[str]:
    rows = [_resource(node, *each) for each in _allocated(node)]
    if rows:
        yield ""
        yield from _table([_HEADINGS, *rows])


def _allocated(node: Node) -> list[tuple[str, int]]:
    """Return all resource names, sorted, each with the number of its allocated devices."""
    counts = Counter(resource for resource, _ in node.allocated_to)
    names = {*node.registered, *(node.allocatable or ()), *counts}
    return [(name, counts[name]) for name in sorted(names)]


def _resource(node: Node, name: str, allocated: int) -> tuple[str, ...]:
    registered, allocatable = node.registered.get(name), node.allocatable
    ids = {*(registered or ()), *((allocatable or {}).get(name, ()))}
    return (
        name,
        "-" if registered is None else str(len(registered)),
        # A count of 0 and an unknown count are shown differently.
        "?" if allocatable is None else str(len(allocatable.get(name, ()))),
        "?" if node.snapshot.pods is None else str(allocated),
        _some(sorted(ids)),
    )


def _pods(node: Node) -> Iterator[str]:
    rows = [
        (f"{pod.namespace}/{pod.name}", container.name, devices)
        for pod in node.snapshot.pods or ()
        for container in pod.containers
        if (devices := _some(sorted({i for each in container.devices for i in each.device_ids})))
        != "-"
    ]
    if rows:
        yield ""
        yield from _table([("POD", "CONTAINER", "DEVICES"), *rows])


def _sockets(node: Node) -> Iterator[str]:
    if node.snapshot.sockets:
        yield ""
        rows = [
            (each.path, each.state, _process(each.pid, each.process), each.problem or "")
            for each in node.snapshot.sockets
        ]
        yield from _table([("SOCKET", "STATE", "PROCESS", ""), *rows])


def _process(pid: int | None, name: str | None) -> str:
    return "-" if pid is None else f"{name or '?'} ({pid})"


def _machine(node: Node) -> Iterator[str]:
    aligned, machine = node.alignment, node.snapshot.numa
    yield ""
    # Without a configuration, `alignment` has only defaults, which may be wrong for this node.
    if node.snapshot.config is None:
        yield "topology policy: unknown, the kubelet's configuration was not read"
    else:
        options = "".join(f", {name}={value}" for name, value in sorted(aligned.options.items()))
        yield f"topology policy {aligned.policy}, scope {aligned.scope}{options}"
        yield f"CPU manager {aligned.cpu_policy}, memory manager {aligned.memory_policy}"
    if machine is not None:
        yield f"NUMA nodes {','.join(map(str, machine.topology.nodes))}"


def _some(ids: Sequence[str]) -> str:
    return listed(ids, _MOST_IDS, ",") or "-"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    # Escape before the widths are computed, because escaped characters are longer.
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def as_data(node: Node, found: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as JSON data, as described in docs/json.md."""
    snapshot = node.snapshot
    return {
        "node": snapshot.node,
        "taken": snapshot.taken,
        "root": snapshot.root,
        "findings": [_as_data(finding) for finding in found],
        "parts": [
            {
                "name": part.name,
                "source": part.source,
                "read": part.problem is None,
                "absent": part.absent,
                "problem": part.problem,
            }
            for part in snapshot.parts
        ],
        "resources": list(_resources_data(node)),
        "pods": dict(sorted(node.names.items())),
    }


def _as_data(finding: Finding) -> dict[str, Any]:
    advice = ADVICE[finding.kind]
    return {
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "message": finding.message,
        "details": list(finding.details),
        "resource": finding.resource,
        "device_ids": list(finding.devices),
        "pods": list(finding.pods),
        "advice": list(advice.steps),
        "page": advice.page or None,
        "issues": list(advice.links),
    }


def _resources_data(node: Node) -> Iterable[dict[str, Any]]:
    for name, allocated in _allocated(node):
        allocatable = node.allocatable
        yield {
            "resource_name": name,
            "in_checkpoint": len(node.registered[name]) if name in node.registered else None,
            "allocatable": None if allocatable is None else len(allocatable.get(name, ())),
            "held": None if node.snapshot.pods is None else allocated,
        }
