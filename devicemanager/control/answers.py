"""An admission as a client sees it; meets ``AdmissionView``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from devicemanager.control import convert, shapes
from devicemanager.core.errors import RequestError
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import Rejected
from devicemanager.core.runoptions import RunOptions
from devicemanager.kubelet.wire.errors import WireError

__all__ = ["RemoteAdmission", "RemoteContainer", "RemoteFragment"]


@attrs.frozen
class RemoteFragment:
    """A part of an OCI configuration, as the kubelet's host made it."""

    config: Mapping[str, Any]


class RemoteContainer:
    """One container of an admitted pod."""

    def __init__(self, name: str, shape: shapes.ContainerOutcome) -> None:
        self.name = name
        self._shape = shape

    @property
    def devices(self) -> dict[str, list[str]]:
        """Device ids per resource, sorted."""
        return self._shape.devices

    @property
    def affinity(self) -> tuple[int, ...] | None:
        """NUMA nodes it was aligned to; None for no affinity."""
        nodes = self._shape.numa_nodes
        return None if nodes is None else tuple(nodes)

    @property
    def claims(self) -> dict[str, tuple[str, ...]]:
        """The devices of its structured claims, as ``pool/device``."""
        return {name: tuple(devices) for name, devices in self._shape.claims.items()}

    @property
    def error(self) -> str:
        """Why the container did not start; empty if it did."""
        return self._shape.start_error or ""

    @property
    def run_options(self) -> RunOptions:
        """The merged settings of all resources. Raises WireError if the plugin's answer
        cannot be read."""
        if self._shape.settings is None:
            raise WireError(self._shape.settings_error or "there are no settings")
        return self._shape.settings

    def oci(self) -> RemoteFragment:
        """What a runtime of the kubelet's host would be told. Raises RequestError where that
        cannot be had."""
        if self._shape.oci is None:
            raise RequestError(self._shape.oci_error or "there is no OCI configuration")
        return RemoteFragment(self._shape.oci)


class RemoteAdmission:
    """The answer to ``admit``."""

    def __init__(self, shape: shapes.Admission) -> None:
        self.shape = shape
        """Everything that was answered."""

    @property
    def uid(self) -> str:
        return self.shape.pod.uid

    @cached_property
    def pod(self) -> Pod:
        return convert.record_from(self.shape.pod).pod

    @property
    def admitted(self) -> bool:
        return self.shape.admitted

    @property
    def reason(self) -> str:
        return self.shape.reason

    @property
    def message(self) -> str:
        return self.shape.message

    @cached_property
    def containers(self) -> Mapping[str, RemoteContainer]:
        """By name; of a pod that was not admitted there is none, and asking says why."""
        if not self.admitted:
            from devicemanager.kubelet.pods.admission import NoContainers

            pod = self.shape.pod
            why = f"{self.reason}: {self.message}"
            return NoContainers(f"pod {pod.namespace}/{pod.name} was rejected: {why}")
        return {name: RemoteContainer(name, each) for name, each in self.shape.containers.items()}

    def explain(self) -> str:
        """The explanation as text, with a drawing of NUMA nodes and devices."""
        return self.shape.explanation_text

    def raise_for_rejection(self) -> None:
        """Raises Rejected if the pod was not admitted."""
        if not self.admitted:
            raise Rejected(self.reason, self.message)

    def __bool__(self) -> bool:
        raise TypeError("ask for .admitted: an Admission is true either way")
