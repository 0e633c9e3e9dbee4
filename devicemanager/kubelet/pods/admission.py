"""What an admission answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.core.ids import ResourceName
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import Hint
from devicemanager.core.topology.numa import nodes_of
from devicemanager.kubelet.pods.options import merged_options

if TYPE_CHECKING:
    from devicemanager.core.explanation.model import AdmissionExplanation
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.kubelet.runtime.cdi import Registry
    from devicemanager.kubelet.runtime.oci import Fragment


@attrs.frozen
class ContainerOutcome:
    """One container of an admitted pod."""

    name: str
    holdings: Mapping[ResourceName, AllocatedDevices] = attrs.field(repr=False)
    affinity: tuple[int, ...] | None = None
    """NUMA nodes it was aligned to; None for no affinity."""
    options: RunOptions | None = attrs.field(default=None, repr=False)
    """The merged settings it was started with; None if it was not started."""
    error: str = ""
    """Why the container did not start; empty if it did, or was not asked to."""
    claims: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """The devices of the structured claims that the container uses, as ``pool/device``."""
    merging: Callable[[], RunOptions] | None = attrs.field(default=None, repr=False, eq=False)
    """Merges the settings by rules of the kubelet's version; None by those of today."""

    @property
    def devices(self) -> dict[str, list[str]]:
        """Device ids per resource, sorted."""
        return {resource: sorted(self.holdings[resource].ids) for resource in self.holdings}

    @property
    def run_options(self) -> RunOptions:
        """The merged settings of all resources. Raises WireError if the plugin's answer
        cannot be read."""
        if self.options is not None:
            return self.options
        return merged_options(self.holdings) if self.merging is None else self.merging()

    def oci(self, cdi: Registry | None = None) -> Fragment:
        """What a runtime would be told of the settings: part of an OCI configuration.

        Reads the device nodes of this host, and for CDI devices the specification files in
        ``/etc/cdi`` and ``/var/run/cdi`` unless ``cdi`` has them. Raises OciError for what
        is not there or cannot be rendered, CdiError for CDI devices that no file has, and
        WireError as :attr:`run_options`.
        """
        from devicemanager.kubelet.runtime.cdi import load
        from devicemanager.kubelet.runtime.oci import render

        options = self.run_options
        return render(options, load() if cdi is None and options.cdi_devices else cdi)


class NoContainers(dict[str, Any]):
    """The containers of a rejected pod: none. A look for one is a KeyError that says why."""

    def __init__(self, rejection: str) -> None:
        super().__init__()
        self._rejection = rejection

    def __missing__(self, name: str) -> ContainerOutcome:
        raise KeyError(f"{name}: {self._rejection}")


class Once:
    """An explanation that is built when it is first asked for, and kept."""

    __slots__ = ("_build", "_built")

    def __init__(self, build: Callable[[], AdmissionExplanation]) -> None:
        self._build = build
        self._built: AdmissionExplanation | None = None

    def __call__(self) -> AdmissionExplanation:
        if self._built is None:
            self._built = self._build()
        return self._built


@attrs.frozen
class Admission:
    """The answer to ``admit``: the containers' devices and settings, or the rejection with
    the reason and message of the pod's status."""

    pod: Pod
    admitted: bool
    reason: str = ""
    message: str = ""
    containers: Mapping[str, ContainerOutcome] = attrs.field(factory=dict)
    """By name; of a pod that was not admitted there is none, and asking says why."""
    explaining: Callable[[], AdmissionExplanation] | None = attrs.field(
        default=None, repr=False, eq=False
    )
    """Builds the explanation when it is asked for."""

    @property
    def uid(self) -> str:
        """The pod's UID, by which everything else asks for it."""
        return self.pod.uid

    @property
    def explanation(self) -> AdmissionExplanation | None:
        """Why these devices, or why none: hints, their merge, what was free where. None if
        the pod did not get as far as allocation."""
        return None if self.explaining is None else self.explaining()

    def explain(self) -> str:
        """The explanation as text, with a drawing of NUMA nodes and devices."""
        from devicemanager.core.explanation.text import render

        explanation = self.explanation
        if explanation is None:
            return f"pod {self.pod.namespace}/{self.pod.name} rejected: {self.message}\n"
        return render(explanation)

    def raise_for_rejection(self) -> None:
        """Raises Rejected if the pod was not admitted."""
        if not self.admitted:
            raise Rejected(self.reason, self.message)

    def __bool__(self) -> bool:
        raise TypeError("ask for .admitted: an Admission is true either way")


def affinity_nodes(hint: Hint | None) -> tuple[int, ...] | None:
    """A hint's NUMA nodes, None for no affinity."""
    return None if hint is None or hint.mask is None else nodes_of(hint.mask)
