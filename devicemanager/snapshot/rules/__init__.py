"""Find problems on a node with rules.

Each rule is a function that checks a snapshot for one kind of problem and yields findings. A
finding claims only what the snapshot shows. If a part could not be read, rules that need it yield
nothing. ``finding`` has the advice for each kind of problem.
"""

from __future__ import annotations

from devicemanager.snapshot.model import Snapshot
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.rules import alignment, checkpoints, claims, plugins
from devicemanager.snapshot.rules.finding import ADVICE, Finding, Kind, Severity

__all__ = ["ADVICE", "Finding", "Kind", "Severity", "findings"]

# The report has the findings in this order: a kubelet that does not run explains all other
# problems.
_RULES = (
    *plugins.KUBELET_RULES,
    *checkpoints.RULES,
    *claims.RULES,
    *plugins.RULES,
    *alignment.RULES,
)


def findings(snapshot: Snapshot | Node) -> tuple[Finding, ...]:
    """Return all problems that the rules find in a snapshot, the most severe first."""
    node = snapshot if isinstance(snapshot, Node) else Node(snapshot)
    found = [finding for rule in _RULES for finding in rule(node)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))
