"""Manager of the structured claims of one node: stores API objects and allocates devices.

Structured claims are the API ``devmgmtproto.k8s.io/v1alpha1``, the predecessor of dynamic resource
allocation (DRA).

Theory of operation. Users, drivers and administrators call ``ClaimManager``
(``MockKubelet.claims``). ``pod_claims.PodClaims`` adds the methods that the kubelet calls for
its pods.

In:  objects (pools, classes, claims, configs), calls to allocate and release claims, and the
     statuses of devices that drivers report.
Out: snapshots of claims, explanations, events, and the state file.
"""

# Locks. One reentrant lock guards the objects, the allocations and the drivers. Decisions are
# recorded with the lock held. File writes, driver calls and event callbacks come after the lock
# is released: they can block, or call the manager. The writer of the state file takes this lock
# while it renders, so a write with this lock held could deadlock.
#
# Objects are validated without the lock: constraints are compiled, which can take long.
#
# Searches. A search can take a second, so it runs on a snapshot, without the lock. One search
# runs at a time, in the order of the calls (``_turns``). Its result is recorded if nothing that
# it read has changed, else it searches again. After ``_SEARCHES`` attempts, the last result
# counts if the ledger accepts it: then the allocation took place before the other changes. A
# thread that waits for its turn must not hold the lock.
#
# Order of writes. An allocation is decided under the lock, then written to the state file, and
# only then returned and published as an event. If the write fails, the allocation is undone, so
# that no pod relies on an allocation that a restart would lose. A release is decided under the
# lock; drivers unprepare the devices, then the file is written (``persistence`` explains why a
# later write is safe). An event is published after the change that it reports.
#
# Lifetimes. Objects survive a restart of the kubelet, as those of an API server do. Allocations
# are read from the state file at each start.
#
# Invariant: after every call, all claims of an admitted pod are allocated and reserved for it,
# and no claim is allocated without a pod unless ``allocate`` was called for it.

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from devicemanager.claims.allocated_claims import AllocatedClaims, ClaimView, MissingDevices
from devicemanager.claims.drivers import ClaimDriver
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.explanation import Explanation
from devicemanager.claims.pace import Pace
from devicemanager.claims.persistence import ClaimsFile
from devicemanager.claims.preparing import Drivers
from devicemanager.claims.snapshot import Found, Snapshot
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.turns import Turns
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.reading import check
from devicemanager.core.printable import counted
from devicemanager.events.stream import EventKind, EventStream

__all__ = ["ClaimManager"]

_T = TypeVar("_T")

_SEARCHES = 4
"""Maximum number of searches of one call, if objects or allocations change during each search."""


