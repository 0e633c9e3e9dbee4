"""Claims of a kubelet's pods: allocated at admission, prepared before containers start.

In:  calls of the kubelet: start and stop, admit a pod, start a container, end pods.
Out: devices, CDI names and health, for PodResources, run options and pod status.
"""

# The path of one pod, with the calls of its kubelet:
#
# 1. ``admit``: allocate and reserve all claims of the pod, or none, and write the state file.
# 2. ``admitted`` if the pod is admitted, else ``unreserve``: device allocation comes after
#    ``admit`` and can still reject the pod.
# 3. ``prepare``: before a container starts, drivers prepare devices that are not prepared.
# 4. ``remove_pods``, then ``flush``: the pod has ended. These are two calls because the kubelet
#    makes the first one with its own lock held, and the second one writes a file.
#
# After a restart, the state file can name pods that no longer exist. They keep their claims
# until the kubelet knows all pods (``remove_other_pods``), as the kubelet does with devices.
#
# The rules for locks and writes in ``manager`` also apply to this module. In addition, no method
# takes the lock or writes the file for a pod without claims. Such a method looks the pod up in a
# dict, which needs no lock.

from __future__ import annotations

from collections.abc import Iterable, Mapping

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.core.ledger import LedgerError
from devicemanager.claims.errors import ClaimsError, TryAgain
from devicemanager.claims.manager import ClaimManager
from devicemanager.claims.persistence import ClaimsFile, StateFile
from devicemanager.claims.snapshot import Found
from devicemanager.claims.state_file import ClaimsState
from devicemanager.core.ids import ContainerName, DeviceId, ResourceName
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import rejected_by_allocation
from devicemanager.core.status import Health, ResourceHealth, ResourceStatus
from devicemanager.events.stream import EventKind
from podresources import ClaimResource, DynamicResource

__all__ = ["PodClaims", "claims_of", "dynamic_resource"]


