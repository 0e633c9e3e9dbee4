"""Steps of a rehearsal: changes of the node, as values."""

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
    """The kubelet restarts; containers keep running."""


@attrs.frozen
class Reboot:
    """The node reboots; all containers stop."""


@attrs.frozen
class Configure:
    """The kubelet gets another version or configuration, which applies from its next start on.

    None, and an empty mapping, leave a value as it is.
    """

    kubelet_version: str | None = None
    policy: str | None = None
    """Policy of the Topology Manager."""
    scope: str | None = None
    """Scope of the Topology Manager."""
    options: Mapping[str, str] = attrs.field(factory=dict)
    """Policy options of the Topology Manager, which are added to the present ones."""

    def then(self, later: Configure) -> Configure:
        """Return one change with the effect of this one and a later one."""
        return Configure(
            later.kubelet_version or self.kubelet_version,
            later.policy or self.policy,
            later.scope or self.scope,
            {**self.options, **later.options},
        )


@attrs.frozen
class WithoutPlugin:
    """The plugin of a resource stops, and does not return after starts."""

    resource: str


@attrs.frozen
class SetDevices:
    """The plugin of a resource advertises other devices from now on.

    A number keeps the first devices in the order of their IDs. If there are too few, numbered
    devices are added. A text such as ``8@0,1`` replaces all devices.
    """

    resource: str
    devices: int | str


@attrs.frozen
class Admit:
    """A new pod is admitted."""

    pod: Pod


@attrs.frozen
class Drain:
    """All pods with devices, exclusive CPUs or exclusive memory are deleted."""


Step: TypeAlias = Restart | Reboot | Configure | WithoutPlugin | SetDevices | Admit | Drain


def with_starts(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps, with a restart at the end if a change of the configuration has not been
    applied by a start."""
    starts = [number for number, step in enumerate(steps) if isinstance(step, Restart | Reboot)]
    changes = [number for number, step in enumerate(steps) if isinstance(step, Configure)]
    if changes and (not starts or starts[-1] < changes[-1]):
        return (*steps, Restart())
    return tuple(steps)
