"""Texts about kubelet versions: which one changed a behavior, and how the mock was verified."""

from __future__ import annotations

from devicemanager.core.versions.steps import Step, step_at
from devicemanager.core.versions.table import STEPS
from devicemanager.core.versions.verified import VERIFIED
from devicemanager.core.versions.version import KubeletVersion

DRA_COMPARED = ("1.32.13", "1.34.4", "1.36.3", "1.37.2")
"""The releases whose DRA manager was compared with the mock in random scenarios."""


def describe(behaviour: str, version: KubeletVersion) -> str:
    """Return a text such as ``kubelets do this since 1.24 (k/k#108052)``; empty if ``behaviour``
    is empty.

    ``behaviour`` is the name of a field of ``Behaviour``, which has some value in ``version``. The
    text names the kubelet version that introduced this value. If the oldest kubelet already has
    this value, the text is ``kubelets do this before 1.24``, with the first version that has
    another value. If the field has the same value in all versions, the text is empty.
    """
    steps = STEPS[behaviour] if behaviour else ()
    if len(steps) < 2:
        return ""
    step = step_at(steps, version)
    if step is not steps[0]:
        return f"kubelets do this since {_versions(step)}"
    return f"kubelets do this before {_versions(steps[1])}"


def warning(version: KubeletVersion) -> str:
    """Return a warning if the mock of this minor version was not compared with a real kubelet;
    otherwise an empty text."""
    if version.minor in VERIFIED:
        return ""
    return f"the mock of kubelet {version} was not compared with a real kubelet"


def basis(version: KubeletVersion) -> str:
    """Return a text that says how the mock of a version was compared with a real kubelet."""
    verified = VERIFIED.get(version.minor)
    if verified is None:
        return read_basis(version)
    return f"{version}, verified with {verified.scenarios} scenarios of {verified.release}"


def read_basis(version: KubeletVersion) -> str:
    """Return a text such as ``1.24, based only on its source code``, for a behaviour that was not
    compared with a real kubelet."""
    return f"{version}, based only on its source code"


def dra_basis(version: KubeletVersion) -> str:
    """Return a text that says how the mock's DRA manager was compared with a real DRA manager."""
    compared = {KubeletVersion.parse(each).minor: each for each in DRA_COMPARED}
    release = compared.get(version.minor)
    if release is None:
        return f"{version}, DRA based only on its source code"
    return f"{version}, DRA compared with {release}"


def _versions(step: Step) -> str:
    *others, last = map(str, step.since)
    text = f"{', '.join(others)} and {last}" if others else last
    return f"{text} ({step.evidence})" if step.evidence else text