class PodClaims(ClaimManager):
    """Claim manager with the methods that the kubelet calls for its pods. Thread-safe."""

    # -- start and stop of the kubelet ---------------------------------------------------

    def load(self, file: StateFile) -> None:
        """Restore the allocations of the state file, and write all later changes to this file.

        A corrupt file is renamed. Raises StartError if the file exists but cannot be read.
        """
        opened = ClaimsFile(file, self._events, self._state)
        opened.load(self._restore)
        with self._lock:
            self._file = opened

    def close(self) -> None:
        """Stop writing the state file. The allocations stay in the file."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()

    def _state(self) -> ClaimsState:
        with self._lock:
            return self._allocated.state()

    def _restore(self, state: ClaimsState) -> None:
        with self._lock:
            try:
                self._allocated.restore(state)
            except LedgerError as error:
                # A file that contradicts itself is renamed like any corrupt one.
                raise ValueError(str(error)) from error

    @property
    def is_sources_ready(self) -> bool:
        """True if the kubelet knows all pods that the loaded state file names.

        If the file names pods, this is False until ``remove_other_pods`` is called.
        """
        return self._allocated.is_sources_ready

    def pods(self) -> frozenset[str]:
        """Return the UIDs of the pods that use claims."""
        return self._allocated.reservations.pods()

    # -- the life of a pod ---------------------------------------------------------------

    def admit(self, pod: Pod) -> None:
        """Allocate and reserve all claims of a pod, or none.

        Raises Rejected if the claims cannot be allocated. After a success, the caller must call
        ``admitted`` if the pod is admitted, else ``unreserve``.
        """
        if not pod.resource_claims or self._runs_without(pod):
            return
        try:
            self._reserve(pod).write()
        except ClaimsError as error:
            # Needed after a failed write: the claims are reserved, but not on disk.
            self.unreserve(pod.uid)
            rejected = rejected_by_allocation(error)
            rejected.undecided = isinstance(error, TryAgain)
            raise rejected from error
        with self._lock:
            new = self._allocated.newly_allocated(pod.uid)
        self._report_allocated(new, pod.uid)

    def has_claims(self, pod: Pod) -> bool:
        """True if the pod names claims, and all of them exist."""
        with self._lock:
            known = self._allocated.allocator.claims
            return bool(pod.resource_claims) and all(
                claim is not None and f"{pod.namespace}/{claim}" in known
                for claim in pod.resource_claims.values()
            )

    def _runs_without(self, pod: Pod) -> bool:
        """True if the node has no pools, classes or claims, so that the pod runs without claims.

        Publish an event in this case.
        """
        # The pod may run, like a pod that requests a resource that no plugin has registered.
        with self._lock:
            is_unused = self._allocated.is_unused
        if is_unused:
            text = (
                f"pod {pod.namespace}/{pod.name} names resource claims, but no pools or claims"
                " exist: the pod runs without them"
            )
            self._events.publish(EventKind.CLAIM_UNKNOWN, text, pod=pod.uid)
        return is_unused

    def _reserve(self, pod: Pod) -> ClaimsFile:
        # A template would need the controller that creates claims from templates.
        for name, claim in pod.resource_claims.items():
            if claim is None:
                raise ClaimsError(
                    f'resource claim "{name}" uses a template, which is not supported:'
                    " name a DeviceClaim with resourceClaimName"
                )
        claims = claims_of(pod)

        def record(found: Found | None) -> ClaimsFile:
            file = self._serving()
            self._allocated.reserve(pod.uid, pod.name, claims, found)
            return file

        with self._lock:
            self._serving()
            self._allocated.check_not_deleted(pod.uid, claims)
        return self._search(claims, record)

    def admitted(self, pod: str) -> None:
        """Finish a successful admission: the pod (UID) keeps its claims."""
        if self._allocated.newly_allocated(pod):
            with self._lock:
                self._allocated.admitted(pod)

    def unreserve(self, pod: str) -> None:
        """Undo ``admit`` of a pod (UID): release only the claims that this admission allocated."""
        self.remove_pods(pod, also_allocated_before=False)
        self.flush()

    def remove_pods(self, *pods: str, also_allocated_before: bool = True) -> None:
        """Remove ended pods (UIDs). Release each of their claims that no other pod uses.

        For a pod whose admission failed, pass ``also_allocated_before=False``. Claims that were
        allocated before this admission then stay allocated. After this method, call ``flush``,
        with no lock held.
        """
        with_claims = [pod for pod in pods if self._allocated.reservations.claims(pod)]
        if not with_claims:
            return
        with self._lock:
            if self._allocated.remove_pods(with_claims, also_allocated_before):
                self._mark_unwritten()
                self._caller.must_flush = True

    def remove_other_pods(self, pods: Iterable[str]) -> None:
        """Remove all pods from the users of claims, except ``pods`` (UIDs).

        Must be called when the kubelet knows all pods, not earlier.
        """
        with self._lock:
            self._allocated.is_sources_ready = True
            self.remove_pods(*self._allocated.reservations.others(frozenset(pods)))

    def flush(self) -> None:
        """Let drivers unprepare devices of released claims, and write changes to the state file.

        Do nothing unless the calling thread has removed pods with claims since its last ``flush``.
        """
        if getattr(self._caller, "must_flush", False):
            self._caller.must_flush = False
            self._flush()

    def prepare(self, pod: Pod) -> None:
        """Let drivers prepare the devices of the pod's claims, except devices already prepared.

        Raises AllocationError if a driver fails. The claims stay allocated, and the next call
        retries.
        """
        changed = False
        try:
            for is_used in self._drivers.prepare(pod.uid):
                changed |= is_used
        finally:
            # Also after an error: the drivers before the one that failed have prepared devices.
            if changed:
                with self._lock:
                    self._mark_unwritten()
                self._flush()

    # -- what PodResources, run options and pod status show --------------------------------

    @property
    def version(self) -> int:
        """Number that grows with every change of claims, pools, classes or reported device
        statuses."""
        return self._allocated.version

    def pod_version(self, pod: str) -> int:
        """Return a number that grows with every change of the claims of a pod (UID).

        For a pod without claims, return 0.
        """
        return self._allocated.pod_versions.get(pod, 0)

    def devices(self, pod: Pod, container: ContainerName) -> dict[str, tuple[str, ...]]:
        """Return the devices of a container by claim name, as ``pool/device``.

        The devices of a claim are in the order of its status.
        """
        with self._lock:
            reserved = self._allocated.reservations.claims(pod.uid)
            return {
                claim.partition("/")[2]: tuple(
                    f"{key.pool}/{key.name}" for key in self._allocated.devices(claim)
                )
                for claim in claims_of(pod, container)
                if claim in reserved
            }

    def health(self, pod: Pod, container: ContainerName) -> tuple[ResourceStatus, ...]:
        """Return the entries for a container's claims in ``allocatedResourcesStatus`` of the pod
        status.

        Each claim is named ``claim:<name in the pod>``. A device that no pool offers any more
        is unhealthy (``UpdateAllocatedResourcesStatus``, pkg/kubelet/cm/dra/manager.go, v1.34).
        """
        with self._lock:
            reserved = self._allocated.reservations.claims(pod.uid)
            found = []
            for name in _names_of(pod, container):
                claim = f"{pod.namespace}/{pod.resource_claims[name]}"
                devices = self._allocated.devices(claim) if claim in reserved else ()
                if devices:
                    missing = self._allocated.missing_devices(claim).get(claim, ())
                    health = tuple([_health(key, key not in missing) for key in sorted(devices)])
                    found.append(ResourceStatus(ResourceName(f"claim:{name}"), health))
        return tuple(found)

    def dynamic_resources(self, pod: Pod, container: ContainerName) -> tuple[DynamicResource, ...]:
        """Return the claims of a container as PodResources shows them, each claim once.

        A claim is omitted while one of its devices is not prepared. Devices without a driver
        (``set_driver``) need no preparation.
        """
        with self._lock:
            reserved = self._allocated.reservations.claims(pod.uid)
            shown = [claim for claim in claims_of(pod, container) if claim in reserved]
            found = [self._dynamic_resource(claim) for claim in shown]
        return tuple([each for each in found if each is not None])

    def _dynamic_resource(self, claim: str) -> DynamicResource | None:
        if not self._drivers.is_prepared(claim):
            return None
        namespace, _, name = claim.partition("/")
        prepared = self._allocated.prepared.get(claim, {})
        return dynamic_resource(namespace, name, self._allocated.devices(claim), prepared)

    def cdi_devices(self, pod: Pod, container: ContainerName) -> tuple[str, ...]:
        """Return the CDI names of a container's claims, each once."""
        names = [
            name
            for claim in self.dynamic_resources(pod, container)
            for resource in claim.claim_resources
            for name in resource.cdi_devices
        ]
        return tuple(dict.fromkeys(names))


