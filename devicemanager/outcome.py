"""What an admission answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

from devicemanager.core import runoptions
from devicemanager.core.errors import Refused
from devicemanager.core.ids import ResourceName
from devicemanager.core.ledger import Holding
from devicemanager.core.pods import Pod
from devicemanager.core.runoptions import RunOptions
from devicemanager.core.topology import Hint
from devicemanager.core.topology.numa import nodes_of
from devicemanager.wire import settings_from_bytes


def merged_options(held: Mapping[ResourceName, Holding]) -> RunOptions:
    """What a container gets from all its resources together. Raises WireError if a stored
    response cannot be read."""
    return runoptions.merge(
        {resource: settings_from_bytes(held[resource].response or b"") for resource in held}
    )


@attrs.frozen(slots=False)
class ContainerOutcome:
    """One container of an admitted pod."""

    name: str
    holdings: Mapping[ResourceName, Holding] = attrs.field(repr=False)
    affinity: tuple[int, ...] | None = None
    """NUMA nodes it was aligned to; None for no affinity."""
    error: str = ""
    """Why the container did not start; empty if it did, or was not asked to."""

    @property
    def devices(self) -> dict[str, list[str]]:
        """Device ids per resource, sorted."""
        return {resource: sorted(self.holdings[resource].ids) for resource in self.holdings}

    @cached_property
    def run_options(self) -> RunOptions:
        """The merged settings of all resources. Raises WireError if the plugin's answer
        cannot be read."""
        return merged_options(self.holdings)


@attrs.frozen
class Admission:
    """The answer to ``admit``: the containers' devices and settings, or the refusal with
    the reason and message of the pod's status."""

    pod: Pod
    admitted: bool
    reason: str = ""
    message: str = ""
    containers: Mapping[str, ContainerOutcome] = attrs.field(factory=dict)

    def raise_for_refusal(self) -> None:
        """Raises Refused if the pod was not admitted."""
        if not self.admitted:
            raise Refused(self.reason, self.message)

    def __bool__(self) -> bool:
        raise TypeError("ask for .admitted: an Admission is true either way")


def affinity_nodes(hint: Hint | None) -> tuple[int, ...] | None:
    """A hint's NUMA nodes, None for no affinity."""
    return None if hint is None or hint.mask is None else nodes_of(hint.mask)
