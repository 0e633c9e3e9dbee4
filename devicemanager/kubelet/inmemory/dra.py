"""DRA manager of an in-memory kubelet: the decisions of ``core.dra``, with drivers in memory.

Theory of operation. ``_run`` steps a generator of ``core.dra`` with the lock held. It releases the
lock only to get a ResourceClaim, because the API server can take long. The simulated drivers
respond at once. If a driver has a simulated delay, the attempt to prepare the claims raises
``SandboxLater``. The pod worker tries again after the delay, and then gets the response. So no
thread waits for a driver.

In:  the pods' claims (``source``), the states of the drivers (``NodeDrivers``).
Out: prepared and unprepared claims, CDI devices of containers, health of devices, events.

Claims are not written to a state file. The kubelet's next process gets them from
``InMemoryDra.claims``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from devicemanager.core import messages
from devicemanager.core.dra import containers as of_containers
from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.effects import (
    CALL_TIMEOUT,
    Answer,
    AwaitClaims,
    CallDriver,
    FetchClaim,
    Operation,
    Steps,
)
from devicemanager.core.dra.errors import ClaimFetchError, DraError
from devicemanager.core.dra.health import DeviceHealth, HealthCache
from devicemanager.core.dra.model import (
    ClaimInfo,
    ClaimRef,
    DriverName,
    PodClaims,
    PreparedDevice,
    PrepareResult,
    UnprepareResult,
)
from devicemanager.core.dra.prepare import prepare
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.dra.unprepare import unprepare
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Pod
from devicemanager.core.status import Health, ResourceStatus
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock
from devicemanager.kubelet.dra.claim_source import claim_of
from devicemanager.kubelet.dra.pod_claims import pod_claims, publish_result
from devicemanager.kubelet.inmemory.drivers import NodeDrivers
from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
from devicemanager.kubelet.pods.sandboxes import SandboxLater
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.dra.explanation import Attempt
    from podresources import DynamicResource

__all__ = ["ClaimFetcher", "InMemoryDra"]

_ENDPOINT: Final = "in-memory"
_SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha3.NodeService")

_Fetched = dict[str, Mapping[str, Any]]
"""ResourceClaims of one attempt, as in the API, by UID."""


class ClaimFetcher(Protocol):
    """Reader of ResourceClaims, for example from an API server. Thread-safe."""

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a ResourceClaim in API version v1.

        Raises ClaimFetchError with the API server's text.
        """


class _Health(HealthCache):
    """Current health of the devices. Simulated drivers report it without a stream."""

    def __init__(self, rules: DraRules, drivers: NodeDrivers) -> None:
        super().__init__(rules)
        self._drivers = drivers

    def get(self, driver: DriverName, pool: str, device: str, now: float) -> DeviceHealth:
        """Return the health of a device; unknown while its driver is stopped."""
        state = self._drivers.state(driver)
        if driver not in self._drivers.devices or state.is_stopped:
            return DeviceHealth(Health.UNKNOWN)
        is_bad = device in state.unhealthy or device in state.lost
        return DeviceHealth(Health.UNHEALTHY if is_bad else Health.HEALTHY)