def dynamic_resource(
    namespace: str,
    name: str,
    devices: Iterable[DeviceKey],
    cdi: Mapping[DeviceKey, tuple[str, ...]],
) -> DynamicResource | None:
    """Return the PodResources entry of a claim; None for a claim without devices.

    ``cdi``: the CDI names of each device. Each device is shown with only its own CDI names. A real
    kubelet also repeats the names of the preceding devices (``GetDynamicResources``,
    pkg/kubelet/cm/container_manager_linux.go, v1.32).
    """
    resources = tuple(
        [
            ClaimResource(key.driver, key.pool, key.name, tuple(cdi.get(key, ())))
            for key in sorted(devices)
        ]
    )
    return DynamicResource(name, namespace, resources) if resources else None


def claims_of(pod: Pod, container: ContainerName | None = None) -> tuple[str, ...]:
    """Return the claims of a pod, or of one container, as ``namespace/name``."""
    names = pod.resource_claims if container is None else _names_of(pod, container)
    claims = [pod.resource_claims[name] for name in names]
    return tuple(dict.fromkeys(f"{pod.namespace}/{claim}" for claim in claims if claim))


def _names_of(pod: Pod, container: ContainerName) -> tuple[str, ...]:
    """Return the claims that a container uses, by their names in the pod spec."""
    return next(each.claims for each, _ in pod.all_containers() if each.name == container)


def _health(key: DeviceKey, is_offered: bool) -> ResourceHealth:
    health = Health.HEALTHY if is_offered else Health.UNHEALTHY
    return ResourceHealth(DeviceId("/".join(key)), health)
