"""The data that a kubelet reports over HTTP: health, counters and pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import attrs

from devicemanager.core import messages
from devicemanager.core.errors import RequestError
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.containers import ContainerStatus
from devicemanager.core.status import ResourceStatus
from devicemanager.core.versions.behaviour import HealthCheck
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.pod_report import PodReport, pod_report
from devicemanager.kubelet.pods.records import PodRecord, PodStore

if TYPE_CHECKING:
    from devicemanager.core.dra.report import DraStatus
    from devicemanager.io.clock import Clock
    from devicemanager.kubelet.gpus import GpuStats
    from devicemanager.kubelet.pods.usage import NodeStats
    from devicemanager.kubelet.process import KubeletProcess
    from devicemanager.kubelet.settings import Settings

__all__ = [
    "DeviceCounts",
    "NodeInfo",
    "NodeTelemetry",
    "Telemetry",
    "registration_failure",
]


@attrs.frozen
class DeviceCounts:
    """Numbers of devices of one resource."""

    capacity: int
    allocatable: int
    """Number of healthy devices, allocated or not."""
    held: int
    """Number of allocated devices that the plugin still advertises, healthy or not."""


@attrs.frozen(eq=False)
class NodeTelemetry:
    """Telemetry of a ``MockKubelet`` or an ``InMemoryKubelet``. Thread-safe.

    Its methods never wait for a plugin, and also work while the kubelet is stopped.
    """

    _manager: Callable[[], DeviceManager]
    """Returns the device manager. Raises RequestError if the kubelet is stopped."""
    _resources: Callable[[str], Mapping[str, tuple[ResourceStatus, ...]]]
    """Returns ``allocatedResourcesStatus`` by container for the UID of a pod. Raises RequestError
    if the kubelet is stopped."""
    _pods: PodStore

    def device_counts(self) -> Mapping[str, DeviceCounts]:
        """Return the device counts of each resource in the node's capacity, sorted by resource.

        The keys are resource names. The mapping is empty while the kubelet is stopped.
        """
        try:
            state = self._manager().state
        except RequestError:
            return {}  # metrics are scraped from a stopped kubelet, too
        with state.lock:
            return {
                str(resource): DeviceCounts(
                    devices.capacity,
                    devices.allocatable,
                    state.ledger.in_use(resource, devices.device_index).bit_count(),
                )
                for resource, devices in state.endpoints.resources()
            }

    def containers(self) -> tuple[tuple[Pod, tuple[ContainerStatus, ...]], ...]:
        """Return all known pods with the statuses of their containers.

        Only containers that were started or failed to start have a status.
        """
        # Copied under the lock, because a start of a container changes the mapping of statuses.
        with self._pods.lock:
            return tuple([(each.pod, (*each.statuses.values(),)) for each in self._pods.records()])

    def usage(self, now: float) -> NodeStats | None:
        """Return the CPU and memory usage of the node and its pods at the time ``now``.

        ``now`` is in seconds since the epoch. Returns None for a node that is not in a cluster.
        """
        # Imported here, because a start of the kubelet does not need it.
        from devicemanager.kubelet.pods.usage import node_stats

        return node_stats(self._pods, now)

    def gpus(self) -> list[GpuStats]:
        """Return the usage of the node's GPUs; empty while the kubelet is stopped."""
        from devicemanager.kubelet.gpus import gpu_stats
        from devicemanager.kubelet.inventory import devices

        try:
            state = self._manager().state
        except RequestError:
            return []
        return gpu_stats(self._pods, devices(state))

    def pods(self) -> tuple[PodReport, ...]:
        """Return a report on each pod that is not deleted, in the order of admission.

        While the kubelet is stopped, the reports do not have the health of devices.
        """
        # Locked once for every pod: a thousand reports under one lock would delay admissions.
        return tuple([self._report(record) for record in self._pods.records()])

    def pod(self, namespace: str, name: str) -> PodReport | None:
        """Return the pod with this namespace and name; None if it is unknown."""
        for record in self._pods.records():
            if (record.pod.namespace, record.pod.name) == (namespace, name):
                return self._report(record)
        return None

    def _report(self, record: PodRecord) -> PodReport:
        return pod_report(record, self._resources, self._pods)


@attrs.frozen(eq=False)
class Telemetry(NodeTelemetry):
    """Telemetry of a ``MockKubelet``. It adds health, DRA drivers and API calls to
    ``NodeTelemetry``."""

    _check: HealthCheck
    _serving: Callable[[], KubeletProcess | None]
    _latest: Callable[[], KubeletProcess | None]
    """Returns the running process, or the last process if the kubelet is stopped."""

    def registration_failure(self) -> str:
        """Return the error text of this kubelet version's ``/healthz`` check ``device-plugin``.

        The text is empty if plugins can register, or if the version does not have this check.
        """
        # ``_latest`` also has a process that has stopped: ``/healthz`` is served all the time.
        process = self._latest()
        error = None if process is None else process.registration_error
        return registration_failure(self._check, has_started=process is not None, error=error)

    def pod_resources_counters(self) -> Mapping[tuple[str, str], int]:
        """Return the numbers of PodResources calls since the kubelet started, as a mapping.

        A key is a pair: the name of the metric, and the value of its label ``server_api_version``.
        The mapping is empty while the kubelet is stopped.
        """
        process = self._serving()
        return {} if process is None else process.pod_resources.counters()

    def dra(self) -> DraStatus:
        """Return the DRA drivers and claims; empty while the kubelet is stopped."""
        from devicemanager.core.dra.report import DraStatus

        process = self._serving()
        manager = None if process is None else process.dra.if_used
        return DraStatus() if manager is None else manager.status()

    def pods_api_counters(self) -> Mapping[tuple[str, str], int]:
        """Return the numbers of Pods API calls and dropped watch events since the kubelet started.

        The result is a mapping. A key is a pair: the name of the metric, and the value of its label
        ``status_code``, which is empty for dropped events. The mapping is empty while the kubelet
        is stopped.
        """
        process = self._serving()
        return {} if process is None else process.pods_api_counters()


class NodeInfo(Protocol):
    """Interface that the HTTP server requires of a mock kubelet.

    ``MockKubelet`` and ``InMemoryKubelet`` implement it.
    """

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def is_serving(self) -> bool: ...
    @property
    def telemetry(self) -> NodeTelemetry:
        """Internal: the data that the HTTP server serves."""


def registration_failure(check: HealthCheck, *, has_started: bool, error: Exception | None) -> str:
    """Return the error text of the ``/healthz`` check ``device-plugin``; empty if the check passes.

    ``has_started``: True if the kubelet has started its Registration server at least once.
    ``error``: the error of the server's last start; None if the server has not failed.

    Follows ``Check``, pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go, v1.32.0 and
    v1.32.11.
    """
    match check:
        case HealthCheck.STRICT if error is not None or not has_started:
            return messages.REGISTRATION_SERVER_FAILED
        case HealthCheck.LENIENT if error is not None:
            return messages.REGISTRATION_ERROR.format(error=error)
    return ""
