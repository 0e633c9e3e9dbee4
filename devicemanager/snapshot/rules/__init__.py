"""What is wrong with a node. Each rule looks at one matter and claims nothing that the snapshot
does not show; what could not be read is nobody's finding."""

from __future__ import annotations

from devicemanager.snapshot.model import Snapshot
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.rules import alignment, checkpoints, plugins
from devicemanager.snapshot.rules.advice import ADVICE, Advice
from devicemanager.snapshot.rules.finding import Finding, Kind, Severity

__all__ = ["ADVICE", "Advice", "Finding", "Kind", "Severity", "findings"]

_RULES = (*plugins.RULES[:2], *checkpoints.RULES, *plugins.RULES[2:], *alignment.RULES)


def findings(snapshot: Snapshot | Node) -> tuple[Finding, ...]:
    """All that is wrong, what matters most first."""
    node = snapshot if isinstance(snapshot, Node) else Node(snapshot)
    found = [finding for rule in _RULES for finding in rule(node)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))
