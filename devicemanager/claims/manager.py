"""Claims through the life of a node: allocated with the pods that use them, and kept.

One lock; nothing is written, told or asked of a driver while it is held. The objects outlive
the kubelet's process as those of an API server do; who holds what is read again from the
state file at each start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from devicemanager.claims.allocated_claims import ClaimView, Gone
from devicemanager.claims.core.ledger import LedgerError
from devicemanager.claims.core.model import Limits
from devicemanager.claims.core.solve import DEFAULT_LIMITS
from devicemanager.claims.drivers import ClaimDriver
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.persistence import ClaimsFile, StateFile
from devicemanager.claims.queries import ReadableClaims, claims_of
from devicemanager.claims.statefile import ClaimsState
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.objects import DeviceStatus
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import rejected_by_allocation
from devicemanager.events.stream import EventKind, EventStream

__all__ = ["ClaimManager", "ClaimView", "claims_of"]


class ClaimManager(ReadableClaims):
    """Everything about structured claims on one node. May be called from any thread."""

    def __init__(
        self,
        events: EventStream,
        *,
        node: str,
        admin_namespaces: frozenset[str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """``admin_namespaces`` may use classes with admin access; None is all."""
        super().__init__(events, node, limits, admin_namespaces)
        self._events = events
        # Guarded by the lock.
        self._file: ClaimsFile | None = None

    # -- life of the kubelet's process -------------------------------------------------

    def load(self, file: StateFile) -> None:
        """A kubelet starts: take over what the file says, and write there from now on.

        A corrupt file is set aside. Raises StartError if the file is there and cannot be read.
        """
        opened = ClaimsFile(file, self._events, self._state)
        opened.load(self._take_over)
        with self._lock:
            self._file = opened

    def close(self) -> None:
        """The kubelet stops. What is held is kept in the file."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()

    def _state(self) -> ClaimsState:
        with self._lock:
            return self._holdings.state()

    def _take_over(self, state: ClaimsState) -> None:
        with self._lock:
            try:
                self._holdings.take_over(state)
            except LedgerError as error:
                raise ValueError(str(error)) from error

    def _serving(self) -> ClaimsFile:
        file = self._file
        if file is None:
            raise ClaimsError("the kubelet is stopped: it decides about no claim")
        return file

    # -- objects -----------------------------------------------------------------------

    def apply(self, objects: Iterable[api.Object]) -> None:
        """Create or replace objects one after another. Raises for the first that is rejected,
        as ``ClaimsError`` or ``InvalidObject``; those before it stay."""
        for each in objects:
            if isinstance(each, api.DevicePool):
                self.publish(each)
            elif isinstance(each, api.DeviceClass):
                self.define(each)
            elif isinstance(each, api.DeviceClaim):
                self.submit(each)
            else:
                self.configure(each)

    def publish(self, pool: api.DevicePool) -> None:
        """Create or replace a pool. Nobody loses what is held of it."""
        with self._lock:
            before = self._holdings.gone()
            self._store.publish(pool)
            gone = self._holdings.gone()
            self._holdings.changed()
        text = f"{pool.driver} publishes pool {pool.name}: {len(pool.devices)} devices"
        if pool.node_name not in ("", self.node):
            text += f" of node {pool.node_name}; not for claims here, on node {self.node}"
        self._events.publish(EventKind.POOL_PUBLISHED, text)
        self._tell_gone(before, gone)

    def define(self, device_class: api.DeviceClass) -> None:
        """Create or replace a class. Allocated claims stay as they are."""
        with self._lock:
            self._store.define(device_class)
            self._holdings.changed()

    def submit(self, claim: api.DeviceClaim) -> None:
        """Create or replace a claim; an allocated one cannot be changed."""
        with self._lock:
            self._holdings.allocator.submit(claim)
            self._holdings.changed()

    def configure(self, config: api.ConfigObject) -> None:
        """Create or replace an object that classes and claims can refer to."""
        with self._lock:
            self._store.configure(config)

    def withdraw(self, found: api.Object) -> bool:
        """Delete an object, by its kind and name; False if it is not there.

        A claim that pods use goes when the last of them has ended.
        """
        if isinstance(found, api.DeviceClaim):
            return self._withdraw_claim(found.id)
        with self._lock:
            before = self._holdings.gone()
            if isinstance(found, api.DevicePool):
                was_there = self._store.withdraw_pool(found.name)
            elif isinstance(found, api.DeviceClass):
                was_there = self._store.withdraw_class(found.name)
            else:
                was_there = self._store.withdraw_config(found.reference)
            gone = self._holdings.gone()
            self._holdings.changed()
        self._tell_gone(before, gone)
        return was_there

    def clear(self) -> None:
        """Withdraw every object. A claim that pods use goes when the last of them has ended."""
        with self._lock:
            configs = tuple(self._store.configs.values())
        claims = [view.claim for view in self.view()]
        found: list[api.Object] = [*claims, *self.pools(), *self.classes(), *configs]
        for each in found:
            self.withdraw(each)

    def _withdraw_claim(self, claim: str) -> bool:
        with self._lock:
            was_there = self._holdings.withdraw(claim)
            users = self._holdings.reservations.names(claim)
            self._fall_behind()
        if was_there and users:
            text = f"claim {claim} is used by {', '.join(users)}: it is deleted when they end"
            self._events.publish(EventKind.CLAIM_DELETION_WAITS, text)
        self.settle()
        return was_there

    # -- claims without pods -------------------------------------------------------------

    def allocate(self, *claims: str) -> None:
        """Allocate claims (``namespace/name``) together, all or none, for whoever comes.

        Raises DoesNotFit, TryAgain, or ClaimsError; nothing has changed then.
        """
        with self._lock:
            file = self._serving()
            new = self._holdings.allocator.allocate(claims, self.node)
            self._holdings.changed()
        try:
            file.write()
        except ClaimsError:
            with self._lock:
                self._holdings.free(*new)
            self._drivers.tell_released()
            raise
        self._tell_allocated(new)

    def release(self, *claims: str) -> None:
        """Free what claims hold. Nothing happens to those that hold nothing.

        Raises ClaimsError, and releases none, if a pod uses one of them.
        """
        with self._lock:
            file = self._serving()
            for claim in claims:
                if users := self._holdings.reservations.names(claim):
                    raise ClaimsError(
                        f'DeviceClaim "{claim}" is used by {", ".join(users)}:'
                        " it is released when they end"
                    )
            self._holdings.free(*claims)
        self._drivers.tell_released()
        file.write()

    # -- pods ----------------------------------------------------------------------------

    def admit(self, pod: Pod) -> None:
        """Allocate and reserve all claims of a pod, or none. Raises Rejected.

        Whoever then cannot admit the pod calls ``retreat``, and otherwise ``admitted``.
        """
        if not pod.resource_claims or self._runs_without(pod):
            return
        try:
            self._reserve(pod).write()
        except ClaimsError as error:
            self.retreat(pod.uid)
            raise rejected_by_allocation(error) from error
        with self._lock:
            new = self._holdings.new_for(pod.uid)
        self._tell_allocated(new, pod)

    def _runs_without(self, pod: Pod) -> bool:
        """On a node that knows of no structured claims a pod runs without, as it does without
        the devices of a resource that nobody registered."""
        with self._lock:
            is_unused = self._holdings.is_unused
        if is_unused:
            text = (
                f"pod {pod.namespace}/{pod.name} names resource claims, but nobody published a"
                " pool or made a claim: it runs without"
            )
            self._events.publish(EventKind.CLAIM_UNKNOWN, text, pod=pod.uid)
        return is_unused

    def _reserve(self, pod: Pod) -> ClaimsFile:
        for name, claim in pod.resource_claims.items():
            if claim is None:
                raise ClaimsError(
                    f'resource claim "{name}" is to be made from a template, of which there are'
                    " none: name a DeviceClaim with resourceClaimName"
                )
        with self._lock:
            file = self._serving()
            self._holdings.reserve(pod.uid, pod.name, claims_of(pod))
            return file

    def admitted(self, pod: str) -> None:
        """The pod's admission is over: it keeps its claims."""
        with self._lock:
            self._holdings.admitted(pod)

    def retreat(self, pod: str) -> None:
        """A pod is not admitted: what was allocated for it is free, and what was allocated
        before stays so."""
        self.leave(pod, also_allocated_before=False)
        self.settle()

    def leave(self, *pods: str, also_allocated_before: bool = True) -> None:
        """The pods have ended: claims that nobody else uses are free. ``settle`` is to be called
        then, by whoever holds no lock.

        A pod that was never admitted frees only what was allocated for it.
        """
        with self._lock:
            if self._holdings.leave(pods, also_allocated_before):
                self._fall_behind()

    def forget_all_but(self, pods: Iterable[str]) -> None:
        """All pods of the node are known now: claims of others are free, as with ``leave``."""
        with self._lock:
            self._holdings.is_sources_ready = True
            self.leave(*self._holdings.reservations.others(frozenset(pods)))

    def settle(self) -> None:
        """Tell drivers what was released, and write down what changed."""
        self._drivers.tell_released()
        file = self._file
        if file is not None:
            file.catch_up()

    def _fall_behind(self) -> None:
        if self._file is not None:
            self._file.fall_behind()

    # -- drivers -------------------------------------------------------------------------

    def set_driver(self, name: str, driver: ClaimDriver | None) -> None:
        """Who prepares the devices of a driver; None is nobody, and CDI ids are empty."""
        self._drivers.set(name, driver)

    def prepare(self, pod: Pod) -> None:
        """Before a container starts: each driver prepares the devices of the pod's claims that
        it has not prepared yet. Raises AllocationError if one cannot; the claims stay
        allocated, and the next call tries again.
        """
        if self._drivers.prepare(pod.uid):
            with self._lock:
                self._fall_behind()
            self.settle()

    def report(self, driver: str, claim: str, *statuses: DeviceStatus) -> None:
        """A driver says how its devices of a claim are; it replaces all that it said before.

        Raises ClaimsError for devices that the claim does not hold of this driver, and for
        addresses that contradict each other.
        """
        with self._lock:
            self._holdings.report(driver, claim, statuses)
            self._fall_behind()
        self.settle()

    # -- events --------------------------------------------------------------------------

    def _tell_allocated(self, claims: Sequence[str], pod: Pod | None = None) -> None:
        for claim in claims:
            with self._lock:
                devices = self._holdings.devices(claim)
            held = ", ".join(f"{key.pool}/{key.name}" for key in devices)
            uid = None if pod is None else pod.uid
            self._events.publish(EventKind.CLAIM_ALLOCATED, f"claim {claim} gets {held}", pod=uid)

    def _tell_gone(self, before: Gone, after: Gone) -> None:
        for claim, devices in after.items():
            for key in devices:
                if key not in before.get(claim, ()):
                    text = f"claim {claim} holds device {key.pool}/{key.name}"
                    text = f"{text}, which no pool offers any more"
                    self._events.publish(EventKind.CLAIM_DEVICE_GONE, text)
