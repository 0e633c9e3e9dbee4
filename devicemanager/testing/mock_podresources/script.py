"""A script of a mock PodResources server as values: content, changes over time, faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from podresources.values import Allocatable, Pod

if TYPE_CHECKING:
    from devicemanager.faults import Fault

__all__ = ["DEFAULT_BURST", "DEFAULT_QPS", "Script", "Step", "with_pods"]

DEFAULT_QPS, DEFAULT_BURST = 100.0, 10
"""The kubelet's limits. ``podresources.server`` has them, too, but importing it imports gRPC."""


@attrs.frozen(kw_only=True)
class Step:
    """A change of the content. Fields that are left out change nothing."""

    after: float = 0.0
    """Seconds after the previous step, or after the start."""
    pods: tuple[Pod, ...] | None = None
    """Pods that replace all pods."""
    set_pods: tuple[Pod, ...] = ()
    """Pods to add, or to replace those of the same namespace and name."""
    delete_pods: tuple[tuple[str, str], ...] = ()
    """Namespace and name of pods to remove; unknown ones are ignored."""
    allocatable: Allocatable | None = None
    clear_faults: bool = False
    """True if all faults are cleared before those of this step are set."""
    faults: tuple[Fault, ...] = ()
    """Faults to set."""
    serving: bool | None = None
    """False: remove the socket, as if the kubelet stops. True: serve again."""


@attrs.frozen(kw_only=True)
class Script:
    """Content at the start, and steps that change it in order."""

    pods: tuple[Pod, ...] = ()
    allocatable: Allocatable = attrs.field(factory=Allocatable)
    kubelet_version: str | None = None
    """Version whose methods, fields and pods are served, such as ``1.32``; None: all."""
    qps: float | None = DEFAULT_QPS
    """Calls per second over all methods; None switches the limit off."""
    burst: int = DEFAULT_BURST
    """Calls that are allowed at once."""
    seed: int = 0
    """Seed for faults with a probability."""
    faults: tuple[Fault, ...] = ()
    """Faults that are set at the start."""
    steps: tuple[Step, ...] = ()
    repeat: bool = False
    """True if the steps repeat from the first one after the last."""


def with_pods(
    pods: Sequence[Pod], changed: Sequence[Pod], deleted: Sequence[tuple[str, str]]
) -> tuple[Pod, ...]:
    """Return pods with the changes of a step, sorted by namespace and name.

    Unchanged pods are the same objects, so that the server need not encode them again.
    """
    # Deletions last: a step that sets and deletes the same pod deletes it.
    by_name = {(pod.namespace, pod.name): pod for pod in pods}
    by_name |= {(pod.namespace, pod.name): pod for pod in changed}
    for name in deleted:
        by_name.pop(name, None)
    return tuple(by_name[name] for name in sorted(by_name))
