"""Structured claims of one node: pools, classes and claims, and what claims have.

Theory of operation. ``ClaimManager`` is what users, drivers and administrators call
(``MockKubelet.claims``). ``pod_claims.PodClaims`` adds what the kubelet calls for its pods.

In:  objects, requests to allocate and release, reports of drivers.
Out: views of claims, explanations, events, and the state file.
"""

# Locks. One reentrant lock guards the objects, the allocations and the drivers. Decisions are
# made with it held. File writes, driver calls and event callbacks come after it is released:
# they can block, or call back. The writer of the state file takes this lock while it renders,
# so a write with this lock held could deadlock.
#
# Order of writes. An allocation is decided under the lock, then written to the state file, and
# only then answered and published as an event. If the write fails, it is undone, so that no
# pod relies on an allocation that a restart would forget. A release is decided under the lock;
# drivers unprepare the devices, then the file is written (``persistence`` says why later is
# safe). Events follow what they report, so a reader of an event finds its effect.
#
# Lifetimes. Objects survive a restart of the kubelet, as those of an API server do. Allocations
# are read from the state file at each start.
#
# Invariant: after every call, all claims of an admitted pod are allocated and reserved for it,
# and no claim is allocated without a pod unless ``allocate`` was called for it.

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from devicemanager.claims.allocated_claims import AllocatedClaims, ClaimView, MissingDevices
from devicemanager.claims.drivers import ClaimDriver
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.explanation import Explanation
from devicemanager.claims.persistence import ClaimsFile
from devicemanager.claims.preparing import Drivers
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.events.stream import EventKind, EventStream

__all__ = ["ClaimManager"]