class InMemoryDra:
    """DRA manager of one process of an in-memory kubelet. Implements ``PodDra``. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        node: NodeDrivers,
        source: ClaimFetcher,
        clock: Clock,
        events: EventStream,
        updates: HealthUpdates,
        claims: Iterable[ClaimInfo] = (),
    ) -> None:
        """``updates`` is the queue for the UIDs of pods whose devices changed health. ``claims``
        are the claims that the kubelet's previous process had stored."""
        self._rules = DraRules(settings.behaviour, settings.quirks)
        self._node = node
        self._source = source
        self._clock = clock
        self._events = events
        self._updates = updates
        self._health = _Health(self._rules, node)
        # Guards the fields below.
        self._lock = threading.Condition()
        # As after a restart of a kubelet, a claim is known, but not prepared.
        self._cache = ClaimCache(
            attrs.evolve(each, prepared=False, unpreparing=False) for each in claims
        )
        self._drivers = Drivers(self._rules)
        self._responses: dict[str, float] = {}
        """Mapping from pod UIDs to the time when the delayed driver of the pod responds. Times are
        in seconds, by the clock's ``monotonic``."""
        self._preparing: set[str] = set()
        """UIDs of the pods whose claims are being prepared, except pods that are ending."""
        self._closed = False
        for name in node.devices:
            self.driver_changed(name)

    def close(self) -> None:
        """Close the manager. Calls that wait for another pod to prepare a shared claim fail."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    @property
    def claims(self) -> tuple[ClaimInfo, ...]:
        """The claims that the kubelet has stored for all pods, sorted by namespace and name."""
        with self._lock:
            return self._cache.snapshot()

    def held(self, uid: str) -> tuple[ClaimInfo, ...]:
        """Return the claims that the kubelet has stored for a pod, sorted by namespace and name."""
        with self._lock:
            return self._cache.of_pod(uid)

    # -- drivers ---------------------------------------------------------------------

    def driver_changed(self, driver: str) -> None:
        """Register or deregister a driver after a change of the driver's state.

        Also put the UIDs of pods that have claims of the driver into the queue of health updates,
        because the health of their devices may have changed.
        """
        now = self._clock.monotonic()
        with self._lock:
            is_registered = any(each.driver == driver for each in self._drivers)
            if self._node.state(driver).is_stopped:
                self._drivers.deregister(driver, _ENDPOINT, now)
            elif not is_registered:
                made = self._drivers.register(driver, _ENDPOINT, _SERVICES, now)
                self._drivers.set_connected(made.id, True, now)
            pods = {uid for claim in self._cache if driver in claim.drivers for uid in claim.pods}
        # Sorted, so that the queue has the same order in every run.
        for uid in sorted(pods):
            if self._updates.report(PodUid(uid)):
                text = f"{driver}: health changed"
                self._events.publish(EventKind.DEVICE_HEALTH, text, resource=driver, pod=uid)

    # -- pods ------------------------------------------------------------------------

    def prepare(self, pod: Pod) -> None:
        """Prepare all claims of a pod.

        Raises DraError with the kubelet's text. If the simulated delay of a driver has not passed
        yet, raises SandboxLater with the seconds until the next attempt.
        """
        claims, begun = pod_claims(pod), time.monotonic()
        try:
            self._prepare(claims)
        except DraError as error:
            text = messages.PREPARE_FAILED.format(error=error)
            text = f"{messages.FAILED_PREPARE}: {text}"
            publish_result(self._events, EventKind.PREPARE_FAILED, claims, text, begun)
            raise
        publish_result(
            self._events, EventKind.CLAIMS_PREPARED, claims, "prepared its claims", begun
        )

    def adopt(self, pod: Pod) -> None:
        """Prepare the claims of a pod that an earlier kubelet ran. Errors are ignored."""
        claims = pod_claims(pod)
        try:
            self._prepare(claims)
        except (DraError, SandboxLater):
            # A claim that cannot be prepared any more needs no driver when the pod ends.
            return

    def _prepare(self, pod: PodClaims) -> None:
        with self._lock:
            self._preparing.add(pod.uid)
        try:
            self._run(prepare(pod, self._cache, self._drivers, self._rules), pod)
            with self._lock:
                self._responses.pop(pod.uid, None)
        finally:
            with self._lock:
                self._preparing.discard(pod.uid)

    def unprepare(self, pod: Pod) -> None:
        """Unprepare all claims of a pod. Raises DraError with the kubelet's text."""
        claims, begun = pod_claims(pod), time.monotonic()
        try:
            self._run(unprepare(claims, self._cache, self._drivers, self._rules), claims)
        except DraError as error:
            publish_result(self._events, EventKind.UNPREPARE_FAILED, claims, str(error), begun)
            raise
        publish_result(
            self._events, EventKind.CLAIMS_UNPREPARED, claims, "unprepared its claims", begun
        )

    def cancel(self, uid: str) -> None:
        """Stop preparing the claims of this pod, because the pod ends."""
        with self._lock:
            self._preparing.discard(uid)
            self._responses.pop(uid, None)

    # -- generators ------------------------------------------------------------------

    def _run(self, steps: Steps, pod: PodClaims) -> None:
        """Run a generator to its end. Raises DraError and SandboxLater."""
        answer: Answer = None
        error: Exception | None = None
        # A simulated driver reads the allocation from these claims, as a real driver gets the claim
        # from the API server.
        fetched: _Fetched = {}
        with self._lock:
            try:
                while True:
                    effect = steps.send(answer) if error is None else steps.throw(error)
                    answer, error = None, None
                    try:
                        match effect:
                            case FetchClaim():
                                answer = claim_of(self._fetch(effect, pod, fetched))
                            case CallDriver():
                                answer = self._call(effect, pod, fetched)
                            case AwaitClaims():
                                self._await(effect)
                    # SandboxLater is not caught. It ends this attempt, and the next attempt begins
                    # from the start.
                    except (ClaimFetchError, RpcError) as failure:
                        error = failure
            except StopIteration:
                return
            finally:
                steps.close()
                # Other pods can wait for claims that this one has prepared.
                self._lock.notify_all()

    def _await(self, effect: AwaitClaims) -> None:
        is_busy = self._cache.is_preparing
        self._lock.wait_for(lambda: self._closed or not any(map(is_busy, effect.claims)))
        if self._closed:
            raise DraError("the kubelet is stopping")

    def _fetch(self, effect: FetchClaim, pod: PodClaims, fetched: _Fetched) -> Mapping[str, Any]:
        # Other pods must not wait for a slow API server.
        self._lock.release()
        try:
            claim = self._source.fetch(effect.namespace, effect.name)
        finally:
            self._lock.acquire()
        # The pod can end while the request is in progress.
        if pod.uid not in self._preparing:
            raise ClaimFetchError("context canceled")
        fetched[str(claim["metadata"].get("uid"))] = claim
        return claim

    def _call(self, effect: CallDriver, pod: PodClaims, fetched: _Fetched) -> Answer:
        """Return the response of a simulated driver. Raises RpcError and SandboxLater."""
        if effect.operation is Operation.UNPREPARE:
            failing = self._node.state(effect.driver).fails_unprepare
            error = "injected fault: unprepare fails" if failing else ""
            return {each.uid: UnprepareResult(error) for each in effect.claims}
        # The pod can end while it waits for another pod to prepare a shared claim.
        if pod.uid not in self._preparing:
            raise RpcError("Canceled", "context canceled")
        self._delay(effect.driver, pod)
        if self._node.fails_now(effect.driver):
            failed = PrepareResult(error="injected fault: prepare fails")
            return {each.uid: failed for each in effect.claims}
        return {
            each.uid: self._prepared(effect.driver, each, fetched[each.uid])
            for each in effect.claims
        }

    def _delay(self, driver: str, pod: PodClaims) -> None:
        delay, now = self._node.state(driver).delay, self._clock.monotonic()
        if not delay:
            return
        at = self._responses.get(pod.uid)
        # An attempt during the delay must not start the delay again.
        if at is None or now < at:
            self._responses[pod.uid] = at = now + min(delay, CALL_TIMEOUT) if at is None else at
            raise SandboxLater(at - now)
        if delay > CALL_TIMEOUT:
            # The next attempt is a new call, which the driver delays again.
            del self._responses[pod.uid]
            raise RpcError("DeadlineExceeded", "context deadline exceeded")

    def _prepared(self, driver: str, ref: ClaimRef, claim: Mapping[str, Any]) -> PrepareResult:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        devices = []
        for each in results:
            if each.get("driver") != driver:
                continue
            if error := self._allocated_twice(driver, ref, each):
                return PrepareResult(error=error)
            devices.append(
                PreparedDevice(
                    each["pool"],
                    each["device"],
                    each.get("shareID"),
                    # A driver responds with the request, without the chosen subrequest.
                    (str(each.get("request", "")).partition("/")[0],),
                    (f"k8s.{driver}/claim={ref.uid}-{each['device']}",),
                )
            )
        return PrepareResult(tuple(devices))

    def _allocated_twice(self, driver: str, ref: ClaimRef, result: Mapping[str, Any]) -> str:
        """Return an error text if the device of ``result`` is allocated to another claim, otherwise
        an empty text. Devices can be shared with ``adminAccess`` or ``shareID``."""
        if result.get("adminAccess") or result.get("shareID"):
            return ""
        # Like a real driver, refuse a device while another prepared claim has it.
        for claim in self._cache:
            state = claim.drivers.get(driver)
            for each in (state and state.devices) or ():
                same = (each.pool, each.device) == (result["pool"], result["device"])
                if same and claim.uid != ref.uid and not each.share_id and claim.prepared:
                    return (
                        f"device {each.pool}/{each.device} is allocated twice: ResourceClaim "
                        f"{claim.namespace}/{claim.name} has it"
                    )
        return ""

    # -- reports ---------------------------------------------------------------------

    def cdi_devices(self, pod: Pod, container: ContainerName) -> tuple[str, ...]:
        """Return the CDI devices that a container gets. Raises DraError for an unknown claim."""
        claims = pod_claims(pod)
        with self._lock:
            return of_containers.container_cdi(claims, container, self._cache, self._rules)

    def devices(self, pod: Pod, container: ContainerName) -> dict[str, tuple[str, ...]]:
        """Return a container's devices: name of the claim → devices, each as ``pool/device``."""
        claims = pod_claims(pod)
        with self._lock:
            try:
                listed = of_containers.dynamic_resources(
                    claims, container, self._cache, self._rules
                )
            except DraError:
                return {}
        return {
            each.name: tuple(f"{device.pool}/{device.device}" for device in each.devices)
            for each in listed
        }

    def health(self, pod: Pod, container: ContainerName) -> tuple[ResourceStatus, ...]:
        """Return the entries for a container's claims in the pod's ``allocatedResourcesStatus``."""
        claims = pod_claims(pod)
        with self._lock:
            status = of_containers.claims_status(
                claims, self._cache, self._health, self._rules, self._clock.monotonic()
            )
        return of_containers.resource_statuses(status.get(container, {}))

    # -- the rest of ``PodDra``, for what in-memory kubelets do not have ---------------

    def dynamic_resources(self, pod: Pod, container: ContainerName) -> tuple[DynamicResource, ...]:
        """Return an empty tuple, because an in-memory kubelet has no PodResources API."""
        return ()

    def explain(self, pod: Pod, attempt: Attempt) -> tuple[Any, ...]:
        """Return an empty tuple: the pod's events show what its claims wait for."""
        return ()

    @property
    def is_sources_ready(self) -> bool:
        """Always True: the claims of deleted pods are unprepared when the pods are removed."""
        return True

    def sources_ready(self) -> None:
        """Do nothing, because ``is_sources_ready`` is always True."""

    def pods(self) -> frozenset[str]:
        """Return the UIDs of the pods that hold claims."""
        with self._lock:
            return frozenset(uid for claim in self._cache for uid in claim.pods)

    @property
    def version(self) -> int:
        """Always 0. Only the PodResources API needs a version of the claims."""
        return 0

    def pod_version(self, pod: str) -> int:
        """Return 0. Only the PodResources API needs a version of the pod's claims."""
        return 0
