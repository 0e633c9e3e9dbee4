"""Rehearse steps, such as a reboot, on all nodes of a fleet.

A rehearsal simulates the steps in memory, with the snapshot of a node. Its result says which pods
or devices would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.fleet.model import Fleet, FleetNode
from devicemanager.fleet.parallel import in_processes
from devicemanager.fleet.snapshots import snapshot_of
from devicemanager.rehearsal import Configure, Rehearsal, Step, rehearse

__all__ = ["NodeRehearsal", "rehearse_fleet"]

REPEAT = 10
"""Default number of sequences of plugin registrations and pod admissions that a rehearsal tries on
a node. In one of the sequences, all plugins come first. In another one, all pods come first."""
_PERMUTED = 3
"""If a node has at most this many plugins and pods in total, all orders are tried. There are at
most 6 such orders, fewer than ``REPEAT``."""


@attrs.frozen
class NodeRehearsal:
    """Result of the rehearsal on one node."""

    node: str
    result: Rehearsal | None
    """Result of the rehearsal; None if the steps cannot be rehearsed on the node."""
    problem: str = ""
    """Reason why the steps cannot be rehearsed on the node; empty if they can."""

    @property
    def loses_pods(self) -> bool:
        """True if a pod or its devices are lost in at least one order of registrations and
        admissions, or if the kubelet does not start."""
        return self.result is not None and self.result.loses_pods


def rehearse_fleet(
    fleet: Fleet,
    steps: Sequence[Step],
    *,
    repeat: int = REPEAT,
    seed: int = 0,
    processes: int | None = None,
) -> Iterable[NodeRehearsal]:
    """Rehearse steps, such as a reboot, on each node. Return an iterable of the results, sorted by
    node name. The first results are available before the last nodes are rehearsed.

    Each rehearsal starts with the kubelet version that the node reports, unless one of ``steps``
    sets a version. See ``rehearsal.rehearse`` for ``repeat`` and ``seed``. ``processes`` is the
    number of parallel processes; None means one per CPU.
    """
    work = partial(_rehearse_on, steps=tuple(steps), repeat=repeat, seed=seed)
    return in_processes(work, fleet.nodes, processes)


def _rehearse_on(
    node: FleetNode, *, steps: tuple[Step, ...], repeat: int, seed: int
) -> NodeRehearsal:
    try:
        result = rehearse(
            snapshot_of(node),
            # The node's version comes first, so that the steps begin with the kubelet that runs.
            (*_present(node, steps), *steps),
            repeat=repeat,
            seed=seed,
            permuted=_PERMUTED,
        )
    # A node that cannot be rehearsed must not end the rehearsal of the other nodes.
    except RequestError as error:
        return NodeRehearsal(node.name, None, str(error))
    return NodeRehearsal(node.name, attrs.evolve(result, node=node.name))


def _present(node: FleetNode, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return a step that sets the kubelet version of the node, or no step if one of ``steps`` sets
    a version or the node's version is unknown."""
    chosen = any(isinstance(step, Configure) and step.kubelet_version for step in steps)
    return () if chosen or node.version is None else (Configure(str(node.version)),)
