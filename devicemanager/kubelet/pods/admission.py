"""The result of an admission, as ``MockKubelet.admit`` returns it."""

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
    """NUMA nodes that it was aligned to; None for no affinity."""
    options: RunOptions | None = attrs.field(default=None, repr=False)
    """The merged settings it was started with; None if it was not started."""
    error: str = ""
    """Why the container did not start; empty if it did, or was not to be started."""
    claims: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Devices of the structured claims that the container uses, as ``pool/device``."""
    # A function, not the settings: merging decodes the responses of plugins, and most tests never
    # read the settings.
    merging: Callable[[], RunOptions] | None = attrs.field(default=None, repr=False, eq=False)
    """Merges the settings by the rules of the kubelet's version; None for the current rules."""

    @property
    def devices(self) -> dict[str, list[str]]:
        """Device IDs by resource, sorted."""
        return {resource: sorted(self.holdings[resource].ids) for resource in self.holdings}

    @property
    def run_options(self) -> RunOptions:
        """The merged settings of all resources. Raises WireError if a plugin's response is
        unreadable."""
        if self.options is not None:
            return self.options
        return merged_options(self.holdings) if self.merging is None else self.merging()

    def oci(self, cdi: Registry | None = None) -> Fragment:
        """Return the part of an OCI configuration that the settings make.

        Reads the device nodes of this host, and for CDI devices the specification files in
        ``/etc/cdi`` and ``/var/run/cdi`` unless ``cdi`` has them. Raises OciError for a setting
        that is missing on the host or cannot be rendered, CdiError for CDI devices that no file
        defines, and WireError as :attr:`run_options`.
        """
        # Imported here: only tests that render OCI need the runtime, and it loads YAML.
        from devicemanager.kubelet.runtime.cdi import load
        from devicemanager.kubelet.runtime.oci import render

        options = self.run_options
        return render(options, load() if cdi is None and options.cdi_devices else cdi)


class NoContainers(dict[str, Any]):
    """Containers of a rejected pod: none. Looking one up is a KeyError with the reason."""

    def __init__(self, rejection: str) -> None:
        super().__init__()
        self._rejection = rejection

    # A dict that explains missing keys, because a test that forgets to check ``admitted`` fails
    # here.
    def __missing__(self, name: str) -> ContainerOutcome:
        raise KeyError(f"{name}: {self._rejection}")


class LazyExplanation:
    """An explanation that is built on first use."""

    # Explaining costs more than admitting; most explanations are never read.
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
    """The result of ``admit``: the containers' devices and settings, or the rejection.

    A rejection has the reason and message of the pod's status.
    """

    pod: Pod
    admitted: bool
    reason: str = ""
    message: str = ""
    containers: Mapping[str, ContainerOutcome] = attrs.field(factory=dict)
    """By name. A rejected pod has none, and looking one up is a KeyError with the reason."""
    explaining: Callable[[], AdmissionExplanation] | None = attrs.field(
        default=None, repr=False, eq=False
    )
    """Builds the explanation on first use."""

    @property
    def uid(self) -> str:
        """The pod's UID, which identifies it in all other calls."""
        return self.pod.uid

    @property
    def explanation(self) -> AdmissionExplanation | None:
        """Why the pod got these devices, or none.

        It has the hints, their merge, and the free devices by NUMA node. None if the pod was
        rejected before allocation.
        """
        return None if self.explaining is None else self.explaining()

    def explain(self) -> str:
        """Return the explanation as text, with a drawing of NUMA nodes and devices."""
        from devicemanager.core.explanation.text import render

        explanation = self.explanation
        if explanation is None:
            return f"pod {self.pod.namespace}/{self.pod.name} rejected: {self.message}\n"
        return render(explanation)

    def raise_for_rejection(self) -> None:
        """Raise Rejected if the pod was rejected."""
        if not self.admitted:
            raise Rejected(self.reason, self.message)

    # ``if kubelet.admit(pod):`` would be true for a rejected pod, too.
    def __bool__(self) -> bool:
        raise TypeError("an Admission has no truth value: use its .admitted")


def affinity_nodes(hint: Hint | None) -> tuple[int, ...] | None:
    """Return the NUMA nodes of a hint; None for no affinity."""
    return None if hint is None or hint.mask is None else nodes_of(hint.mask)
