"""What a PodResources service says, and how that changes, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from podresources.values import Allocatable, Pod

if TYPE_CHECKING:
    from devicemanager.faults import Fault

__all__ = ["DEFAULT_BURST", "DEFAULT_QPS", "Script", "Step", "with_pods"]

DEFAULT_QPS, DEFAULT_BURST = 100.0, 10
"""The kubelet's limits, as in ``podresources.server``, which loads gRPC."""


@attrs.frozen(kw_only=True)
class Step:
    """A change. What is left out stays as it is."""

    after: float = 0.0
    """Seconds after the step before, or after the start."""
    pods: tuple[Pod, ...] | None = None
    """All pods from now on."""
    set_pods: tuple[Pod, ...] = ()
    """Pods that are added, or take the place of those of the same namespace and name."""
    delete_pods: tuple[tuple[str, str], ...] = ()
    """Namespace and name of pods that are gone; one that is not there may be named."""
    allocatable: Allocatable | None = None
    clear_faults: bool = False
    """Whether the faults that are set are cleared, before others are set."""
    faults: tuple[Fault, ...] = ()
    """Faults that are set."""
    serving: bool | None = None
    """False: the socket is gone, as that of a kubelet that is away. True: it is there again."""


@attrs.frozen(kw_only=True)
class Script:
    """Content from the start, and steps that change it one after another."""

    pods: tuple[Pod, ...] = ()
    allocatable: Allocatable = attrs.field(factory=Allocatable)
    kubelet_version: str | None = None
    """Whose methods, fields and pods the answers have, such as ``1.32``; None: all there are."""
    qps: float | None = DEFAULT_QPS
    """Calls per second over all methods; None switches the limit off."""
    burst: int = DEFAULT_BURST
    """Calls that are let in at once."""
    seed: int = 0
    """Decides where a fault has a probability."""
    faults: tuple[Fault, ...] = ()
    """Set from the start."""
    steps: tuple[Step, ...] = ()
    repeat: bool = False
    """Whether the steps begin anew after the last one."""


def with_pods(
    pods: Sequence[Pod], changed: Sequence[Pod], deleted: Sequence[tuple[str, str]]
) -> tuple[Pod, ...]:
    """Pods with a step's changes, sorted by namespace and name. One that did not change is
    the same object, which need not be encoded again."""
    found = {(pod.namespace, pod.name): pod for pod in pods}
    found |= {(pod.namespace, pod.name): pod for pod in changed}
    for name in deleted:
        found.pop(name, None)
    return tuple(found[name] for name in sorted(found))
