"""Merge the Allocate responses of plugins into the settings of a container.

The rules are those of the simulated kubelet version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs

from devicemanager.core.api.cdi import split_name
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.ledger import AllocatedByContainer, AllocatedDevices
from devicemanager.core.versions.behaviour import Behaviour

if TYPE_CHECKING:
    from devicemanager.core.runoptions import RunOptions

_PREFIX = "cdi.k8s.io/"
_LONGEST = 63
_PART = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"


def merged_options(held: Mapping[ResourceName, AllocatedDevices]) -> RunOptions:
    """Return a container's settings, merged from the Allocate responses for its resources.

    Raises WireError if a response cannot be parsed.
    """
    # Imported here: only a container with devices needs the settings and their messages.
    from devicemanager.core import runoptions
    from devicemanager.kubelet.wire.settings import settings_from_bytes

    responses = {resource: response for resource in held if (response := held[resource].response)}
    if not responses:
        return runoptions.RunOptions()  # the usual case on an in-memory node
    return runoptions.merge({name: settings_from_bytes(each) for name, each in responses.items()})


@attrs.frozen(eq=False, repr=False)
class CdiRules:
    """Rules by which a kubelet version passes CDI devices to the container runtime."""

    uses: bool = True
    annotates: bool = False
    """True if the kubelet also passes the names of CDI devices in an annotation."""

    @classmethod
    def of(cls, behaviour: Behaviour) -> CdiRules:
        """Return the rules of the kubelet version that ``behaviour`` describes."""
        return cls(behaviour.uses_cdi, behaviour.annotates_cdi)

    def options(
        self, held: Mapping[ResourceName, AllocatedDevices], pod: PodUid, container: ContainerName
    ) -> RunOptions:
        """Return a container's settings, merged from the Allocate responses for its resources.

        These rules decide whether CDI devices are included, and whether an annotation names them.
        Raises WireError if a response cannot be parsed.
        """
        options = merged_options(held)
        if not self.uses:
            # If the feature gate is disabled or does not exist yet, the kubelet ignores the field.
            return attrs.evolve(options, cdi_devices=())
        if not self.annotates or self.problem(options, pod, container):
            return options
        annotation = {_key(pod, container): ",".join(sorted(options.cdi_devices))}
        # An annotation of a plugin with the same key has precedence.
        merged = {**annotation, **options.annotations} if options.cdi_devices else {}
        annotations = {name: merged[name] for name in sorted(merged)}
        return attrs.evolve(options, annotations=annotations or options.annotations)

    def merging(
        self, held: AllocatedByContainer, pod: PodUid, container: ContainerName
    ) -> Callable[[], RunOptions] | None:
        """Return a function without arguments that returns the container's ``options``.

        Returns None if ``merged_options`` returns the same settings for this kubelet version.
        """
        if self.uses and not self.annotates:
            return None
        return partial(self.options, held.get(container, {}), pod, container)

    def problem(self, options: RunOptions, pod: PodUid, container: ContainerName) -> str:
        """Return the reason why CDI devices cannot be passed in an annotation, else an empty text.

        Follows ``cdi.GenerateAnnotations``, pkg/kubelet/cm/util/cdi, v1.28.
        """
        if not self.annotates or not options.cdi_devices:
            return ""
        part = _key(pod, container).removeprefix(_PREFIX)
        if len(part) > _LONGEST:
            return f"{part} has more than {_LONGEST} characters"
        if not re.fullmatch(_PART, part):
            return f"{part} is not a valid annotation name"
        unqualified = [name for name in options.cdi_devices if split_name(name) is None]
        return f"{unqualified[0]!r} is not a qualified CDI name" if unqualified else ""


def _key(pod: PodUid, container: ContainerName) -> str:
    return f"{_PREFIX}devicemanager_{pod}-{container}"
