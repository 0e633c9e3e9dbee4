"""Values that change with the version, and the versions from which they apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from devicemanager.core.versions.version import KubeletVersion


class Step(NamedTuple):
    """The value of a behaviour from a version on."""

    since: tuple[KubeletVersion, ...]
    """Patch releases of older minors to which it was backported, then the first version."""
    value: Any
    evidence: str = ""
    """The pull request, the version whose source was read, or how it was observed."""
    gate: str = ""
    """If set, the value is this gate's state, and ``value`` is ignored."""
    unsure: bool = False
    """True if the version is not confirmed."""

    def applies_to(self, version: KubeletVersion) -> bool:
        """True if the version or one before it has the step."""
        # A backport applies to later patches of its minor only: 1.25.10 says nothing about
        # 1.26.0, which may be older.
        *backports, first = self.since
        if version >= KubeletVersion(first.minor, first.patch or 0):
            return True
        return any(version.minor == each.minor and version >= each for each in backports)


Steps = tuple[Step, ...]
"""Steps in ascending order; the first applies from 1.20 on."""


def since(
    *versions: str, value: Any = True, evidence: str = "", gate: str = "", unsure: bool = False
) -> Step:
    """Return a step that starts with the last of the versions; the others are backports."""
    return Step(tuple(map(KubeletVersion.parse, versions)), value, evidence, gate, unsure)


def step_at(steps: Steps, version: KubeletVersion) -> Step:
    """Return the step that applies to a version."""
    return [step for step in steps if step.applies_to(version)][-1]


def value_at(steps: Steps, version: KubeletVersion, gates: Mapping[str, bool]) -> Any:
    """Return the value for a version with the given states of its gates."""
    step = step_at(steps, version)
    if not step.gate:
        return step.value
    terms = (term.strip() for term in step.gate.split("&"))
    return all(not gates[term[1:]] if term[0] == "!" else gates[term] for term in terms)