class ClaimManager:
    """Manager of the pools, classes, claims and allocations of a kubelet's node. Thread-safe.

    ``MockKubelet.claims`` returns it. Claims are named ``namespace/name``.
    """

    def __init__(
        self, events: EventStream, *, node: str, admin_namespaces: frozenset[str] | None = None
    ) -> None:
        """Create a manager without objects.

        ``admin_namespaces``: the namespaces whose claims can use classes with admin access; None
        means all namespaces.
        """
        self.node = node
        self._events = events
        self._lock = threading.RLock()
        self._turns = Turns()
        # Whether the current thread has removed claims and must flush.
        self._caller = threading.local()
        # Guarded by the lock.
        self._store = ObjectStore()
        self._allocated = AllocatedClaims(self._store, node, admin_namespaces)
        self._drivers = Drivers(events, self._allocated, self._lock)
        self._file: ClaimsFile | None = None

    def _serving(self) -> ClaimsFile:
        file = self._file
        if file is None:
            raise ClaimsError(
                "the kubelet is stopped: start it before you allocate or release claims"
            )
        return file

    # -- objects -----------------------------------------------------------------------

    def apply(self, objects: Iterable[api.Object]) -> None:
        """Create or replace objects one after another.

        Raises ClaimsError or InvalidObject for the first rejected object. Objects before this one
        stay created.
        """
        # Not all or nothing: the files of a directory are used even if one object is rejected.
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
        """Create or replace a pool. Allocated claims keep their devices.

        Raises InvalidObject for an invalid pool, and ClaimsError if the pool exists and belongs to
        another driver.
        """
        check(pool)
        # Missing devices are compared before and after, so that each one is reported once.
        with self._lock:
            before = self._allocated.missing_devices()
            self._store.publish(pool, checked=True)
            missing = self._allocated.missing_devices()
            self._allocated.mark_changed()
        text = f"{pool.driver} publishes pool {pool.name}: {counted(len(pool.devices), 'device')}"
        if pool.node_name not in ("", self.node):
            text += f" of node {pool.node_name}; claims on node {self.node} cannot use it"
        self._events.publish(EventKind.POOL_PUBLISHED, text)
        self._report_missing(before, missing)

    def define(self, device_class: api.DeviceClass) -> None:
        """Create or replace a device class. Allocated claims are not affected.

        Raises InvalidObject for an invalid class.
        """
        check(device_class)
        with self._lock:
            self._store.define(device_class, checked=True)
            self._allocated.mark_changed()

    def submit(self, claim: api.DeviceClaim) -> None:
        """Create or replace a claim.

        Raises InvalidObject for an invalid claim, and ClaimsError if the claim is allocated and
        its spec would change.
        """
        claim = attrs.evolve(claim, status=api.ClaimStatus())
        check(claim)
        with self._lock:
            self._allocated.allocator.submit(claim, checked=True)
            self._allocated.mark_changed()

    def configure(self, config: api.ConfigObject) -> None:
        """Create or replace a config object, which classes and claims can refer to.

        Raises InvalidObject for an invalid object.
        """
        check(config)
        with self._lock:
            self._store.configure(config, checked=True)

    def withdraw(self, found: api.Object) -> bool:
        """Delete an object by kind and name. Return False if it does not exist.

        A claim that pods use is deleted when the last of these pods ends.
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
        """Delete every object. A claim that pods use is deleted when its last pod ends."""
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
            text = f"claim {claim} is used by {', '.join(users)}: it is deleted when no pod uses it"
            self._events.publish(EventKind.CLAIM_DELETION_WAITS, text)
        self._flush()
        return existed

    # -- claims without pods -------------------------------------------------------------

    def allocate(self, *claims: str) -> None:
        """Allocate claims together, all or none, without a pod.

        Raises DoesNotFit if the claims do not fit now, TryAgain if the search reached its limits,
        and another ClaimsError if the claims cannot be allocated or the state file cannot be
        written. An error leaves everything unchanged.
        """

        def record(found: Found | None) -> tuple[ClaimsFile, tuple[str, ...]]:
            return self._serving(), self._allocated.allocate(found)

        self._serving()
        file, new = self._search(claims, record)
        try:
            file.write()
        except ClaimsError:
            # The caller gets an error, so the new allocations must not stay.
            with self._lock:
                self._allocated.release(*new)
            self._drivers.unprepare_released()
            raise
        self._report_allocated(new)

    def _search(self, claims: Sequence[str], record: Callable[[Found | None], _T]) -> _T:
        """Find devices for the pending claims among ``claims``; return what ``record`` returns.

        ``record`` is called with the lock held; its argument is None if no claim is pending.
        ``record`` must change nothing if it raises an error.
        """
        with self._lock:
            if not self._allocated.allocator.pending(claims):
                return record(None)
        with self._turns.turn():
            # All attempts of a call share the time limit.
            attempts, pace = 0, Pace()
            while True:
                attempts += 1
                with self._lock:
                    allocator = self._allocated.allocator
                    if not (pending := allocator.pending(claims)):
                        return record(None)
                    snapshot = allocator.snapshot(pending, self.node)
                result = _result(snapshot, pace)
                with self._lock:
                    is_current = self._allocated.allocator.is_current(snapshot)
                    if is_current or attempts == _SEARCHES:
                        if isinstance(result, ClaimsError):
                            raise result
                        return record(result)

    def release(self, *claims: str) -> None:
        """Release claims; ignore claims that are not allocated.

        Raises ClaimsError, and releases no claim, if a pod uses one of the claims.
        """
        with self._lock:
            file = self._serving()
            for claim in claims:
                if users := self._allocated.reservations.names(claim):
                    raise ClaimsError(
                        f'DeviceClaim "{claim}" is used by pods ({", ".join(users)}):'
                        " it can be released after these pods have ended"
                    )
            self._allocated.release(*claims)
        self._drivers.unprepare_released()
        file.write()

    # -- drivers -------------------------------------------------------------------------

    def set_driver(self, name: str, driver: ClaimDriver | None) -> None:
        """Set the object that prepares the devices of all pools whose driver is ``name``.

        If ``driver`` is None, the devices of these pools need no preparation and have no CDI names.
        """
        self._drivers.set(name, driver)

    def report(self, driver: str, claim: str, *statuses: api.DeviceStatus) -> None:
        """Replace the statuses that a driver reported for its devices of a claim.

        Raises ClaimsError for a device that is not allocated to the claim or belongs to another
        driver, and if ``device_ip`` is not the first of ``device_ips``.
        """
        with self._lock:
            self._allocated.report(driver, claim, statuses)
            self._mark_unwritten()
        self._flush()

    # -- reading -------------------------------------------------------------------------

    def view(self) -> tuple[ClaimView, ...]:
        """Return snapshots of all claims, sorted by ``namespace/name``."""
        with self._lock:
            return self._allocated.views()

    def claim(self, claim: str) -> ClaimView:
        """Return a snapshot of one claim. Raises ClaimsError if the claim does not exist."""
        with self._lock:
            return self._allocated.view(claim)

    def pools(self) -> tuple[api.DevicePool, ...]:
        """Return the published pools, sorted by name."""
        with self._lock:
            return tuple([pool for _, pool in sorted(self._store.pools.items())])

    def classes(self) -> tuple[api.DeviceClass, ...]:
        """Return the device classes, sorted by name."""
        with self._lock:
            return tuple([each for _, each in sorted(self._store.classes.items())])

    def explain(self, *claims: str) -> Explanation:
        """Return which devices the claims have or would get, or why they do not fit together.

        Raises ClaimsError if a claim does not exist, or cannot use the classes that it names.
        """
        with self._turns.turn():
            with self._lock:
                allocator = self._allocated.allocator
                found = [allocator.claim(claim) for claim in dict.fromkeys(claims)]
                snapshot = allocator.snapshot(found, self.node)
            return snapshot.explain(Pace())

    # -- the state file and events ---------------------------------------------------------

    def _flush(self) -> None:
        """Unprepare devices of released claims, then write pending changes to the state file.

        Must be called without the lock held.
        """
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


def _result(snapshot: Snapshot, pace: Pace) -> Found | ClaimsError:
    try:
        return snapshot.search(pace)
    except ClaimsError as error:
        return error
