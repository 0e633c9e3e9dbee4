"""Generate random scenarios in which pods are admitted, started and live on.

Input:  a seed, a number and a minor version of Kubernetes.
Output: scenarios: a node, its plugins, and what happens on it step by step.

``state`` knows what was generated so far. ``machines`` makes the node, ``devices`` plugins and
their lists, ``pods`` pods, ``saved`` checkpoint files. ``steps`` makes single steps that are
possible now, and ``stories`` short sequences that lead to a rare state. ``scenario`` puts them
together.

Invariant: a scenario depends only on its name and the version. Start with ``scenario``.
"""

from __future__ import annotations

from tools.differential.generating.scenario import scenario, scenarios

__all__ = ["scenario", "scenarios"]
