"""Protocol classes through which a node of the cluster uses its kubelet.

``MockKubelet`` and ``InMemoryKubelet`` have all members of ``NodeKubelet``. Only
``InMemoryKubelet`` has those of ``DraKubelet`` and ``DeviceFaults``. The modules of a node use a
kubelet only through these classes, so they cannot depend on the kubelet's internals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from devicemanager.kubelet.telemetry import NodeInfo

if TYPE_CHECKING:
    from devicemanager.core.dra.model import ClaimInfo
    from devicemanager.core.node import NodeStatus
    from devicemanager.core.pods import Pod
    from devicemanager.core.podstatus.conditions import Gates
    from devicemanager.core.podstatus.containers import ContainerStatus
    from devicemanager.core.podstatus.phase import Phase
    from devicemanager.core.podstatus.status import PodStatus
    from devicemanager.events.stream import EventStream
    from devicemanager.kubelet.inmemory.dra import ClaimFetcher
    from devicemanager.kubelet.inmemory.drivers import NodeDrivers
    from devicemanager.kubelet.inventory import DeviceStatus
    from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.pods.pod_info import PodInfo
    from devicemanager.kubelet.pods.records import PodStore

__all__ = ["DeviceFaults", "DraKubelet", "NodeKubelet"]


class NodeKubelet(NodeInfo, Protocol):
    """Kubelet of a node: a ``MockKubelet`` or an ``InMemoryKubelet``.

    ``MockKubelet`` documents each member.
    """

    @property
    def events(self) -> EventStream: ...
    @property
    def health_updates(self) -> HealthUpdates: ...

    def restart(self) -> None: ...
    def reboot(self) -> None: ...
    def sources_ready(self) -> None: ...

    def admit(self, manifest: Pod, *, start: bool = True) -> Admission: ...
    def restore(
        self,
        manifest: Pod,
        devices: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
        *,
        statuses: Mapping[str, ContainerStatus] | None = None,
        start_time: float | None = None,
    ) -> Admission: ...
    def start_pod(self, uid: str) -> None: ...
    def update_pod(self, manifest: Pod, generation: int = 0) -> None: ...
    def complete_resize(self, uid: str) -> None: ...
    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus: ...
    def stop_pod(
        self,
        uid: str,
        exit_code: int = 143,
        *,
        reason: str = "",
        message: str = "",
        disruption: str = "",
    ) -> Phase: ...
    def terminate(self, *uids: str) -> None: ...

    @property
    def pod_store(self) -> PodStore:
        """Internal: the kubelet's records of its pods."""

    def pods(self) -> dict[str, PodInfo]: ...
    def has_pod(self, uid: str) -> bool: ...
    def pod_status(self, uid: str, gates: Gates | None = None) -> PodStatus: ...
    def node_status(self) -> NodeStatus: ...
    def inventory(self) -> tuple[DeviceStatus, ...]: ...
    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]: ...


class DraKubelet(NodeKubelet, Protocol):
    """Kubelet with simulated DRA drivers: an ``InMemoryKubelet``."""

    @property
    def drivers(self) -> NodeDrivers: ...
    def use_claims(self, source: ClaimFetcher) -> None: ...
    def held_claims(self, uid: str) -> tuple[ClaimInfo, ...]: ...


class DeviceFaults(Protocol):
    """Kubelet whose simulated devices can fail: an ``InMemoryKubelet``.

    A ``MockKubelet`` does not have these methods, because its devices come from real plugins.
    """

    def fail_device(self, resource: str, device: str) -> None: ...
    def recover_device(self, resource: str, device: str) -> None: ...
    def lose_device(self, resource: str, device: str) -> None: ...
    def return_device(self, resource: str, device: str) -> None: ...
    def lose_all(self, resource: str) -> None: ...
    def return_all(self, resource: str) -> None: ...
    def stop_plugin(self, resource: str) -> None: ...
    def start_plugin(self, resource: str) -> None: ...
    def fail_prepare(self, driver: str, times: int = -1) -> None: ...
    def fail_unprepare(self, driver: str, fails: bool = True) -> None: ...
    def delay_prepare(self, driver: str, seconds: float) -> None: ...
