"""Since when a kubelet behaves as it does, in words."""

from __future__ import annotations

from devicemanager.core.versions.steps import Step, step_at
from devicemanager.core.versions.table import STEPS
from devicemanager.core.versions.version import KubeletVersion

__all__ = ["since_when"]


def since_when(behaviour: str, version: KubeletVersion) -> str:
    """``kubelets do so since 1.24 (k/k#108052)`` for a field of ``Behaviour``, or up to when
    if that version is one of the first. Empty for no field."""
    if not behaviour:
        return ""
    steps = STEPS[behaviour]
    step = step_at(steps, version)
    if step is not steps[0]:
        return f"kubelets do so since {_versions(step)}"
    return f"kubelets do so before {_versions(steps[1])}"


def _versions(step: Step) -> str:
    *others, last = map(str, step.since)
    told = f"{', '.join(others)} and {last}" if others else last
    return f"{told} ({step.row})" if step.row else told
