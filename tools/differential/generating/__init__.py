"""Generate random scenarios: pods are admitted, run and end, and plugins come and go.

Input:  a seed, a number and a minor version of Kubernetes. Output: scenarios: a node, its plugins,
and what happens on it step by step.

``state`` stores what was generated so far. ``machines`` makes nodes, ``devices`` plugins and their
device lists, ``pods`` pods, and ``saved`` checkpoint files. ``steps`` makes single steps that are
possible in the current state. ``stories`` makes short sequences that lead to a rare state.
``scenario`` combines all of them.

Invariant: a scenario depends only on its name and the version. Start with ``scenario``.
"""

from __future__ import annotations

from tools.differential.generating.scenario import scenario, scenarios

__all__ = ["scenario", "scenarios"]
