"""Find problems of a kubelet's next start.

A damaged state file makes the start fail. If the checkpoint is damaged or missing, the kubelet
starts without allocations.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from checkpoint import dra
from devicemanager.core.dra.messages import WORDINGS, start_error
from devicemanager.core.versions.behaviour import Behaviour
from devicemanager.core.versions.changelog import basis, dra_basis, read_basis
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.snapshot import Node
from devicemanager.snapshot.rules.alignment import NO_START, cpus, memory
from devicemanager.snapshot.rules.checkpoints import missing
from devicemanager.snapshot.rules.finding import ADVICE, Kind

__all__ = ["KubeletFails", "LostCheckpoint", "check_start", "lost_checkpoint"]

_REPAIR = "repair the file first: devicemanager checkpoint repair"
_CONFIGURATION = "keep the present configuration, or use a value that this version accepts"


@attrs.frozen
class LostCheckpoint:
    """Why the kubelet loads no allocations at its next start, and what to do before this start."""

    text: str
    advice: str


def lost_checkpoint(node: Node) -> LostCheckpoint | None:
    """Return why the kubelet loses all allocations at its next start. Return None if the checkpoint
    is valid, or if it is missing on a node without allocated devices."""
    if node.saved is not None and node.saved.problems:
        return LostCheckpoint(
            "the kubelet cannot read the checkpoint, and starts without any allocation",
            "; ".join(ADVICE[Kind.CHECKPOINT_DAMAGED].steps[1:]),
        )
    if any(missing(node)):
        return LostCheckpoint(
            "there is no checkpoint, and the kubelet starts without any allocation",
            "; ".join(ADVICE[Kind.CHECKPOINT_MISSING].steps[1:]),
        )
    return None


class KubeletFails(Exception):
    """Error for a kubelet that does not start. The message is the kubelet's own error, or a
    description of the problem."""

    def __init__(
        self,
        text: str,
        advice: str = _CONFIGURATION,
        basis: Callable[[KubeletVersion], str] = basis,
    ) -> None:
        super().__init__(text)
        self.advice = advice
        self.basis = basis
        """Function that returns, for a kubelet version, the evidence that the start fails."""


def check_start(node: Node, behaviour: Behaviour) -> None:
    """Raise KubeletFails if a state file of the node prevents the kubelet's start."""
    # The kubelet exits at the first problem, and starts the CPU manager before the memory manager.
    for finding in (*cpus(node), *memory(node)):
        text = finding.message.removeprefix(NO_START)
        raise KubeletFails(text, "; ".join(ADVICE[finding.kind].steps), read_basis)
    state_file = node.snapshot.dra_state
    # Without DRA, the kubelet does not read this file.
    if state_file is None or not behaviour.dra_enabled:
        return
    if (problem := dra.kubelet_error(state_file)) is not None:
        text = start_error(*problem, WORDINGS[behaviour.dra_wording])
        raise KubeletFails(text, _REPAIR, dra_basis)
