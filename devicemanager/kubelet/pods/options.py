"""A container's settings as a version of the kubelet makes them of the plugins' answers."""

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

__all__ = ["CdiRules", "merged_options"]

_PREFIX = "cdi.k8s.io/"
_LONGEST = 63
_PART = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"


def merged_options(held: Mapping[ResourceName, AllocatedDevices]) -> RunOptions:
    """What a container gets from all its resources together. Raises WireError if a stored
    response cannot be read."""
    from devicemanager.core import runoptions
    from devicemanager.kubelet.wire.settings import settings_from_bytes

    said = {resource: response for resource in held if (response := held[resource].response)}
    if not said:
        return runoptions.RunOptions()  # as those of a light node always are
    return runoptions.merge({name: settings_from_bytes(each) for name, each in said.items()})


@attrs.frozen(eq=False, repr=False)
class CdiRules:
    """What becomes of the CDI devices that plugins name."""

    uses: bool = True
    annotates: bool = False
    """Whether they are told to the runtime as an annotation besides."""

    @classmethod
    def of(cls, behaviour: Behaviour) -> CdiRules:
        """Those of a version of the kubelet."""
        return cls(behaviour.uses_cdi, behaviour.annotates_cdi)

    def options(
        self, held: Mapping[ResourceName, AllocatedDevices], pod: PodUid, container: ContainerName
    ) -> RunOptions:
        """As ``merged_options``, by these rules."""
        options = merged_options(held)
        if not self.uses:
            return attrs.evolve(options, cdi_devices=())
        if not self.annotates or self.fault(options, pod, container):
            return options
        annotation = {_key(pod, container): ",".join(sorted(options.cdi_devices))}
        merged = {**annotation, **options.annotations} if options.cdi_devices else {}
        annotations = {name: merged[name] for name in sorted(merged)}
        return attrs.evolve(options, annotations=annotations or options.annotations)

    def merging(
        self, held: AllocatedByContainer, pod: PodUid, container: ContainerName
    ) -> Callable[[], RunOptions] | None:
        """What ``options`` will be asked for later; None if ``merged_options`` will do."""
        if self.uses and not self.annotates:
            return None
        return partial(self.options, held.get(container, {}), pod, container)

    def fault(self, options: RunOptions, pod: PodUid, container: ContainerName) -> str:
        """Why there is no annotation of a container's CDI devices; empty if there is one, or
        nothing to annotate (``cdi.GenerateAnnotations``, pkg/kubelet/cm/util/cdi, v1.28)."""
        if not self.annotates or not options.cdi_devices:
            return ""
        part = _key(pod, container).removeprefix(_PREFIX)
        if len(part) > _LONGEST:
            return f"{part} has more than {_LONGEST} characters"
        if not re.fullmatch(_PART, part):
            return f"{part} is not the name of an annotation"
        unqualified = [name for name in options.cdi_devices if split_name(name) is None]
        return f"{unqualified[0]!r} is not a qualified CDI name" if unqualified else ""


def _key(pod: PodUid, container: ContainerName) -> str:
    return f"{_PREFIX}devicemanager_{pod}-{container}"
