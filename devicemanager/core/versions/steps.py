"""A value that changes with the version: from when on it is which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from devicemanager.core.versions.version import KubeletVersion

__all__ = ["Step", "Steps", "since", "step_at", "value_at"]


class Step(NamedTuple):
    """From a version on, the value of a behaviour."""

    since: tuple[KubeletVersion, ...]
    """The first version, after the patches of older minors that have it as well."""
    value: Any
    row: str = ""
    """Where the evidence is: the pull request, or how it was seen."""
    gate: str = ""
    """The value is this gate's state, and ``value`` is not looked at."""
    unsure: bool = False
    """Whether the version is not known for sure."""

    def holds_at(self, version: KubeletVersion) -> bool:
        *backports, first = self.since
        if version >= KubeletVersion(first.minor, first.patch or 0):
            return True
        return any(version.minor == each.minor and version >= each for each in backports)


Steps = tuple[Step, ...]
"""Ascending; the first holds from 1.20 on."""


def since(
    *versions: str, value: Any = True, row: str = "", gate: str = "", unsure: bool = False
) -> Step:
    """A step that begins with the last of these versions, and is in the patches before it."""
    return Step(tuple(map(KubeletVersion.parse, versions)), value, row, gate, unsure)


def step_at(steps: Steps, version: KubeletVersion) -> Step:
    """The step that counts for a version."""
    return [step for step in steps if step.holds_at(version)][-1]


def value_at(steps: Steps, version: KubeletVersion, gates: Mapping[str, bool]) -> Any:
    """What holds for a version with its gates in this state."""
    step = step_at(steps, version)
    if not step.gate:
        return step.value
    terms = (term.strip() for term in step.gate.split("&"))
    return all(not gates[term[1:]] if term[0] == "!" else gates[term] for term in terms)
