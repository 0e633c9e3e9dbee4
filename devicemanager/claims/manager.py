"""Claims through the life of a node: allocated with the pods that use them, and kept.

One lock; nothing is written and no driver is called while it is held. The objects outlive
the kubelet's process as those of an API server do; who holds what is read again from the
state file at each start.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs

import checkpoint
from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.core.ir import Allocation, Limits
from devicemanager.claims.core.ledger import Ledger, LedgerError
from devicemanager.claims.core.solve import DEFAULT_LIMITS
from devicemanager.claims.devmgmt import objects as api
from devicemanager.claims.drivers import ClaimDriver
from devicemanager.claims.dynamic import dynamic_resource
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.explanation import Explanation
from devicemanager.claims.reservations import Reservations
from devicemanager.claims.statefile import (
    ClaimRecord,
    ClaimsState,
    StateCorrupt,
    StateWriter,
    parse_state,
)
from devicemanager.claims.store import ObjectStore
from devicemanager.core.errors import AllocationError, StartError
from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod
from devicemanager.core.refusal import refused_by_allocation
from devicemanager.events import EventKind, EventStream
from devicemanager.manager.checkpointing import Store, Writer
from podresources import DynamicResource

_WAITS = (0.05, 0.2)
"""Seconds before a state file that could not be read is read again."""


_Unprepare = tuple[api.DeviceClaim, tuple[DeviceKey, ...]]
"""A released claim, and its devices that drivers have prepared."""


class StateFile(Store, Protocol):
    """Where the state is kept: a ``checkpoint.FileStore``."""

    path: Path

    def read(self) -> bytes: ...
    def set_aside(self) -> Path: ...
    def remove_leftovers(self) -> None: ...


@attrs.frozen
class ClaimView:
    """One claim as of one moment."""

    claim: api.DeviceClaim
    allocation: Allocation | None = None
    """What it holds; None if it is not allocated."""
    users: Mapping[str, str] = attrs.field(factory=dict)
    """The pods that use it: UID to name."""
    is_deleted: bool = False
    """Whether it goes as soon as nobody uses it any more."""
    gone: tuple[DeviceKey, ...] = ()
    """Devices that it holds and that no pool offers any more: unhealthy."""

    @property
    def phase(self) -> str:
        """``Pending``, ``Allocated`` or ``Reserved``."""
        if self.allocation is None:
            return "Pending"
        return "Reserved" if self.users else "Allocated"


class ClaimManager:
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
        self.node = node
        self._events = events
        self._admin_namespaces = admin_namespaces
        self._limits = limits
        self._lock = threading.RLock()
        # All below is guarded by the lock.
        self._store = ObjectStore()
        self._drivers: dict[str, ClaimDriver] = {}
        self._rendering = StateWriter()
        self._writer: Writer | None = None
        self._version = 0
        self._pod_versions: dict[str, int] = {}
        self._released: list[_Unprepare] = []
        """What drivers and events are still to be told."""
        self._unwritten = False
        self._take_over(ClaimsState())

    # -- life of the kubelet's process -------------------------------------------------

    def load(self, file: StateFile) -> None:
        """A kubelet starts: take over what the file says, and write there from now on.

        A corrupt file is set aside. Raises StartError if the file is there and cannot be read:
        to go on would give away devices that are held.
        """
        file.remove_leftovers()
        state = self._read(file)
        with self._lock:
            try:
                self._take_over(state)
            except LedgerError as error:
                self._set_aside(file, StateCorrupt(str(error)))
                self._take_over(ClaimsState())
            self._writer = Writer(file, self._render)
        if state.records:
            text = f"{file.path}: {len(state.records)} allocated claims"
            self._events.publish(EventKind.CLAIMS_LOADED, text)

    def close(self) -> None:
        """The kubelet stops; waits for a write under way. What is held is kept in the file."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _read(self, file: StateFile) -> ClaimsState:
        try:
            return parse_state(_patiently(file.read))
        except checkpoint.CheckpointNotFound:
            return ClaimsState()
        except checkpoint.CheckpointUnreadable as error:
            raise StartError(str(error)) from error
        except StateCorrupt as error:
            self._set_aside(file, error)
            return ClaimsState()
        except ClaimsError as error:
            raise StartError(f"{file.path}: {error}") from error

    def _set_aside(self, file: StateFile, error: StateCorrupt) -> None:
        try:
            aside = file.set_aside()
        except checkpoint.CheckpointError as failed:
            raise StartError(
                f"{file.path}: {error}; it cannot be set aside either: {failed}"
            ) from failed
        text = f"{file.path}: {error}; set aside as {aside}, no claim is allocated now"
        self._events.publish(EventKind.CLAIMS_SET_ASIDE, text)

    def _take_over(self, state: ClaimsState) -> None:
        self._allocator = Allocator(
            self._store,
            ledger=Ledger.restore(state.ledger()),
            allocated=[record.claim for record in state.records],
            limits=self._limits,
            admin_namespaces=self._admin_namespaces,
        )
        self._reservations = Reservations()
        self._prepared = {record.claim.id: dict(record.prepared) for record in state.records}
        self._deleted = {record.claim.id for record in state.records if record.is_deleted}
        self._new: dict[str, tuple[str, ...]] = {}
        """Claims that were allocated for a pod whose admission is under way."""
        for record in state.records:
            for uid, name in record.users.items():
                self._reservations.reserve(record.claim.id, uid, name)
        self._sources_ready = not self._reservations.pods()
        self._changed(*self._reservations.pods())

    def _render(self) -> bytes:
        with self._lock:
            claims = self._allocator.ledger.claims()
            records = tuple([self._record(claim) for claim in claims])
            state = ClaimsState(records, self._allocator.ledger.state().charges)
        # Writes come one after the other, so the cache of texts has one user at a time.
        return self._rendering.render(state)

    def _record(self, claim: str) -> ClaimRecord:
        allocation = self._allocator.ledger.allocation(claim)
        assert allocation is not None
        return ClaimRecord(
            self._allocator.claim(claim),
            allocation,
            dict(self._reservations.users(claim)),
            claim in self._deleted,
            dict(self._prepared.get(claim, {})),
        )

    def write(self) -> None:
        """Return once every change before this call is on disk. Raises ClaimsError."""
        with self._lock:
            writer = self._writer
        if writer is None:
            return
        self._unwritten = False
        try:
            writer.flush()
        except checkpoint.CheckpointWriteError as error:
            self._events.publish(EventKind.CLAIMS_FAILED, str(error))
            raise ClaimsError(str(error)) from error

    # -- objects -----------------------------------------------------------------------

    def apply(self, objects: Iterable[api.Object]) -> None:
        """Create or replace objects one after another. Raises for the first that is refused,
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
        """Create or replace a pool. Nobody loses what he holds of it."""
        with self._lock:
            before = self._gone()
            self._store.publish(pool)
            gone = self._gone()
            self._changed()
        self._events.publish(
            EventKind.POOL_PUBLISHED,
            f"{pool.driver} publishes pool {pool.name}: {len(pool.devices)} devices",
        )
        self._tell_gone(before, gone)

    def define(self, device_class: api.DeviceClass) -> None:
        """Create or replace a class. Allocated claims stay as they are."""
        with self._lock:
            self._store.define(device_class)
            self._changed()

    def submit(self, claim: api.DeviceClaim) -> None:
        """Create or replace a claim; an allocated one cannot be changed."""
        with self._lock:
            self._allocator.submit(claim)
            self._changed()

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
            before = self._gone()
            if isinstance(found, api.DevicePool):
                was_there = self._store.withdraw_pool(found.name)
            elif isinstance(found, api.DeviceClass):
                was_there = self._store.withdraw_class(found.name)
            else:
                was_there = self._store.withdraw_config(found.reference)
            gone = self._gone()
            self._changed()
        self._tell_gone(before, gone)
        return was_there

    def _withdraw_claim(self, claim: str) -> bool:
        with self._lock:
            allocated = self._allocator.is_allocated(claim)
            was_there = self._store.withdraw_claim(claim) or (
                allocated and claim not in self._deleted
            )
            users = self._reservations.names(claim)
            if allocated and users:
                self._deleted.add(claim)
            self._changed()
        if users and was_there:
            text = f"claim {claim} is used by {', '.join(users)}: it is deleted when they end"
            self._events.publish(EventKind.CLAIM_DELETION_WAITS, text)
            self.write()
        elif allocated and not users:
            self.release(claim)
        return was_there

    # -- claims without pods -------------------------------------------------------------

    def allocate(self, *claims: str) -> None:
        """Allocate claims (``namespace/name``) together, all or none, for whoever comes.

        Raises DoesNotFit, TryAgain, or ClaimsError; nothing has changed then.
        """
        with self._lock:
            self._check_serving()
            new = self._allocator.allocate(claims, self.node)
            self._changed()
        try:
            if new:
                self.write()
        except ClaimsError:
            with self._lock:
                self._free([claim for claim in new if not self._reservations.users(claim)])
            self._tell_released()
            raise
        self._tell_allocated(new)

    def release(self, *claims: str) -> None:
        """Free what claims hold. Nothing happens to those that hold nothing.

        Raises ClaimsError, and releases none, if a pod uses one of them.
        """
        with self._lock:
            self._check_serving()
            for claim in claims:
                if users := self._reservations.names(claim):
                    raise ClaimsError(
                        f'DeviceClaim "{claim}" is used by {", ".join(users)}:'
                        " it is released when they end"
                    )
            self._free(claims)
        self._tell_released()
        self.write()

    def _check_serving(self) -> None:
        if self._writer is None:
            raise ClaimsError("the kubelet is stopped: it decides about no claim")

    # -- pods ----------------------------------------------------------------------------

    def admit(self, pod: Pod) -> None:
        """Allocate and reserve all claims of a pod, or none. Raises Refused.

        Whoever then cannot admit the pod calls ``retreat``.
        """
        if not pod.resource_claims:
            return
        if self._store.is_empty and not self._allocator.ledger.claims():
            text = "nobody published a pool or claim: the pod runs without its claims"
            title = f"pod {pod.namespace}/{pod.name}"
            self._events.publish(EventKind.CLAIM_UNKNOWN, f"{title}: {text}", pod=pod.uid)
            return
        try:
            self._reserve(pod)
            self.write()
        except ClaimsError as error:
            self.retreat(pod.uid)
            raise refused_by_allocation(error) from error
        with self._lock:
            new = self._new.get(pod.uid, ())
        self._tell_allocated(new, pod)

    def _reserve(self, pod: Pod) -> None:
        claims = claims_of(pod)
        for name, claim in pod.resource_claims.items():
            if claim is None:
                raise ClaimsError(
                    f'resource claim "{name}" is to be made from a template, of which there are'
                    " none: name a DeviceClaim with resourceClaimName"
                )
        with self._lock:
            self._check_serving()
            for claim in claims:
                if claim in self._deleted and pod.uid not in self._reservations.users(claim):
                    raise ClaimsError(f'DeviceClaim "{claim}" is being deleted')
            new = self._allocator.allocate(claims, self.node)
            if new:
                self._new[pod.uid] = new
            for claim in claims:
                self._reservations.reserve(claim, pod.uid, pod.name)
                self._note_users(claim)
            self._changed(pod.uid)

    def admitted(self, pod: str) -> None:
        """The pod's admission is over: it keeps its claims."""
        with self._lock:
            self._new.pop(pod, None)

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
            new = {claim for pod in pods for claim in self._new.pop(pod, ())}
            left = self._reservations.leave(pods)
            self._after_leaving(left, free=left if also_allocated_before else tuple(new))
            self._changed(*pods)

    def forget_all_but(self, pods: Iterable[str]) -> None:
        """All pods of the node are known now: claims of others are free, as with ``leave``."""
        with self._lock:
            self._sources_ready = True
            self.leave(*self._reservations.others(frozenset(pods)))

    def settle(self) -> None:
        """Tell drivers what was released, and write down what changed.

        A write that fails is an event: what the file says too much is freed when a kubelet
        starts and does not know the pod.
        """
        self._tell_released()
        if self._unwritten:
            with contextlib.suppress(ClaimsError):
                self.write()

    @property
    def is_sources_ready(self) -> bool:
        """Whether no pod of the state file is waited for any more."""
        return self._sources_ready

    def pods(self) -> frozenset[str]:
        """The UIDs of the pods that use claims."""
        with self._lock:
            return self._reservations.pods()

    def _after_leaving(self, left: Sequence[str], free: Sequence[str]) -> None:
        self._unwritten |= bool(left)
        unused = [claim for claim in left if not self._reservations.users(claim)]
        for claim in left:
            self._note_users(claim)
        self._free([claim for claim in unused if claim in free or claim in self._deleted])

    def _note_users(self, claim: str) -> None:
        if self._allocator.is_allocated(claim):
            names = self._reservations.names(claim)
            self._allocator.set_status(claim, pod_names=names)

    def _free(self, claims: Iterable[str]) -> None:
        """With the lock held; others are told once it is not."""
        for claim in claims:
            if not self._allocator.is_allocated(claim):
                continue
            found = self._allocator.claim(claim)
            self._released.append((found, tuple(self._prepared.pop(claim, {}))))
            self._allocator.release(claim)
            self._deleted.discard(claim)
        self._changed()

    def _tell_released(self) -> None:
        with self._lock:
            released, self._released = self._released, []
        for claim, devices in released:
            for driver, its in _by_driver(devices).items():
                self._unprepare(claim, driver, its)
            self._events.publish(EventKind.CLAIM_RELEASED, f"claim {claim.id} released")

    def _unprepare(self, claim: api.DeviceClaim, name: str, devices: list[DeviceKey]) -> None:
        driver = self._drivers.get(name)
        if driver is None:
            return
        try:
            driver.unprepare(claim, devices)
        except Exception as error:
            text = f"claim {claim.id}: driver {name} cannot unprepare: {error}"
            self._events.publish(EventKind.CLAIMS_FAILED, text)

    # -- drivers -------------------------------------------------------------------------

    def set_driver(self, name: str, driver: ClaimDriver | None) -> None:
        """Who prepares the devices of a driver; None is nobody, and CDI ids are empty."""
        with self._lock:
            self._drivers.pop(name, None)
            if driver is not None:
                self._drivers[name] = driver

    def prepare(self, pod: Pod) -> None:
        """Before a container starts: each driver prepares the devices of the pod's claims that
        it has not prepared yet. Raises AllocationError if one cannot; the claims stay
        allocated, and the next call tries again.
        """
        changed = False
        try:
            for claim, name, driver, devices in self._unprepared(pod):
                changed |= self._prepare(pod, claim, name, driver, devices)
        finally:
            self._unwritten |= changed
            self.settle()

    def _unprepared(
        self, pod: Pod
    ) -> list[tuple[api.DeviceClaim, str, ClaimDriver, list[DeviceKey]]]:
        with self._lock:
            found = []
            for claim in self._reservations.claims(pod.uid):
                prepared = self._prepared.get(claim, {})
                missing = [key for key in self._devices(claim) if key not in prepared]
                for name, devices in _by_driver(missing).items():
                    if name in self._drivers:
                        driver = self._drivers[name]
                        found.append((self._allocator.claim(claim), name, driver, devices))
            return found

    def _prepare(
        self,
        pod: Pod,
        claim: api.DeviceClaim,
        name: str,
        driver: ClaimDriver,
        devices: list[DeviceKey],
    ) -> bool:
        try:
            answer = driver.prepare(claim, devices)
            ids = {key: tuple(answer.get(key, ())) for key in devices}
        except Exception as error:
            text = f"claim {claim.id}: driver {name} cannot prepare its devices: {error}"
            raise AllocationError(text) from error
        with self._lock:
            # The pod, and its claims with it, may be gone meanwhile.
            if pod.uid not in self._reservations.users(claim.id):
                return False
            self._prepared.setdefault(claim.id, {}).update(ids)
            self._changed(*self._reservations.users(claim.id))
        return True

    # -- reading -------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def pod_version(self, pod: str) -> int:
        """Grows with every change of what PodResources shows of a pod's claims."""
        return self._pod_versions.get(pod, 0)

    def view(self) -> tuple[ClaimView, ...]:
        """All claims, by name."""
        with self._lock:
            gone = self._gone()
            return tuple(
                [
                    self._view(claim, gone.get(name, ()))
                    for name, claim in sorted(self._allocator.claims.items())
                ]
            )

    def _view(self, claim: api.DeviceClaim, gone: tuple[DeviceKey, ...]) -> ClaimView:
        allocation = self._allocator.ledger.allocation(claim.id)
        users = dict(self._reservations.users(claim.id))
        return ClaimView(claim, allocation, users, claim.id in self._deleted, gone)

    def claim(self, claim: str) -> ClaimView:
        """One claim (``namespace/name``); raises ClaimsError if there is none."""
        with self._lock:
            found = self._allocator.claim(claim)
            return self._view(found, self._gone().get(claim, ()))

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
            return self._allocator.explain(claims, self.node)

    def dynamic_resources(self, pod: Pod, container: ContainerName) -> tuple[DynamicResource, ...]:
        """What PodResources shows of a container's claims: each claim once, when all of its
        devices that have a driver here are prepared."""
        if not pod.resource_claims:
            return ()
        with self._lock:
            mine = self._reservations.claims(pod.uid)
            shown = [claim for claim in claims_of(pod, container) if claim in mine]
            found = [self._dynamic(claim) for claim in shown]
        return tuple([each for each in found if each is not None])

    def _dynamic(self, claim: str) -> DynamicResource | None:
        prepared, devices = self._prepared.get(claim, {}), self._devices(claim)
        if any(key not in prepared and key.driver in self._drivers for key in devices):
            return None
        namespace, _, name = claim.partition("/")
        return dynamic_resource(namespace, name, devices, prepared)

    def cdi_devices(self, pod: Pod, container: ContainerName) -> tuple[str, ...]:
        """The CDI names that a container's claims bring, each once."""
        names = [
            name
            for claim in self.dynamic_resources(pod, container)
            for resource in claim.claim_resources
            for name in resource.cdi_devices
        ]
        return tuple(dict.fromkeys(names))

    def _devices(self, claim: str) -> tuple[DeviceKey, ...]:
        allocation = self._allocator.ledger.allocation(claim)
        return tuple([grant.device for grant in allocation.grants]) if allocation else ()

    def _gone(self) -> dict[str, tuple[DeviceKey, ...]]:
        """By claim: devices that it holds and that no pool offers."""
        offered = self._store.constraints(self.node).inventory.index
        found = {}
        for claim in self._allocator.ledger.claims():
            gone = tuple([key for key in self._devices(claim) if key not in offered])
            if gone:
                found[claim] = gone
        return found

    # -- events --------------------------------------------------------------------------

    def _changed(self, *pods: str) -> None:
        self._version += 1
        for pod in pods:
            self._pod_versions[pod] = self._version

    def _tell_allocated(self, claims: Iterable[str], pod: Pod | None = None) -> None:
        for claim in claims:
            devices = ", ".join(f"{key.pool}/{key.name}" for key in self._held(claim))
            text = f"claim {claim} gets {devices}"
            uid = None if pod is None else pod.uid
            self._events.publish(EventKind.CLAIM_ALLOCATED, text, pod=uid)

    def _held(self, claim: str) -> tuple[DeviceKey, ...]:
        with self._lock:
            return self._devices(claim)

    def _tell_gone(
        self,
        before: Mapping[str, tuple[DeviceKey, ...]],
        after: Mapping[str, tuple[DeviceKey, ...]],
    ) -> None:
        for claim, devices in after.items():
            new = [key for key in devices if key not in before.get(claim, ())]
            for key in new:
                text = f"claim {claim} holds device {key.pool}/{key.name}, which is not offered"
                self._events.publish(EventKind.CLAIM_DEVICE_GONE, f"{text} any more")


def claims_of(pod: Pod, container: ContainerName | None = None) -> tuple[str, ...]:
    """The claims of a pod, or those that one of its containers uses, as ``namespace/name``."""
    if container is None:
        names: Iterable[str] = pod.resource_claims
    else:
        names = next(each.claims for each, _ in pod.all_containers() if each.name == container)
    claims = [pod.resource_claims[name] for name in names]
    return tuple(dict.fromkeys(f"{pod.namespace}/{claim}" for claim in claims if claim))


def _by_driver(devices: Iterable[DeviceKey]) -> dict[str, list[DeviceKey]]:
    found: dict[str, list[DeviceKey]] = {}
    for key in sorted(devices):
        found.setdefault(key.driver, []).append(key)
    return found


def _patiently(read: Callable[[], bytes]) -> bytes:
    """Try again what may pass: the disk, or a process that has all descriptors."""
    for wait in _WAITS:
        try:
            return read()
        except checkpoint.CheckpointUnreadable:
            time.sleep(wait)
    return read()
