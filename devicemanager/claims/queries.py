"""What can be read of a node's claims: by the API, of one claim, of one pod's container."""

from __future__ import annotations

import threading

from devicemanager.claims.allocated_claims import ClaimView, Holdings
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.core.model import Limits
from devicemanager.claims.dynamic import dynamic_resource
from devicemanager.claims.explanation import Explanation
from devicemanager.claims.preparing import Drivers
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.core.ids import ContainerName, DeviceId, ResourceName
from devicemanager.core.pods import Pod
from devicemanager.core.status import Health, ResourceHealth, ResourceStatus
from devicemanager.events.stream import EventStream
from podresources import DynamicResource

__all__ = ["ReadableClaims", "claims_of"]


class ReadableClaims:
    """The objects, what claims hold and what drivers prepared, under one lock. Nothing here
    changes them: that is what ``ClaimManager`` adds."""

    def __init__(
        self,
        events: EventStream,
        node: str,
        limits: Limits,
        admin_namespaces: frozenset[str] | None,
    ) -> None:
        self.node = node
        self._lock = threading.RLock()
        # All below is guarded by the lock.
        self._store = ObjectStore()
        self._holdings = Holdings(self._store, node, limits, admin_namespaces)
        self._drivers = Drivers(events, self._holdings, self._lock)

    @property
    def is_sources_ready(self) -> bool:
        """Whether no pod of the state file is waited for any more."""
        return self._holdings.is_sources_ready

    def pods(self) -> frozenset[str]:
        """The UIDs of the pods that use claims."""
        with self._lock:
            return self._holdings.reservations.pods()

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._holdings.version

    def pod_version(self, pod: str) -> int:
        """Grows with every change of what PodResources shows of a pod's claims."""
        return self._holdings.pod_versions.get(pod, 0)

    def view(self) -> tuple[ClaimView, ...]:
        """All claims, by name."""
        with self._lock:
            return self._holdings.views()

    def claim(self, claim: str) -> ClaimView:
        """One claim (``namespace/name``); raises ClaimsError if there is none."""
        with self._lock:
            return self._holdings.view(claim)

    def pools(self) -> tuple[api.DevicePool, ...]:
        """What drivers publish, by name."""
        with self._lock:
            return tuple([pool for _, pool in sorted(self._store.pools.items())])

    def classes(self) -> tuple[api.DeviceClass, ...]:
        """The classes, by name."""
        with self._lock:
            return tuple([each for _, each in sorted(self._store.classes.items())])

    def explain(self, *claims: str) -> Explanation:
        """Why claims (``namespace/name``) have what they have, or would get together, or would
        not. Raises ClaimsError for what cannot be allocated as it is written."""
        with self._lock:
            return self._holdings.allocator.explain(claims, self.node)

    # -- of a pod ------------------------------------------------------------------------

    def devices(self, pod: Pod, container: ContainerName) -> dict[str, tuple[str, ...]]:
        """What a container's claims hold: claim name to devices as ``pool/device``, in the
        order of the claim's status."""
        with self._lock:
            mine = self._holdings.reservations.claims(pod.uid)
            return {
                claim.partition("/")[2]: tuple(
                    f"{key.pool}/{key.name}" for key in self._holdings.devices(claim)
                )
                for claim in claims_of(pod, container)
                if claim in mine
            }

    def health(self, pod: Pod, container: ContainerName) -> tuple[ResourceStatus, ...]:
        """What ``allocatedResourcesStatus`` shows of a container's claims: each as
        ``claim:<name in the pod>``. A device that no pool offers any more is unhealthy
        (``UpdateAllocatedResourcesStatus``, pkg/kubelet/cm/dra/manager.go, v1.34)."""
        with self._lock:
            offered = self._store.constraints(self.node).inventory.index
            mine = self._holdings.reservations.claims(pod.uid)
            found = []
            for name in names_of(pod, container):
                claim = f"{pod.namespace}/{pod.resource_claims[name]}"
                devices = self._holdings.devices(claim) if claim in mine else ()
                if devices:
                    health = tuple([_health(key, key in offered) for key in sorted(devices)])
                    found.append(ResourceStatus(ResourceName(f"claim:{name}"), health))
        return tuple(found)

    def dynamic_resources(self, pod: Pod, container: ContainerName) -> tuple[DynamicResource, ...]:
        """What PodResources shows of a container's claims: each claim once, when all of its
        devices that have a driver here are prepared."""
        with self._lock:
            mine = self._holdings.reservations.claims(pod.uid)
            shown = [claim for claim in claims_of(pod, container) if claim in mine]
            found = [self._dynamic(claim) for claim in shown]
        return tuple([each for each in found if each is not None])

    def _dynamic(self, claim: str) -> DynamicResource | None:
        if not self._drivers.is_ready(claim):
            return None
        namespace, _, name = claim.partition("/")
        prepared = self._holdings.prepared.get(claim, {})
        return dynamic_resource(namespace, name, self._holdings.devices(claim), prepared)

    def cdi_devices(self, pod: Pod, container: ContainerName) -> tuple[str, ...]:
        """The CDI names that a container's claims bring, each once."""
        names = [
            name
            for claim in self.dynamic_resources(pod, container)
            for resource in claim.claim_resources
            for name in resource.cdi_devices
        ]
        return tuple(dict.fromkeys(names))


def claims_of(pod: Pod, container: ContainerName | None = None) -> tuple[str, ...]:
    """The claims of a pod, or those that one of its containers uses, as ``namespace/name``."""
    names = pod.resource_claims if container is None else names_of(pod, container)
    claims = [pod.resource_claims[name] for name in names]
    return tuple(dict.fromkeys(f"{pod.namespace}/{claim}" for claim in claims if claim))


def names_of(pod: Pod, container: ContainerName) -> tuple[str, ...]:
    """The names in the pod of the claims that a container uses."""
    return next(each.claims for each, _ in pod.all_containers() if each.name == container)


def _health(key: DeviceKey, is_offered: bool) -> ResourceHealth:
    health = Health.HEALTHY if is_offered else Health.UNHEALTHY
    return ResourceHealth(DeviceId("/".join(key)), health)
