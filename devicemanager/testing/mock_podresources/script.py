"""Values of a mock PodResources server's script: content, changes over time, faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from podresources.values import Allocatable, Pod

if TYPE_CHECKING:
    from devicemanager.faults import Fault

__all__ = ["DEFAULT_BURST", "DEFAULT_QPS", "Script", "Step", "with_pods"]

# ``podresources.server`` has the same values, but importing it would import gRPC.
DEFAULT_QPS, DEFAULT_BURST = 100.0, 10
"""The kubelet's rate limit: calls per second, and calls at once."""


@attrs.frozen(kw_only=True)
class Step:
    """Step of a script. It changes content or faults. A field with its default value changes
    nothing."""

    after: float = 0.0
    """Seconds between the previous step (or the start of the server) and this step."""
    pods: tuple[Pod, ...] | None = None
    """Pods that replace all pods; None keeps all pods."""
    set_pods: tuple[Pod, ...] = ()
    """Pods to add; they replace all pods of the same namespace and name."""
    delete_pods: tuple[tuple[str, str], ...] = ()
    """Namespace and name of pods to remove; unknown pods are ignored."""
    allocatable: Allocatable | None = None
    clear_faults: bool = False
    """True to clear all faults before the faults of this step are set."""
    faults: tuple[Fault, ...] = ()
    """Faults to set."""
    serving: bool | None = None
    """False: remove the socket, as if the kubelet stopped. True: serve again. None: no change."""


@attrs.frozen(kw_only=True)
class Script:
    """Script of a mock PodResources server: initial content, and steps that change it in order."""

    pods: tuple[Pod, ...] = ()
    allocatable: Allocatable = attrs.field(factory=Allocatable)
    kubelet_version: str | None = None
    """Version of the imitated kubelet, such as ``1.32``. None: the server serves everything.

    The server has only the methods and fields of this version. It omits finished pods if this
    version omits them.
    """
    qps: float | None = DEFAULT_QPS
    """Maximum calls per second over all methods; None switches the limit off."""
    burst: int = DEFAULT_BURST
    """Maximum number of calls at once, before ``qps`` limits the calls."""
    seed: int = 0
    """Seed of the random numbers for faults with a probability."""
    faults: tuple[Fault, ...] = ()
    """Faults that are set at the start."""
    steps: tuple[Step, ...] = ()
    repeat: bool = False
    """True if the script starts again with its first step after the last step."""


def with_pods(
    pods: Sequence[Pod], changed: Sequence[Pod], deleted: Sequence[tuple[str, str]]
) -> tuple[Pod, ...]:
    """Return ``pods`` with the changes of a step, sorted by namespace and name.

    Unchanged pods are the same objects, so that the server need not encode them again.
    """
    # A finished pod can have the same name as an active one.
    replaced = {_name(pod) for pod in changed}
    kept = (pod for pod in pods if _name(pod) not in replaced)
    # Delete last: a step that sets and deletes the same pod deletes it.
    found = (pod for pod in (*kept, *changed) if _name(pod) not in deleted)
    return tuple(sorted(found, key=_name))


def _name(pod: Pod) -> tuple[str, str]:
    return pod.namespace, pod.name
