"""``DraManager``: prepares and unprepares the claims of pods with the drivers of one kubelet.

Theory of operation. ``_run`` steps a generator of ``core.dra`` with the lock held, and carries out
each effect without the lock:

* ``FetchClaim``: get the ResourceClaim from the claim source.
* ``CallDriver``: call a registered instance of the driver; the call times out after 45 s.
* ``WriteState``: write the state file; one write can serve several pods.
* ``AwaitClaims``: wait while another pod prepares a claim that both pods use.

The pod workers call ``prepare`` before they create a sandbox, and ``unprepare`` after the last
container has stopped. They retry failures. The reconcile loop unprepares the claims of pods without
a worker, for example of pods that were deleted while the kubelet was down.

Follows pkg/kubelet/cm/dra/manager.go, v1.37.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import starmap
from operator import attrgetter
from pathlib import Path
from typing import Any

import checkpoint
import podresources
from devicemanager.core import messages
from devicemanager.core.dra import containers as of_containers
from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.claim_infos import Node, claim_infos
from devicemanager.core.dra.drivers import Instance
from devicemanager.core.dra.effects import (
    Answer,
    AwaitClaims,
    CallDriver,
    Effect,
    FetchClaim,
    Operation,
    Steps,
    WriteState,
)
from devicemanager.core.dra.errors import ClaimFetchError, DraError, StateWriteError
from devicemanager.core.dra.explanation import Attempt, Fetched, explain
from devicemanager.core.dra.health import HealthCache, ReportedDevice, holders
from devicemanager.core.dra.model import (
    ClaimInfo,
    ClaimKey,
    ClaimRef,
    PodClaims,
    ResourceClaim,
)
from devicemanager.core.dra.prepare import prepare
from devicemanager.core.dra.report import (
    ClaimExplanation,
    DraStatus,
    DriverInstance,
    ResourceClaimInfo,
    SkippedCalls,
    slice_info,
)
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.dra.unprepare import (
    RECONCILE_PERIOD,
    inactive_pods,
    unprepare,
    unprepare_claims,
)
from devicemanager.core.errors import RpcError, StartError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Pod
from devicemanager.core.printable import counted
from devicemanager.core.status import ResourceStatus
from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.registry import FaultRegistry
from devicemanager.io.clock import Cancel, Clock
from devicemanager.kubelet.checkpoint_faults import FaultyFiles
from devicemanager.kubelet.dra.claim_source import ClaimSource, claim_of
from devicemanager.kubelet.dra.health import Devices, HealthFile
from devicemanager.kubelet.dra.instances import Instances
from devicemanager.kubelet.dra.pod_claims import ClaimUser, pod_claims, publish_result
from devicemanager.kubelet.dra.state import DraState
from devicemanager.kubelet.dra.state_file import StateFile
from devicemanager.kubelet.dra.wiping import Wiper
from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
from devicemanager.kubelet.settings import Settings

__all__ = ["DraManager"]


class DraManager:
    """DRA manager of one kubelet process, from ``start`` to ``close``. Thread-safe."""

    def __init__(
        self,
        root: Path,
        settings: Settings,
        clock: Clock,
        events: EventStream,
        calls: CallLog,
        faults: FaultRegistry,
        claims: ClaimSource,
        active: Callable[[], Collection[str] | None],
        updates: HealthUpdates,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """``active`` returns the UIDs of all active pods; None until all pods are known.
        ``updates`` is the queue for the UIDs of pods whose devices changed health."""
        rules = DraRules(settings.behaviour, settings.quirks)
        self._rules = rules
        self._settings = settings
        self._clock = clock
        self._events = events
        self._claims = claims
        self._active = active
        self._updates = updates
        self._on_error = on_error
        self._state = DraState.empty(rules)
        self._file = StateFile(root, settings.durability, FaultyFiles(faults), rules, events)
        self._health_file = HealthFile(root, clock)
        self._wiper = Wiper(settings.node_name, claims.wipe, clock, events)
        self.instances = Instances(
            self._state, settings, clock, events, calls, faults, self._wiper, self, on_error
        )
        """The registered instances of drivers."""
        # Guarded by the state's lock.
        self._is_sources_ready = True
        self._version = 1
        # By pod with claims: the version at which they last changed.
        self._pod_versions: dict[str, int] = {}
        # Guards the fields below.
        self._lock = threading.Lock()
        self._closed = False
        self._cancel: Cancel | None = None
        self._preparing: set[str] = set()
        """The UIDs of pods whose claims are being prepared."""
        self._canceled: set[str] = set()
        """The UIDs of terminating pods whose claims are being prepared."""

    # -- life ------------------------------------------------------------------------

    def start(self) -> None:
        """Read the state file, delete the node's ResourceSlices, and start the reconcile loop.

        Raises StartError if the file cannot be read or written.
        """
        try:
            claims = self._file.load(self._snapshot)
        except StateWriteError as error:
            raise StartError(f"cannot write the state file of the DRA manager: {error}") from error
        with self._state.lock:
            self._state.cache = ClaimCache(claims)
            # If the file names no pods, the reconcile loop need not wait for the pods that the
            # kubelet does not know yet.
            self._is_sources_ready = not any(each.pods for each in claims)
            if self._settings.behaviour.dra_health:
                self._state.health = HealthCache(self._rules, self._health_file.load())
        # As in the kubelet, the slices of running drivers are deleted, too. The drivers publish
        # them again.
        self._wiper.wipe()
        self._reconcile_later()

    def close(self) -> None:
        """Close all connections, so that calls in flight fail. Stop all timers and all writes."""
        with self._lock:
            # Set before the connections are closed: the end of their health streams must not remove
            # the health from the file.
            self._closed = True
            cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        self._wiper.close()
        self.instances.close()
        self._file.close()
        with self._state.lock:
            # Threads that wait for a shared claim see that the kubelet is stopping, and raise an
            # error.
            self._state.lock.notify_all()

    def _snapshot(self) -> tuple[ClaimInfo, ...]:
        with self._state.lock:
            return self._state.cache.snapshot()

    @property
    def is_sources_ready(self) -> bool:
        """True if ``sources_ready`` was called, or if the loaded state file named no pods.

        Until then, the claims of unknown pods stay prepared.
        """
        return self._is_sources_ready

    def sources_ready(self) -> None:
        """Declare that all pods are known. The reconcile loop then unprepares the claims of unknown
        pods."""
        self._is_sources_ready = True

    def pods(self) -> frozenset[str]:
        """Return the UIDs of the pods that hold claims."""
        with self._state.lock:
            return frozenset(uid for claim in self._state.cache for uid in claim.pods)

    # -- pods ------------------------------------------------------------------------

    def prepare(self, pod: Pod) -> None:
        """Prepare all claims of a pod. Raises DraError with the kubelet's message."""
        claims, begun = pod_claims(pod), time.monotonic()
        try:
            self._prepare(claims)
        except DraError as error:
            text = messages.PREPARE_FAILED.format(error=error)
            text = f"{messages.FAILED_PREPARE}: {text}"
            publish_result(self._events, EventKind.PREPARE_FAILED, claims, text, begun)
            raise
        names = ", ".join(each.name for each in self.held(claims.uid))
        publish_result(
            self._events,
            EventKind.CLAIMS_PREPARED,
            claims,
            f"prepared {names or 'no claims'}",
            begun,
        )

    def _prepare(self, pod: PodClaims) -> None:
        state = self._state
        with self._lock:
            self._preparing.add(pod.uid)
        try:
            self._run(prepare(pod, state.cache, state.drivers, self._rules), pod)
        finally:
            with self._lock:
                self._preparing.discard(pod.uid)
                self._canceled.discard(pod.uid)

    def unprepare(self, pod: Pod) -> None:
        """Unprepare all claims of a pod. Raises DraError with the kubelet's message."""
        claims, begun = pod_claims(pod), time.monotonic()
        # The names are read first, because unpreparing removes the claims from the cache.
        state, names = self._state, ", ".join(each.name for each in self.held(pod.uid))
        try:
            self._run(unprepare(claims, state.cache, state.drivers, self._rules), claims)
        except DraError as error:
            publish_result(self._events, EventKind.UNPREPARE_FAILED, claims, str(error), begun)
            raise
        text = f"unprepared {names or 'no claims'}"
        publish_result(self._events, EventKind.CLAIMS_UNPREPARED, claims, text, begun)

    def cancel(self, uid: str) -> None:
        """Stop preparing the claims of a pod, because the pod is terminating.

        As in the kubelet, NodePrepareResources calls and requests for a ResourceClaim fail with
        ``context canceled``. The termination of the pod does not wait for a call in flight. The
        response to this call is dropped.
        """
        with self._lock:
            # Only the end of an attempt removes the UID again. Without an attempt, it would stay
            # forever.
            if uid in self._preparing:
                self._canceled.add(uid)

    def held(self, uid: str) -> tuple[ClaimInfo, ...]:
        """Return the claims that the kubelet has stored for a pod, sorted by namespace and name.

        Claims are stored before drivers prepare them.
        """
        with self._state.lock:
            return self._state.cache.of_pod(uid)

    def cdi_devices(self, pod: Pod, container: ContainerName) -> tuple[str, ...]:
        """Return the CDI devices that a container gets. Raises DraError for an unknown claim."""
        claims = pod_claims(pod)
        with self._state.lock:
            return of_containers.container_cdi(claims, container, self._state.cache, self._rules)

    def devices(self, pod: Pod, container: ContainerName) -> dict[str, tuple[str, ...]]:
        """Return a container's devices: name of the claim → devices, each as ``pool/device``."""
        return {
            each.name: tuple(f"{device.pool}/{device.device}" for device in each.devices)
            for each in self._listed(pod, container)
        }

    # -- reports ---------------------------------------------------------------------

    def explain(self, pod: Pod, attempt: Attempt) -> tuple[ClaimExplanation, ...]:
        """Return the state of each claim of a pod, and what the claim waits for.

        ``attempt`` is the last attempt to prepare or unprepare the pod's claims.
        """
        claims = pod_claims(pod)
        # Requests to the API server can take long, so they are sent before the lock is taken.
        names = {*pod.resource_claims.values(), *pod.claim_statuses.values(), pod.extended_claim}
        fetched = {name: self._fetched(pod.namespace, name) for name in names if name is not None}
        state, absent = self._state, self.instances.absent()
        with state.lock:
            return explain(
                claims,
                fetched.__getitem__,
                state.cache,
                state.drivers,
                self._rules,
                absent,
                attempt,
            )

    def _fetched(self, namespace: str, name: str) -> Fetched:
        try:
            return claim_of(self._claims.fetch(namespace, name))
        except ClaimFetchError as error:
            return str(error)

    def status(self, pods: Collection[ClaimUser] = ()) -> DraStatus:
        """Return the registered drivers, the node's claims, and the known ResourceSlices.

        ``pods`` are the node's pods that use DRA. Claims that only the specs of pods name are in
        the result only if ``pods`` contains the pods.
        """
        claims = self.claim_infos(pods)
        # Called without the lock: the first call can wait some seconds for the API server.
        slices = map(slice_info, self._claims.known("ResourceSlice"))
        with self._state.lock:
            drivers = tuple(map(_driver_instance, self._state.drivers))
            skipped = tuple(
                SkippedCalls(driver=driver, rpc=rpc, count=count)
                for (rpc, driver), count in sorted(self._state.cache.skipped.items())
            )
        by_pool = attrgetter("driver", "pool", "name")
        return DraStatus(
            drivers=drivers,
            claims=claims,
            slices=tuple(sorted(slices, key=by_pool)),
            skipped=skipped,
        )

    def claim_infos(
        self, pods: Collection[ClaimUser], *fetched: tuple[str, str]
    ) -> tuple[ResourceClaimInfo, ...]:
        """Return the claims of the node, sorted by namespace and name.

        ``pods`` are the node's pods that use DRA. ``fetched`` names claims, as pairs of namespace
        and name. The claims in ``fetched`` are read even if this needs a request to the API server.
        All other claims are read only if this needs no request.
        """
        absent = self.instances.absent()
        # All requests to the API server are sent before the lock is taken.
        objects = [*self._claims.known("ResourceClaim"), *starmap(self.fetch, fetched)]
        found = [each for each in objects if each is not None]
        known = {ClaimKey(each.namespace, each.name): each for each in _readable(found)}
        with self._state.lock:
            node = Node(
                known,
                [pod_claims(each.pod) for each in pods],
                {str(each.pod.uid): each.attempt for each in pods},
                self._state.cache,
                self._state.drivers,
                self._rules,
                absent,
            )
            return tuple(claim_infos(node))

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a ResourceClaim as in the API; None if it cannot be read."""
        try:
            return self._claims.fetch(namespace, name)
        except ClaimFetchError:
            return None

    # -- direct calls ----------------------------------------------------------------

    def call(
        self,
        operation: Operation,
        driver: str,
        claims: Iterable[tuple[str, str]],
        endpoint: str | None,
    ) -> Answer:
        """Call a driver to prepare or unprepare claims without a pod. Return the driver's response.

        ``claims`` are pairs of namespace and name. The state of the kubelet does not change.
        ``endpoint`` selects an instance; None selects the instance that the kubelet would call.
        Raises ClaimFetchError if a claim cannot be read, DraError if the driver or the instance is
        not registered, and RpcError if the call fails.
        """
        # A request to a driver contains the UIDs of claims, so the claims are read first.
        read = [claim_of(self._claims.fetch(namespace, name)) for namespace, name in claims]
        refs = tuple([ClaimRef(each.namespace, each.name, each.uid) for each in read])
        with self._state.lock:
            found = [
                each
                for each in self._state.drivers
                if (each.driver, each.endpoint) == (driver, endpoint)
            ]
            # If the endpoint is unknown, ``lookup`` raises the error for a driver without any
            # instance.
            instance = found[0] if found else self._state.drivers.lookup(driver)
        if endpoint is not None and not found:
            raise DraError(
                f"DRA driver {driver} has no instance at {endpoint}: use a registered endpoint"
            )
        call = CallDriver(operation, driver, instance.id, instance.service, refs)
        return self.instances.call(call)

    # -- PodResources ----------------------------------------------------------------

    @property
    def version(self) -> int:
        """Number that increases with every change of claims."""
        return self._version

    def pod_version(self, pod: str) -> int:
        """Return the version of the pod's claims. It increases with every change, and is 0 for a
        pod without claims."""
        return self._pod_versions.get(pod, 0)

    def dynamic_resources(
        self, pod: Pod, container: ContainerName
    ) -> tuple[podresources.DynamicResource, ...]:
        """Return the claims of a container as PodResources shows them."""
        return tuple(
            podresources.DynamicResource(
                each.name,
                each.namespace,
                tuple(
                    podresources.ClaimResource(
                        device.driver, device.pool, device.device, device.cdi, device.share_id
                    )
                    for device in each.devices
                ),
            )
            for each in self._listed(pod, container)
        )

    def _listed(self, pod: Pod, container: ContainerName) -> tuple[of_containers.ClaimDevices, ...]:
        claims = pod_claims(pod)
        with self._state.lock:
            try:
                cache = self._state.cache
                return of_containers.dynamic_resources(claims, container, cache, self._rules)
            except DraError:
                return ()  # the kubelet logs the error, and lists no claims

    # -- health ----------------------------------------------------------------------

    def health(self, pod: Pod, container: ContainerName) -> tuple[ResourceStatus, ...]:
        """Return the entries for a container's claims in the pod's ``allocatedResourcesStatus``."""
        claims, now = pod_claims(pod), self._clock.monotonic()
        with self._state.lock:
            status = of_containers.claims_status(
                claims, self._state.cache, self._state.health, self._rules, now
            )
        return of_containers.resource_statuses(status.get(container, {}))

    def report(self, instance: Instance, devices: tuple[ReportedDevice, ...], ignored: int) -> None:
        """Store a health report of a driver instance.

        Put the UIDs of pods whose devices changed health into the queue of health updates.

        ``ignored`` is the number of reported devices that were left out of ``devices``: the report
        had too many devices, or their names were too long.
        """
        if ignored:
            self._events.publish(
                EventKind.HEALTH_DROPPED,
                f"{instance.driver}: {counted(ignored, 'device')} of a health report ignored: too "
                "many, or with names too long for a ResourceSlice",
                resource=instance.driver,
            )
        with self._state.lock:
            health = self._state.health
            before = health.changes
            changed = health.report(instance.driver, devices, self._clock.monotonic())
            # Not the same as ``changed``: a device that is forgotten changes the file, but no pod.
            is_written = health.changes != before
            pods = holders(self._state.cache, instance.driver, changed)
        if is_written:
            self._write_health()
        names = ", ".join(f"{key.pool}/{key.device}" for key in sorted(changed))
        for uid in pods:
            kept = self._updates.report(PodUid(uid))
            self._events.publish(
                EventKind.DEVICE_HEALTH if kept else EventKind.HEALTH_DROPPED,
                f"{instance.driver} {names}: health changed"
                if kept
                else f"{instance.driver} {names}: report of changed health dropped: "
                f"the queue has {counted(self._updates.maxsize, 'unread report')}",
                resource=instance.driver,
                pod=uid,
            )

    def stream_ended(self, instance: Instance) -> None:
        """Remove the health of a driver's devices, because one of its streams has ended.

        Do nothing if the kubelet is stopping: the next kubelet instance reads the health from the
        file.
        """
        if self._closed:
            return
        with self._state.lock:
            self._state.health.clear(instance.driver)
        self._write_health()

    def _health_snapshot(self) -> Devices:
        with self._state.lock:
            return self._state.health.snapshot()

    def _write_health(self) -> None:
        try:
            self._health_file.write(self._health_snapshot)
        except checkpoint.CheckpointWriteError as error:
            # The health in memory is still correct, so the kubelet goes on.
            self._events.publish(EventKind.DRA_STATE_FAILED, str(error))

    # -- generators ------------------------------------------------------------------

    def _run(self, steps: Steps, pod: PodClaims) -> None:
        """Run a generator to its end. Raises DraError."""
        lock = self._state.lock
        answer: Answer = None
        error: Exception | None = None
        with lock:
            try:
                while True:
                    effect = steps.send(answer) if error is None else steps.throw(error)
                    answer, error = None, None
                    try:
                        answer = self._without_lock(effect, pod)
                    except (ClaimFetchError, RpcError, StateWriteError) as failure:
                        # The generator gets the error, and raises the kubelet's error for the
                        # failed step.
                        error = failure
            except StopIteration:
                return
            finally:
                # After an error, the generator may not have ended. Closing it ends its reservations
                # of claims, for which other pods wait.
                steps.close()
                self._changed(pod)
                # Other pods can wait for claims that this generator has prepared.
                lock.notify_all()

    def _without_lock(self, effect: Effect, pod: PodClaims) -> Answer:
        lock = self._state.lock
        if isinstance(effect, AwaitClaims):
            cache = self._state.cache
            # The condition releases the lock while it waits.
            lock.wait_for(lambda: self._closed or not any(map(cache.is_preparing, effect.claims)))
            if self._closed:
                raise DraError("the kubelet is stopping")
            return None
        lock.release()
        try:
            return self._carry_out(effect, pod)
        finally:
            lock.acquire()

    def _carry_out(self, effect: FetchClaim | CallDriver | WriteState, pod: PodClaims) -> Answer:
        # The pod can terminate between two effects. Then the next call is not sent.
        self._check_canceled(effect, pod)
        answer = self._perform(effect)
        # The pod can terminate while this thread waits for the response.
        self._check_canceled(effect, pod)
        return answer

    def _perform(self, effect: FetchClaim | CallDriver | WriteState) -> Answer:
        match effect:
            case FetchClaim():
                return claim_of(self._claims.fetch(effect.namespace, effect.name))
            case CallDriver():
                return self.instances.call(effect)
            case WriteState():
                self._file.write()
                return None

    def _check_canceled(self, effect: FetchClaim | CallDriver | WriteState, pod: PodClaims) -> None:
        """Raise the error that the kubelet gets for this effect when the context of a terminating
        pod is cancelled."""
        if pod.uid not in self._canceled:
            return
        # Writes and NodeUnprepareResources calls are not cancelled: the termination of the pod
        # needs both.
        match effect:
            case FetchClaim():
                raise ClaimFetchError("context canceled")
            case CallDriver(operation=Operation.PREPARE):
                raise RpcError("Canceled", "context canceled")

    def _changed(self, pod: PodClaims) -> None:
        """Count a change of a pod's claims. Must be called with the lock held."""
        self._version += 1
        claims = self._state.cache.of_pod(pod.uid)
        # PodResources shows a shared claim for each of its pods, so all of them change.
        for uid in {pod.uid}.union(*(claim.pods for claim in claims)):
            self._pod_versions[uid] = self._version
        if not claims:
            # The versions of ended pods would accumulate.
            del self._pod_versions[pod.uid]

    # -- the reconcile loop ----------------------------------------------------------

    def _reconcile_later(self) -> None:
        with self._lock:
            if not self._closed:
                when = self._clock.monotonic() + RECONCILE_PERIOD
                self._cancel = self._clock.call_at(when, self._reconcile_in_background)

    def _reconcile_in_background(self) -> None:
        # A driver can take 45 s to respond, so use a separate thread.
        threading.Thread(target=self._reconcile_and_repeat, name="reconcile", daemon=True).start()

    def _reconcile_and_repeat(self) -> None:
        try:
            self.reconcile()
        # No caller waits for this thread, so an unexpected error is reported here.
        except BaseException as error:
            self._on_error(error)
        # The timer is set after the run, so two runs never overlap, however long a driver takes.
        self._reconcile_later()

    def reconcile(self) -> None:
        """Unprepare the claims of inactive pods."""
        # Until all pods are known, an unknown pod can still be running.
        active = self._active() if self._is_sources_ready else None
        if active is None:
            return
        with self._state.lock:
            inactive = inactive_pods(self._state.cache, active)
        for each in inactive:
            # The names of deleted pods are unknown, so the UID is also the name.
            pod, begun = PodClaims(each.uid, each.uid, each.namespace), time.monotonic()
            state = self._state
            steps = unprepare_claims(
                each.uid, each.namespace, each.claims, state.cache, state.drivers, self._rules
            )
            try:
                self._run(steps, pod)
            except DraError as error:
                publish_result(self._events, EventKind.UNPREPARE_FAILED, pod, str(error), begun)
                # The claims stay in the cache, so the next run tries again.
                continue
            names = ", ".join(each.claims)
            publish_result(
                self._events, EventKind.CLAIMS_UNPREPARED, pod, f"unprepared {names}", begun
            )


def _driver_instance(found: Instance) -> DriverInstance:
    return DriverInstance(
        driver=found.driver,
        endpoint=found.endpoint,
        service=found.service,
        health_service=found.health_service,
        connected=found.connected,
    )


def _readable(claims: Iterable[Mapping[str, Any]]) -> Iterator[ResourceClaim]:
    """Yield the claims that can be decoded. Other claims cause an error only when a pod uses
    them."""
    for each in claims:
        with contextlib.suppress(ClaimFetchError):
            yield claim_of(each)