class ClaimManager:
    """Pools, classes and claims of a kubelet's node, and its allocations. Thread-safe.

    ``MockKubelet.claims`` returns it. Claims are named ``namespace/name``.
    """

    def __init__(
        self, events: EventStream, *, node: str, admin_namespaces: frozenset[str] | None = None
    ) -> None:
        """``admin_namespaces`` can use classes with admin access; None is all namespaces."""
        self.node = node
        self._events = events
        self._lock = threading.RLock()
        # Guarded by the lock.
        self._store = ObjectStore()
        self._allocated = AllocatedClaims(self._store, node, admin_namespaces)
        self._drivers = Drivers(events, self._allocated, self._lock)
        self._file: ClaimsFile | None = None

    def _serving(self) -> ClaimsFile:
        file = self._file
        if file is None:
            raise ClaimsError("the kubelet is stopped and does not allocate or release claims")
        return file

    # -- objects -----------------------------------------------------------------------

    def apply(self, objects: Iterable[api.Object]) -> None:
        """Create or replace objects one after another.

        Raises ClaimsError or InvalidObject for the first that is rejected; those before it
        stay.
        """
        # Not all or nothing: the files of a directory are used although one object is rejected.
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
        """Create or replace a pool. Allocated claims keep their devices."""
        # Compared before and after, so that each missing device is reported once.
        with self._lock:
            before = self._allocated.missing_devices()
            self._store.publish(pool)
            missing = self._allocated.missing_devices()
            self._allocated.mark_changed()
        text = f"{pool.driver} publishes pool {pool.name}: {len(pool.devices)} devices"
        if pool.node_name not in ("", self.node):
            text += f" of node {pool.node_name}; not for claims here, on node {self.node}"
        self._events.publish(EventKind.POOL_PUBLISHED, text)
        self._report_missing(before, missing)

    def define(self, device_class: api.DeviceClass) -> None:
        """Create or replace a class. Allocated claims are not affected."""
        with self._lock:
            self._store.define(device_class)
            self._allocated.mark_changed()

    def submit(self, claim: api.DeviceClaim) -> None:
        """Create or replace a claim. Raises ClaimsError for a change of an allocated one."""
        with self._lock:
            self._allocated.allocator.submit(claim)
            self._allocated.mark_changed()

    def configure(self, config: api.ConfigObject) -> None:
        """Create or replace an object that classes and claims can refer to."""
        with self._lock:
            self._store.configure(config)

    def withdraw(self, found: api.Object) -> bool:
        """Delete an object, by its kind and name; False if it does not exist.

        A claim that pods use is deleted when the last of them ends.
        """
        if isinstance(found, api.DeviceClaim):
            return self._withdraw_claim(found.id)
        with self._lock:
            before = self._allocated.missing_devices()
            if isinstance(found, api.DevicePool):
                existed = self._store.withdraw_pool(found.name)
            elif isinstance(found, api.DeviceClass):
                existed = self._store.withdraw_class(found.name)
            else:
                existed = self._store.withdraw_config(found.reference)
            missing = self._allocated.missing_devices()
            self._allocated.mark_changed()
        self._report_missing(before, missing)
        return existed

    def clear(self) -> None:
        """Delete every object. Claims that pods use are deleted when the last of them ends."""
        with self._lock:
            configs = tuple(self._store.configs.values())
        claims = [view.claim for view in self.view()]
        # Claims first: they refer to the classes and pools.
        found: list[api.Object] = [*claims, *self.pools(), *self.classes(), *configs]
        for each in found:
            self.withdraw(each)

    def _withdraw_claim(self, claim: str) -> bool:
        with self._lock:
            existed = self._allocated.withdraw(claim)
            users = self._allocated.reservations.names(claim)
            self._mark_unwritten()
        if existed and users:
            text = f"claim {claim} is used by {', '.join(users)}: it is deleted when they end"
            self._events.publish(EventKind.CLAIM_DELETION_WAITS, text)
        self._flush()
        return existed

    # -- claims without pods -------------------------------------------------------------

    def allocate(self, *claims: str) -> None:
        """Allocate claims together, all or none, without a pod.

        Raises DoesNotFit, TryAgain or another ClaimsError; then nothing has changed.
        """
        with self._lock:
            file = self._serving()
            new = self._allocated.allocator.allocate(claims, self.node)
            self._allocated.mark_changed()
        try:
            file.write()
        except ClaimsError:
            # The caller gets an error, so nothing may stay allocated.
            with self._lock:
                self._allocated.release(*new)
            self._drivers.unprepare_released()
            raise
        self._report_allocated(new)

    def release(self, *claims: str) -> None:
        """Release claims; those that are not allocated are ignored.

        Raises ClaimsError, and releases none, if a pod uses one of them.
        """
        with self._lock:
            file = self._serving()
            for claim in claims:
                if users := self._allocated.reservations.names(claim):
                    raise ClaimsError(
                        f'DeviceClaim "{claim}" is used by {", ".join(users)}:'
                        " it is released when they end"
                    )
            self._allocated.release(*claims)
        self._drivers.unprepare_released()
        file.write()

    # -- drivers -------------------------------------------------------------------------

    def set_driver(self, name: str, driver: ClaimDriver | None) -> None:
        """Set the driver that prepares devices of this driver name.

        With None, its devices need no preparation and have no CDI names.
        """
        self._drivers.set(name, driver)

    def report(self, driver: str, claim: str, *statuses: api.DeviceStatus) -> None:
        """Replace what a driver reported about its devices of a claim.

        Raises ClaimsError for devices that the claim does not have from this driver, and for
        contradictory addresses.
        """
        with self._lock:
            self._allocated.report(driver, claim, statuses)
            self._mark_unwritten()
        self._flush()

    # -- reading -------------------------------------------------------------------------

    def view(self) -> tuple[ClaimView, ...]:
        """Return all claims, by name."""
        with self._lock:
            return self._allocated.views()

    def claim(self, claim: str) -> ClaimView:
        """Return one claim; raises ClaimsError if it does not exist."""
        with self._lock:
            return self._allocated.view(claim)

    def pools(self) -> tuple[api.DevicePool, ...]:
        """Return the published pools, by name."""
        with self._lock:
            return tuple([pool for _, pool in sorted(self._store.pools.items())])

    def classes(self) -> tuple[api.DeviceClass, ...]:
        """Return the classes, by name."""
        with self._lock:
            return tuple([each for _, each in sorted(self._store.classes.items())])

    def explain(self, *claims: str) -> Explanation:
        """Explain why claims have their devices, or would get some together, or would not.

        Raises ClaimsError for claims that can never be allocated.
        """
        with self._lock:
            return self._allocated.allocator.explain(claims, self.node)

    # -- the state file and events ---------------------------------------------------------

    def _flush(self) -> None:
        """Unprepare what was released, then write pending changes. Needs no lock held."""
        self._drivers.unprepare_released()
        file = self._file
        if file is not None:
            file.write_pending()

    def _mark_unwritten(self) -> None:
        if self._file is not None:
            self._file.mark_changed()

    def _report_allocated(self, claims: Sequence[str], pod: str | None = None) -> None:
        for claim in claims:
            with self._lock:
                devices = self._allocated.devices(claim)
            names = ", ".join(f"{key.pool}/{key.name}" for key in devices)
            self._events.publish(EventKind.CLAIM_ALLOCATED, f"claim {claim} gets {names}", pod=pod)

    def _report_missing(self, before: MissingDevices, after: MissingDevices) -> None:
        for claim, devices in after.items():
            for key in devices:
                if key not in before.get(claim, ()):
                    text = f"claim {claim} has device {key.pool}/{key.name}"
                    text = f"{text}, which no pool offers any more"
                    self._events.publish(EventKind.CLAIM_DEVICE_GONE, text)
