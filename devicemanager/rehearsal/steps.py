"""Steps of a rehearsal, as values: each describes a change of a node, and does nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from devicemanager.core.pods import Pod

__all__ = [
    "Admit",
    "Configure",
    "Drain",
    "Reboot",
    "Restart",
    "SetDevices",
    "Step",
    "WithoutPlugin",
    "with_starts",
]


@attrs.frozen
class Restart:
    """Step: the kubelet restarts; containers keep running."""


@attrs.frozen
class Reboot:
    """Step: the node reboots; all containers stop."""


@attrs.frozen
class Configure:
    """Step: the kubelet's version or configuration changes. It applies from the next kubelet start.

    A setting whose field is None or empty does not change.
    """

    kubelet_version: str | None = None
    policy: str | None = None
    """Policy of the Topology Manager."""
    scope: str | None = None
    """Scope of the Topology Manager."""
    options: Mapping[str, str] = attrs.field(factory=dict)
    """Policy options of the Topology Manager, by name, in addition to the present options."""

    def then(self, later: Configure) -> Configure:
        """Return one step that has the effects of this step and then of ``later``."""
        return Configure(
            later.kubelet_version or self.kubelet_version,
            later.policy or self.policy,
            later.scope or self.scope,
            {**self.options, **later.options},
        )


@attrs.frozen
class WithoutPlugin:
    """Step: the plugin of a resource, or a DRA driver, stops. It does not register again after a
    kubelet start."""

    resource: str


@attrs.frozen
class SetDevices:
    """Step: from now on, the plugin of a resource advertises other devices than before.

    ``devices``: a number, or a specification such as ``8@0,1`` (8 devices on NUMA nodes 0 and 1). A
    number keeps the first devices by ID, and adds devices ``new-0``, ``new-1`` and so on if there
    are too few. A specification replaces all devices.
    """

    resource: str
    devices: int | str


@attrs.frozen
class Admit:
    """Step: the kubelet gets a new pod, and admits or rejects it."""

    pod: Pod


@attrs.frozen
class Drain:
    """Step: all pods with devices, exclusive CPUs, exclusive memory or ResourceClaims are
    deleted."""


Step: TypeAlias = Restart | Reboot | Configure | WithoutPlugin | SetDevices | Admit | Drain
"""Any step of a rehearsal, such as ``Restart``."""


def with_starts(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return ``steps``, with a kubelet start after the last ``Configure``.

    If ``steps`` has no restart or reboot after the last ``Configure``, a ``Restart`` is inserted
    directly after this ``Configure``.
    """
    starts = [number for number, step in enumerate(steps) if isinstance(step, Restart | Reboot)]
    changes = [number for number, step in enumerate(steps) if isinstance(step, Configure)]
    # Not at the end: the steps after the last change must meet the new configuration.
    if changes and (not starts or starts[-1] < changes[-1]):
        return (*steps[: changes[-1] + 1], Restart(), *steps[changes[-1] + 1 :])
    return tuple(steps)
