"""The result of an admission, as ``MockKubelet.admit`` returns it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.core.ids import ResourceName
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.core.pods import Pod
from devicemanager.core.printable import one_line
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
    """A container of an admitted pod, with its devices and settings."""

    name: str
    holdings: Mapping[ResourceName, AllocatedDevices] = attrs.field(repr=False)
    affinity: tuple[int, ...] | None = None
    """NUMA nodes that the container's devices are aligned to; None for no affinity."""
    options: RunOptions | None = attrs.field(default=None, repr=False)
    """The merged settings that the container was started with; None if it was not started."""
    error: str = ""
    """The error if the start of the container failed; otherwise empty."""
    claims: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Devices of the claims that the container uses: claim name → devices as ``pool/device``. The
    claims are the structured claims of the pod (docs/claims.md). If the pod has none, they are its
    ResourceClaims."""
    # A function instead of the settings: merging decodes the plugins' responses, and most tests
    # never read the settings.
    merging: Callable[[], RunOptions] | None = attrs.field(default=None, repr=False, eq=False)
    """Function that merges the settings of the container by the rules of the simulated kubelet
    version, and returns them. None if these rules are those of the newest version."""

    @property
    def devices(self) -> dict[str, list[str]]:
        """Sorted device IDs, by resource."""
        return {resource: sorted(self.holdings[resource].ids) for resource in self.holdings}

    @property
    def run_options(self) -> RunOptions:
        """The container's settings, merged from the plugins' Allocate responses.

        Raises WireError if a plugin's response cannot be parsed.
        """
        if self.options is not None:
            return self.options
        return merged_options(self.holdings) if self.merging is None else self.merging()

    def oci(self, cdi: Registry | None = None) -> Fragment:
        """Return the part of an OCI configuration that results from the container's settings.

        Device nodes are read from this host. CDI devices come from ``cdi``, or by default from the
        specification files in ``/etc/cdi`` and ``/var/run/cdi``. Raises OciError if a
        device is missing on the host, or if a setting cannot be rendered. Raises CdiError for CDI
        devices that no file defines, and WireError if a plugin's response cannot be parsed.
        """
        # Imported here: only tests that render OCI need the runtime, and it loads YAML.
        from devicemanager.kubelet.runtime.cdi import load
        from devicemanager.kubelet.runtime.oci import render

        options = self.run_options
        return render(options, load() if cdi is None and options.cdi_devices else cdi)


class NoContainers(dict[str, Any]):
    """Empty dict that a rejected pod has as ``Admission.containers``. A lookup raises KeyError with
    the reason of the rejection."""

    def __init__(self, rejection: str) -> None:
        super().__init__()
        self._rejection = rejection

    # A test that forgets to check ``admitted`` fails here, so the error shows the rejection.
    def __missing__(self, name: str) -> ContainerOutcome:
        raise KeyError(f"no container {name}, because {self._rejection}")


class LazyExplanation:
    """Callable that returns the explanation of an admission; the first call builds it."""

    # Explaining takes longer than admitting, and most explanations are never read.
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
    """The result of ``admit``: the devices and settings of the containers, or the rejection.

    For a rejected pod, ``reason`` and ``message`` are those of the pod's status.
    """

    pod: Pod
    admitted: bool
    reason: str = ""
    message: str = ""
    containers: Mapping[str, ContainerOutcome] = attrs.field(factory=dict)
    """Containers by name. A rejected pod has no containers: a lookup raises KeyError with the
    rejection."""
    explaining: Callable[[], AdmissionExplanation] | None = attrs.field(
        default=None, repr=False, eq=False
    )
    """Function that returns the explanation. The field is None if the pod was rejected before
    allocation."""
    undecided: bool = False
    """True if the pod was rejected because the search for devices for its structured claims reached
    a limit. A longer search might have found devices."""

    @property
    def uid(self) -> str:
        """The pod's UID, which identifies it in all other calls."""
        return self.pod.uid

    @property
    def explanation(self) -> AdmissionExplanation | None:
        """The explanation why the pod was allocated these devices, or was rejected.

        The explanation has the NUMA hints, the merged hint, and the free devices by NUMA node. None
        if the pod was rejected before allocation.
        """
        return None if self.explaining is None else self.explaining()

    def explain(self) -> str:
        """Return the explanation as text, with a drawing of NUMA nodes and devices."""
        from devicemanager.core.explanation.text import render

        explanation = self.explanation
        if explanation is None:
            text = f"pod {self.pod.namespace}/{self.pod.name} rejected: {self.message}"
            return f"{one_line(text)}\n"
        return render(explanation)

    def raise_for_rejection(self) -> None:
        """Raise Rejected if the pod was rejected."""
        if not self.admitted:
            raise Rejected(self.reason, self.message)

    # ``if kubelet.admit(pod):`` would be true for a rejected pod, too.
    def __bool__(self) -> bool:
        raise TypeError("an Admission has no truth value: use admission.admitted")


def affinity_nodes(hint: Hint | None) -> tuple[int, ...] | None:
    """Return the NUMA nodes of a hint; None if the hint is None or has no mask."""
    return None if hint is None or hint.mask is None else nodes_of(hint.mask)
