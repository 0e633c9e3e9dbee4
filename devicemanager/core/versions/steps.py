"""Values that change with the kubelet version, and the versions from which they apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from devicemanager.core.versions.version import KubeletVersion


class Step(NamedTuple):
    """Value of a ``Behaviour`` field or a quirk, and the kubelet versions from which it applies."""

    since: tuple[KubeletVersion, ...]
    """The patch releases to which the value was backported, then the version that introduced
    it."""
    value: Any
    evidence: str = ""
    """The source of the value: a pull request, the version whose source was read, or an
    observation."""
    gate: str = ""
    """Feature gate whose state is the value of the step, in place of ``value``; empty for no gate.
    ``A & B`` means that both gates are on, and ``!A`` that the gate is off."""
    unsure: bool = False
    """True if it is not confirmed which kubelet version introduced the value."""

    def applies_to(self, version: KubeletVersion) -> bool:
        """True if ``version`` has the value of this step or of a later step."""
        # A backport applies only to later patches of its minor: 1.26.0 can be older than 1.25.10
        # and then lacks the change.
        *backports, first = self.since
        if version >= KubeletVersion(first.minor, first.patch or 0):
            return True
        return any(version.minor == each.minor and version >= each for each in backports)


Steps = tuple[Step, ...]
"""Steps in ascending order; the first applies from 1.20 on."""


def since(
    *versions: str, value: Any = True, evidence: str = "", gate: str = "", unsure: bool = False
) -> Step:
    """Return a step: a value, and the kubelet versions from which it applies.

    The last of ``versions`` introduced the value. The versions before it are patch releases of
    older minor versions, to which the value was backported.
    """
    return Step(tuple(map(KubeletVersion.parse, versions)), value, evidence, gate, unsure)


def step_at(steps: Steps, version: KubeletVersion) -> Step:
    """Return the step that applies to a kubelet version: the last step that starts at this version
    or earlier."""
    return [step for step in steps if step.applies_to(version)][-1]


def value_at(steps: Steps, version: KubeletVersion, gates: Mapping[str, bool]) -> Any:
    """Return the value that ``steps`` define for a kubelet version. ``gates`` maps each feature
    gate to True if it is on."""
    step = step_at(steps, version)
    if not step.gate:
        return step.value
    terms = (term.strip() for term in step.gate.split("&"))
    return all(not gates[term[1:]] if term[0] == "!" else gates[term] for term in terms)
