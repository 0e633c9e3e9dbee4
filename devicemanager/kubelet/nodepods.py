"""The pods and devices of a node under a kubelet, as methods of every kind of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from devicemanager.core.node import NodeStatus
from devicemanager.kubelet.arguments import check_exit_codes, parser
from devicemanager.kubelet.manager.manager import Capacity, DeviceManager
from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
from devicemanager.kubelet.podlife import PodLife
from devicemanager.kubelet.pods.records import Phase, PodRecord, pod_uid
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.core.status import ResourceStatus
    from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.telemetry import NodeTelemetry
    from devicemanager.objects.manifests import Source

__all__ = ["NodePods"]


class NodePods(PodLife):
    """Pods come, run and go; what they hold; what the node has."""

    settings: Settings
    _lock: threading.Lock
    """Guards the next one."""
    _node_status: NodeStatus

    @property
    def manager(self) -> DeviceManager:
        """The device manager of the running kubelet. Raises RequestError if it is stopped,
        or in a forked child."""
        return self._life.serving().manager

    # -- pods ------------------------------------------------------------------------

    def admit(self, manifest: Source, *, start: bool = True) -> Admission:
        """Admit a pod: a manifest as dict, YAML text or path, or a ``kubernetes`` V1Pod.

        With ``start`` its containers are started, too: init containers in order, then app
        containers, with PreStartContainer where the plugin asks for it.

        A rejection is an answer (``admitted`` false, with the kubelet's reason and message).
        Raises ManifestError for a manifest the API server would not take, and
        RequestError for a pod that is admitted already.
        """
        workers = self._life.serving().workers
        return workers.admit(parser()(manifest), start=start)

    def terminate(self, *uids: str) -> None:
        """The pods end and are deleted: their devices are free. Raises RequestError, and
        terminates none, if there is no pod with one of these UIDs."""
        self._life.serving().workers.terminate(uids)

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Every app container of the pod ends by itself: the pod has Succeeded if all exit
        codes are 0, else Failed. ``exit_codes`` is one for all or by container (0 where
        none is given). Its devices are free; it stays known until ``terminate``.

        Raises RequestError for an unknown UID, a pod that is not active, one whose
        restartPolicy makes the kubelet start its containers again, and an exit code that is
        no number.
        """
        workers = self._life.serving().workers
        if not isinstance(exit_codes, Mapping):
            check_exit_codes([exit_codes])
            record = self._pods.known(uid)
            exit_codes = {container.name: exit_codes for container in record.pod.containers}
        check_exit_codes(exit_codes.values())
        return workers.finish(uid, exit_codes)

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start a container of an admitted pod: PreStartContainer where the plugin asks for
        it, then the merged settings of all its resources.

        Devices are allocated now if nothing is recorded. Raises AllocationError with the
        kubelet's text if the container must not start, RequestError for an unknown pod or
        container or a pod that was rejected.
        """
        return self._life.serving().workers.start_container(uid, container)

    def restart_container(self, uid: str, container: str) -> RunOptions:
        """A container starts again: the same devices, with no second Allocate. Raises as
        ``start_container`` does."""
        return self.start_container(uid, container)

    # -- reading ---------------------------------------------------------------------

    def capacity(self) -> dict[str, int]:
        """Devices per resource, healthy or not; without resources whose plugin has been
        gone for longer than the grace period."""
        return dict(self._counts(self.manager).capacity)

    def allocatable(self) -> dict[str, int]:
        """Healthy devices per resource, in use or not."""
        return dict(self._counts(self.manager).allocatable)

    @staticmethod
    def _counts(manager: DeviceManager) -> Capacity:
        manager.expire()
        return manager.capacity()

    def node_status(self) -> NodeStatus:
        """Capacity and allocatable of device resources as the node's status shows them:
        a resource that was removed stays, at 0."""
        manager = self.manager
        counts, removed = self._counts(manager), manager.removed()
        with self._lock:
            self._node_status.update(counts.capacity, counts.allocatable, removed)
            return self._node_status.copy()

    @property
    def telemetry(self) -> NodeTelemetry:
        """What is told of it over HTTP: pods with their statuses, counts of devices."""
        from devicemanager.kubelet.telemetry import NodeTelemetry

        return NodeTelemetry(lambda: self.manager, self.allocated_resources_status, self._pods)

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """``allocatedResourcesStatus`` by container: each resource a container holds, and
        each device of it with ``Healthy``, ``Unhealthy`` or ``Unknown``. Sorted. As in the
        API only app containers have it. Raises RequestError for an unknown UID."""
        status = self._life.serving().workers.allocated_resources_status(uid)
        if "Q7" in self.settings.quirks:
            return {name: _shuffled(resources) for name, resources in status.items()}
        return {str(name): resources for name, resources in status.items()}

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """What a pod holds: container → resource → sorted device ids.

        Raises RequestError if nobody knows the UID: no pod here has it, nor does the
        checkpoint.
        """
        holdings = self.manager.holdings(pod_uid(uid))
        if not holdings:
            self._pods.known(uid)
        return {
            container: {name: sorted(holding.ids) for name, holding in held.items()}
            for container, held in holdings.items()
        }

    def plugins(self) -> tuple[PluginStatus, ...]:
        """The plugin of each known resource, sorted by resource."""
        from devicemanager.kubelet import inventory

        return inventory.plugins(self.manager.state)

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """Every device that a plugin lists or a container holds, with its health and its
        holder; sorted by resource and id."""
        from devicemanager.kubelet import inventory

        return inventory.devices(self.manager.state)

    def pod(self, uid: str) -> PodRecord:
        """One pod that is known and not deleted. Raises RequestError for an unknown UID."""
        return self._pods.known(uid)

    def has_pod(self, uid: str) -> bool:
        """Whether a pod has this UID that is known and not deleted."""
        return self._pods.get(pod_uid(uid)) is not None

    def pods(self) -> dict[str, PodRecord]:
        """The pods that are known and not deleted, by UID, in the order they came."""
        return {record.pod.uid: record for record in self._pods.records()}

    @property
    def health_updates(self) -> HealthUpdates:
        """UIDs of pods whose devices changed health, oldest first."""
        return self.manager.health_updates


def _shuffled(resources: tuple[ResourceStatus, ...]) -> tuple[ResourceStatus, ...]:
    """Q7: in the order of a Go map, which is random."""
    mixed = [
        attrs.evolve(one, resources=tuple(random.sample(one.resources, len(one.resources))))
        for one in resources
    ]
    return tuple(random.sample(mixed, len(mixed)))
