"""Rules that find problems on a node.

Each rule is a function that checks one thing and yields findings. It claims only what the
snapshot shows: if a part could not be read, the rules that need it find nothing. A rule states
facts that anyone can look up in the snapshot; the advice of each kind is beside it in
``finding``.
"""

from __future__ import annotations

from devicemanager.snapshot.model import Snapshot
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.rules import alignment, checkpoints, plugins
from devicemanager.snapshot.rules.finding import ADVICE, Finding, Kind, Severity

__all__ = ["ADVICE", "Finding", "Kind", "Severity", "findings"]

# The order is that of the report: a kubelet that does not run explains everything else.
_RULES = (*plugins.KUBELET_RULES, *checkpoints.RULES, *plugins.RULES, *alignment.RULES)


def findings(snapshot: Snapshot | Node) -> tuple[Finding, ...]:
    """Return all problems, the most severe ones first."""
    node = snapshot if isinstance(snapshot, Node) else Node(snapshot)
    found = [finding for rule in _RULES for finding in rule(node)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))
