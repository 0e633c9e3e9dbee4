"""Files of a node with which the kubelet does not start."""

from __future__ import annotations

from collections.abc import Callable

from checkpoint import dra
from devicemanager.core.dra.messages import WORDINGS, start_error
from devicemanager.core.versions.behaviour import Behaviour
from devicemanager.core.versions.changelog import basis, dra_basis, read_basis
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.snapshot import Node
from devicemanager.snapshot.rules.alignment import NO_START, cpus, memory
from devicemanager.snapshot.rules.finding import ADVICE

__all__ = ["REPAIR", "KubeletFails", "check_start"]

REPAIR = "repair the file first: devicemanager checkpoint repair"
_CONFIGURATION = "keep the present configuration, or use a value that this version accepts"


class KubeletFails(Exception):
    """The kubelet does not start. The message is the kubelet's error, or a description of it."""

    def __init__(
        self,
        text: str,
        advice: str = _CONFIGURATION,
        basis: Callable[[KubeletVersion], str] = basis,
    ) -> None:
        super().__init__(text)
        self.advice = advice
        self.basis = basis
        """Returns the evidence for this prediction in a kubelet version."""


def check_start(node: Node, behaviour: Behaviour) -> None:
    """Raise KubeletFails if the kubelet does not start with a state file of the node."""
    for finding in (*cpus(node), *memory(node)):
        text = finding.message.removeprefix(NO_START)
        raise KubeletFails(text, "; ".join(ADVICE[finding.kind].steps), read_basis)
    state_file = node.snapshot.dra_state
    if state_file is None or not behaviour.dra_enabled:
        return
    if (problem := dra.kubelet_error(state_file)) is not None:
        text = start_error(*problem, WORDINGS[behaviour.dra_wording])
        raise KubeletFails(text, REPAIR, dra_basis)
