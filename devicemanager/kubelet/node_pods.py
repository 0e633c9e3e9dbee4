"""The operations on pods and devices that ``MockKubelet`` and ``InMemoryKubelet`` share.

Each start of a kubelet creates a process object, which has the device manager and the pod workers.
The two kubelets differ only in the class of this object. Every method gets the object from
``_serving``, which raises RequestError while the kubelet is stopped. ``MockKubelet`` documents the
methods.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.core.ids import ContainerName
from devicemanager.core.node import NodeStatus
from devicemanager.core.pods import Pod
from devicemanager.kubelet.arguments import check_exit_codes, parser
from devicemanager.kubelet.manager.manager import Capacity, DeviceManager
from devicemanager.kubelet.pods.records import Phase, PodRecord, PodStore, pod_uid
from devicemanager.kubelet.pods.workers import PodWorkers
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.claims.lazy_claims import LazyClaims
    from devicemanager.core.ledger import AllocatedByContainer
    from devicemanager.core.podstatus.conditions import Gates
    from devicemanager.core.podstatus.containers import ContainerStatus
    from devicemanager.core.podstatus.status import PodStatus
    from devicemanager.core.status import ResourceStatus
    from devicemanager.kubelet.dra.pod_claims import ClaimUser
    from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.pods.pod_info import PodClaims, PodInfo
    from devicemanager.objects.manifests import Source

__all__ = ["NodePods", "Process"]


class Process(Protocol):
    """The process object of a running kubelet, with the two members that ``NodePods`` uses."""

    @property
    def manager(self) -> DeviceManager: ...
    @property
    def workers(self) -> PodWorkers: ...


class NodePods:
    """Operations on the pods of a kubelet, and reports about pods and devices."""

    # Slots: a cluster has thousands of in-memory kubelets in one process.
    __slots__ = ("_claims", "_lock", "_node_status", "_serving", "_settings", "_store")

    def __init__(
        self,
        serving: Callable[[], Process],
        store: PodStore,
        claims: LazyClaims,
        settings: Settings,
    ) -> None:
        """``serving`` returns the process object of the running kubelet, or raises RequestError if
        the kubelet is stopped. ``store`` has the pods, ``claims`` the structured claims; a restart
        of the kubelet changes neither.
        """
        self._serving = serving
        self._store = store
        self._claims = claims
        self._settings = settings
        # Guards _node_status.
        self._lock = threading.Lock()
        self._node_status = NodeStatus()

    @property
    def manager(self) -> DeviceManager:
        """Device manager of the running kubelet."""
        return self._serving().manager

    @property
    def workers(self) -> PodWorkers:
        """Pod workers of the running kubelet."""
        return self._serving().workers

    # -- pods ------------------------------------------------------------------------

    def admit(self, manifest: Source, *, start: bool) -> Admission:
        """Parse the manifest and admit the pod; with ``start``, start its containers."""
        workers = self.workers  # a stopped kubelet is reported before an invalid manifest
        return workers.admit(parser()(manifest), start=start)

    def restore(
        self,
        manifest: Source,
        devices: Mapping[str, Mapping[str, Iterable[str]]] | None,
        statuses: Mapping[str, ContainerStatus] | None,
        start_time: float | None,
    ) -> Admission:
        """Parse the manifest and take over a pod that another kubelet ran on this node."""
        workers = self.workers
        return workers.restore(parser()(manifest), devices or {}, statuses, start_time)

    def update_pod(self, manifest: Source, generation: int) -> None:
        """Parse the changed manifest of a known pod, and apply its changes to the pod."""
        workers = self.workers
        workers.update(parser()(manifest), generation)

    def finish(self, uid: str, exit_codes: int | Mapping[str, int]) -> Phase:
        """Let all app containers of the pod exit, and return the pod's phase.

        ``exit_codes`` is one code for all containers, or a mapping from container names to codes.
        """
        workers = self.workers
        # One code for all containers is expanded here: the workers accept only codes by container.
        if not isinstance(exit_codes, Mapping):
            check_exit_codes([exit_codes])
            record = self._store.known(uid)
            exit_codes = {container.name: exit_codes for container in record.pod.containers}
        check_exit_codes(exit_codes.values())
        return workers.finish(uid, exit_codes)

    def dra_pods(self) -> list[ClaimUser]:
        """Return the pods that use DRA, each with the last attempt to prepare or unprepare its
        claims."""
        # Imported here, because most nodes have no DRA driver.
        from devicemanager.kubelet.dra.pod_claims import ClaimUser

        workers = self.workers
        return [
            ClaimUser(each.pod, workers.attempt(each))
            for each in self._store.records()
            if each.uses_dra
        ]

    def stop_pod(
        self, uid: str, exit_code: int, reason: str, message: str, disruption: str
    ) -> Phase:
        """Stop the pod's containers, which exit with ``exit_code``, and return the pod's phase."""
        check_exit_codes([exit_code])
        return self.workers.stop(
            uid, exit_code, reason=reason, message=message, disruption=disruption
        )

    def delete(self, uid: str, grace_period: float | None) -> None:
        """Delete the pod when its containers have exited, at the latest after the grace period.

        ``grace_period`` is in seconds; None means the grace period in the pod's spec.
        """
        if grace_period is None:
            grace_period = self._store.known(uid).pod.termination_grace_period
        self.workers.life.delete(uid, grace_period)

    def exit_container(
        self, uid: str, container: str, exit_code: int, reason: str
    ) -> ContainerStatus:
        """Let one running container exit, and return its new status."""
        # All arguments are checked before the container exits.
        check_exit_codes([exit_code])
        record = self._store.known(uid)
        found, _ = record.container(container)
        self.workers.life.exited(uid, container, exit_code, reason)
        return record.status(found.name)

    # -- reports about pods ------------------------------------------------------------

    def pod(self, uid: str) -> PodInfo:
        """Describe one pod: its containers, their states and their devices."""
        return self._info(self._store.known(uid))

    def pods(self) -> dict[str, PodInfo]:
        """Describe all pods that are not deleted, by UID."""
        return {record.pod.uid: self._info(record) for record in self._store.records()}

    def _info(self, record: PodRecord) -> PodInfo:
        # Not at the top: a start needs none of the reports.
        from devicemanager.kubelet.pods.pod_info import pod_info

        pod = record.pod
        held: AllocatedByContainer = {}
        claims: PodClaims = {}
        with contextlib.suppress(RequestError):  # the kubelet is stopped
            held = self.manager.holdings(pod.uid)
        if pod.resource_claims or pod.extended_claim is not None:
            claims = {
                container.name: self.claim_devices(pod, container.name)
                for container, _ in pod.all_containers()
            }
        with self._store.lock:
            return pod_info(record, held, claims)

    def claim_devices(self, pod: Pod, container: str) -> dict[str, tuple[str, ...]]:
        """Return the devices of a container's claims: claim name → devices as ``pool/device``."""
        name = ContainerName(container)
        try:
            return self.workers.claim_devices(pod, name)
        except RequestError:  # the kubelet is stopped: only the structured claims outlive it
            return self._claims.devices(pod, name)

    def pod_status(self, uid: str, gates: Gates | None) -> PodStatus:
        """Return the pod's status as in the Pod object.

        ``gates`` has the status of each readiness gate, as in ``MockKubelet.pod_status``.
        """
        from devicemanager.kubelet.pods.records import api_status

        # Called before the store is locked: this also takes the manager's lock.
        resources = self.workers.allocated_resources_status(uid)
        record = self._store.known(uid)
        with self._store.lock:
            return api_status(record, resources, gates)

    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]:
        """Return the status of each container of a pod by name, init containers first."""
        record = self._store.known(uid)
        with self._store.lock:
            return {
                str(container.name): record.status(container.name)
                for container, _ in record.pod.all_containers()
            }

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """Return a pod's allocated devices: container → resource → sorted device IDs."""
        # The manager also has the devices of pods that only the checkpoint names.
        holdings = self.manager.holdings(pod_uid(uid))
        if not holdings:
            self._store.known(uid)  # raises RequestError if no pod has this UID
        return {
            container: {name: sorted(holding.ids) for name, holding in held.items()}
            for container, held in holdings.items()
        }

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """Return ``allocatedResourcesStatus`` of a pod by container."""
        status = self.workers.allocated_resources_status(uid)
        if "Q7" in self._settings.quirks:
            return {name: _shuffled(resources) for name, resources in status.items()}
        return {str(name): resources for name, resources in status.items()}

    # -- reports about devices -----------------------------------------------------------

    def capacity(self) -> Capacity:
        """Return the number of all devices and of healthy devices, by resource.

        Resources whose plugin has been disconnected for longer than the grace period are omitted.
        """
        return _counts(self.manager)

    def node_status(self) -> NodeStatus:
        """Return the device counts in the Node object's status, by resource.

        Unlike ``capacity``, this method includes removed resources, with 0 devices.
        """
        # One manager for both calls: a restart in between would combine two states.
        manager = self.manager
        counts, removed = _counts(manager), manager.removed()
        with self._lock:
            self._node_status.update(counts.capacity, counts.allocatable, removed)
            return self._node_status.copy()

    def reset_node_status(self) -> None:
        """Set all device counts in the Node object's status to 0.

        Called when the kubelet has started without a checkpoint.
        """
        with self._lock:
            self._node_status.reset()

    def plugins(self) -> tuple[PluginStatus, ...]:
        """Return one ``PluginStatus`` for each known resource, sorted by resource."""
        # Not at the top: a start needs none of the reports.
        from devicemanager.kubelet import inventory

        return inventory.plugins(self.manager.state)

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """Return every advertised or allocated device, sorted by resource and ID."""
        from devicemanager.kubelet import inventory

        return inventory.devices(self.manager.state)


def _counts(manager: DeviceManager) -> Capacity:
    manager.expire()  # a grace period may be over although its timer has not fired yet
    return manager.capacity()


def _shuffled(resources: tuple[ResourceStatus, ...]) -> tuple[ResourceStatus, ...]:
    """Return the statuses in the random order of a Go map (quirk Q7)."""
    mixed = [
        attrs.evolve(one, resources=tuple(random.sample(one.resources, len(one.resources))))
        for one in resources
    ]
    return tuple(random.sample(mixed, len(mixed)))
