"""Actions, waits and observations that the checks of drivers use: the class ``DriverRun``.

A ``DriverRun`` has the members of ``SuiteRun``, and:

* ``run.api``, the API server, with its faults and its log of requests;
* ``run.slices()``, what the driver has published;
* ``run.claims(n)``, allocated ResourceClaims; ``run.prepare(claim)`` and ``run.unprepare(claim)``;
* ``run.client()``, a connection to the driver, for calls that a kubelet would not make;
* ``run.cdi``, the CDI directories.

A stage is the environment of a check: a mock kubelet, an API server and the driver. Several checks
can share a stage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from devicemanager.apiserver import FakeApiServer, LoggedRequest
from devicemanager.claims.errors import ClaimsError
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.drivers.cdi import CdiDirectories
from devicemanager.conformance.drivers.claims import allocate, claim_with, published
from devicemanager.conformance.drivers.client import DriverClient, get_info
from devicemanager.conformance.drivers.limits import DriverLimits
from devicemanager.conformance.drivers.stage import NODE, DriverStage, RunningDriver
from devicemanager.conformance.observations import EVER
from devicemanager.conformance.outcomes import Failed, Lost, Skipped
from devicemanager.conformance.stage import Stage
from devicemanager.conformance.suite_run import SuiteRun
from devicemanager.core.dra.report import DriverInstance
from devicemanager.core.printable import counted
from devicemanager.events.calls import Mark
from devicemanager.kubelet.runtime.cdi import DEFAULT_DIRECTORIES
from protos import dra_v1
from protos import pluginregistration_v1 as pr

__all__ = ["WRITES", "ClaimObject", "DriverRun"]

ClaimObject = Mapping[str, Any]
"""A ResourceClaim as a JSON object of the API ``resource.k8s.io/v1``."""
WRITES = ("create", "update", "patch")
"""Verbs of requests that write an object."""
_MOST_TEXT = 300
"""Maximum number of characters that are shown of the text with which the API server rejects a
write."""


class DriverRun(SuiteRun):
    """One run of one check on one stage: a mock kubelet, an API server and the driver."""

    stage: DriverStage
    plugin: RunningDriver
    limits: DriverLimits

    def __init__(self, stage: Stage, resources: tuple[str, ...], seed: str) -> None:
        super().__init__(stage, resources, seed)
        self._created = 0

    @property
    def api(self) -> FakeApiServer:
        """The API server."""
        return self.stage.api

    @property
    def driver(self) -> str:
        """Name of the driver."""
        return self.resource

    @property
    def registry(self) -> Path:
        """The kubelet's directory ``plugins_registry``."""
        return self.kubelet.plugins_registry_dir

    # -- registration ------------------------------------------------------------------

    @property
    def has_tried_to_register(self) -> bool:
        return bool(self.registration_sockets())

    @property
    def registration_place(self) -> str:
        return str(self.registry)

    @property
    def silence(self) -> str:
        return f"no socket in {self.registry}; {self.plugin.under_test.advice}"

    def rejection(self) -> str:
        calls = self.kubelet.calls(rpc="NotifyRegistrationStatus", since=EVER)
        errors = [str(call.request.get("error") or "") for call in calls]
        return errors[-1] if errors else ""

    def registered_names(self, since: Mark) -> set[str]:
        # Not driver-connected: the kubelet connects again to the service socket of a driver that
        # was killed, before it notices that the registration socket was replaced.
        registered = self.kubelet.events.recent("driver-registered")
        return {str(each.resource) for each in registered if each.number > since.event}

    def wait_registered(self, since: Mark, seconds: float, after: str) -> float:
        """Wait until the kubelet has registered the driver and is connected to it. Return the
        seconds that this took.

        Raises Failed after ``seconds`` or if the driver exits. ``after`` is a part of the error's
        text, such as "its start" in "the driver exited after its start".
        """

        def is_registered() -> bool:
            if self.driver not in self.registered_names(since):
                return False
            # The kubelet notifies the driver last, and removes it if the driver rejects that.
            notified = self.kubelet.calls(rpc="NotifyRegistrationStatus", since=since)
            is_accepted = any(each.code == "OK" for each in notified)
            return is_accepted and any(each.connected for each in self.instances()[-1:])

        took = self.until_registered(lambda: self.plugin.has_exited or is_registered(), seconds)
        if self.plugin.has_exited:
            raise Lost(f"the driver exited after {after}: {self.exit_reason}")
        if took is None:
            raise Lost(self._why_lost(f"{seconds:g} s after {after}"))
        self._registered_before = True
        self.plugin.forget_exits()
        self.step(f"registered {took:.2f} s after {after}")
        return took

    def _why_lost(self, when: str) -> str:
        if error := self.rejection():
            return f"the kubelet rejected {self.driver} {when}: {error}"
        sockets = [each.name for each in self.registration_sockets()]
        text = f"{self.driver} is not registered {when}"
        if sockets:
            return f"{text}, although {', '.join(sockets)} exists"
        # A driver that was registered before has found the directory.
        if self._registered_before or self.has_tried_to_register:
            return f"{text}: it has not created its socket in {self.registry} again"
        return f"{text}: {self.why_silent}"

    def instances(self) -> list[DriverInstance]:
        """Return the registered instances of the driver, the oldest first."""
        if not self.kubelet.is_serving:
            return []
        return [each for each in self.kubelet.dra_status().drivers if each.driver == self.driver]

    def instance(self) -> DriverInstance:
        """Return the newest registered instance. Raises Failed if the driver is not registered."""
        found = self.instances()
        if not found:
            raise Failed(f"the driver {self.driver} is not registered")
        return found[-1]

    def registration_sockets(self) -> list[Path]:
        """Return the paths of the sockets in ``plugins_registry``, sorted."""
        # The kubelet creates the directory at its first start.
        if not self.registry.is_dir():
            return []
        return sorted(each for each in self.registry.iterdir() if each.is_socket())

    def info(self) -> pr.PluginInfo:
        """Return the driver's response to GetInfo. Raises Failed if the driver has no registration
        socket or the call fails."""
        sockets = self.registration_sockets()
        if not sockets:
            raise Failed(f"no socket in {self.registry}")
        try:
            return get_info(sockets[-1])
        except CallFailed as error:
            raise Failed(str(error)) from None

    # -- slices ------------------------------------------------------------------------

    def slices(self) -> list[dict[str, Any]]:
        """Return the driver's ResourceSlices, sorted by name."""
        every = self.api.all("resourceslices")
        mine = [dict(each) for each in every if each["spec"]["driver"] == self.driver]
        return sorted(mine, key=lambda each: str(each["metadata"]["name"]))

    def devices(self) -> list[tuple[str, str]]:
        """Return pool and name of each published device."""
        return published(self.slices())

    def device_counts(self) -> Mapping[str, int]:
        return {self.driver: len(self.devices())}

    def why_unusable(self) -> str:
        if self.devices():
            return ""
        return (
            f"the driver {self.driver} has published no devices: "
            f"{self.plugin.under_test.advice_on_devices}"
        )

    def incomplete(self) -> str:
        """Return what is missing in the driver's slices; empty if all pools are complete."""
        pools: dict[str, list[dict[str, Any]]] = {}
        for each in self.slices():
            pools.setdefault(each["spec"]["pool"]["name"], []).append(each["spec"]["pool"])
        for name, found in pools.items():
            generation = max(each["generation"] for each in found)
            newest = [each for each in found if each["generation"] == generation]
            wanted = {each["resourceSliceCount"] for each in newest}
            if wanted != {len(newest)}:
                return (
                    f"pool {name} has {counted(len(newest), 'slice')} of generation {generation}, "
                    f"but resourceSliceCount {', '.join(map(str, sorted(wanted)))}"
                )
            if len(found) > len(newest):
                return f"pool {name} has slices of an old generation"
        return "" if pools else "there are no slices"

    def wait_devices(self) -> None:
        """Wait up to ``publish_seconds`` until the driver has published complete pools with all its
        devices.

        If the suite has run the driver before, wait for as many devices as in that run. Otherwise,
        wait until no API object has changed for ``settle_seconds``. The method raises no error if
        the time runs out.
        """
        wanted = self.stage.device_counts.get(self.driver)
        # A driver without devices may publish no slices, which ``incomplete`` would report.
        if wanted is not None:
            self.until(
                lambda: len(self.devices()) >= wanted and (not wanted or not self.incomplete()),
                self.limits.publish_seconds,
            )
            return
        seen = -1

        def is_stable() -> bool:
            nonlocal seen
            if self.incomplete() or not self.devices():
                return False
            # Each write of an object changes this number.
            before, seen = seen, self.api.version
            if before != seen:
                self.settle()
            return before == seen

        self.until(is_stable, self.limits.publish_seconds)

    def wait_slices(self, after: str) -> float:
        """Wait until the slices of all published pools are complete. Return the seconds that this
        took.

        Raises Failed after ``repair_seconds`` or if the driver exits. ``after`` is a part of the
        error's text, such as "its restart" in "the driver exited after its restart".
        """
        took = self.until(
            lambda: self.plugin.has_exited or not self.incomplete(), self.limits.repair_seconds
        )
        if self.plugin.has_exited:
            raise Failed(f"the driver exited after {after}: {self.plugin.exit_text()}")
        if took is None:
            raise Failed(f"{self.incomplete()}, {self.limits.repair_seconds:g} s after {after}")
        return took

    def delete_slices(self) -> None:
        """Delete all ResourceSlices of the driver, as a kubelet does if the driver stays
        disconnected."""
        self.step("delete all ResourceSlices")
        for each in self.slices():
            self.api.delete("resourceslices", each["metadata"]["name"])

    # -- writes of the driver ----------------------------------------------------------

    def writes(self, resource: str, subresource: str = "") -> list[LoggedRequest]:
        """Return all requests that write objects of a resource, the oldest first."""
        found = self.api.log.find(resource=resource, subresource=subresource)
        return [each for each in found if each.verb in WRITES]

    def rejected(self, resource: str, subresource: str = "") -> list[str]:
        """Return the messages of the writes that the API server rejected, the oldest first."""
        found = self.writes(resource, subresource)
        # Without 409 and 404: conflicts with other writers and with deletions are normal.
        return [_shortened(each.message) for each in found if each.code in (400, 403, 422)]

    # -- claims ------------------------------------------------------------------------

    def claims(self, count: int = 1, least: int = 1) -> list[ClaimObject]:
        """Create up to ``count`` claims, each with a different device. Claims of earlier calls can
        have the same devices.

        Raises Skipped if the driver has fewer than ``least`` devices that can be used together.
        """
        results = self.results(count, least)
        return [self.create(each) for each in results]

    def results(self, count: int = 1, least: int = 1) -> list[dict[str, Any]]:
        """Return up to ``count`` allocation results. Each result is for one device.

        Raises Skipped if the driver has fewer than ``least`` devices that can be used together.
        """
        # After a change, slices can be incomplete for a moment. A driver that had no devices on an
        # earlier stage will have none.
        has_devices = self.stage.device_counts.get(self.driver, 1)
        if has_devices:
            self.until(lambda: not self.incomplete(), self.limits.publish_seconds)
        try:
            found = allocate(self.slices(), NODE, count)
        except ClaimsError as error:
            raise Skipped(f"the scheduler cannot use the slices: {error}") from None
        if len(found) < least:
            raise Skipped(
                f"needs {counted(least, 'device')} to allocate, the driver has "
                f"{len(found) or 'none'}"
            )
        return found

    def create(self, *results: Mapping[str, Any], **options: Any) -> ClaimObject:
        """Store a new claim with these allocation results in the API server, and return it.
        ``options`` are passed to ``claim_with``."""
        return self.load(claim_with(self.new_name(), results, **options))

    def new_name(self) -> str:
        """Return a new name for a claim or pod. It is unique on the stage."""
        # Unique on the stage: several checks can use it one after another.
        self._created += 1
        return f"claim-{self.api.version}-{self._created}"

    def load(self, claim: Mapping[str, Any]) -> ClaimObject:
        """Store a claim with its status in the API server, and return the stored claim."""
        stored = self.api.load(dict(claim))
        self.step(f"create claim {stored['metadata']['name']}, UID {stored['metadata']['uid']}")
        return stored

    @contextlib.contextmanager
    def client(self, service: str | None = None) -> Iterator[DriverClient]:
        """Open a connection to the newest instance of the driver.

        ``service`` is the gRPC service to call, such as ``v1beta1.DRAPlugin``. By default, it is
        the service that the kubelet calls.
        """
        instance = self.instance()
        client = DriverClient(Path(instance.endpoint), service or f"{instance.service}.DRAPlugin")
        with contextlib.closing(client):
            yield client

    def prepare(self, *claims: ClaimObject) -> list[dra_v1.NodePrepareResourceResponse]:
        """Call NodePrepareResources for claims, and return the response's entry for each claim.

        Raises CallFailed if the call fails. Raises Failed if an entry has an error, is missing, or
        belongs to another claim.
        """
        names = ", ".join(each["metadata"]["name"] for each in claims)
        self.step(f"NodePrepareResources for {names}")
        with self.client() as client:
            entries = client.prepare(*map(reference, claims), seconds=self.limits.call_seconds)
        check_entries("NodePrepareResources", entries, claims)
        return [entries[each["metadata"]["uid"]] for each in claims]

    def unprepare(self, *claims: ClaimObject) -> None:
        """Call NodeUnprepareResources for claims. Raises the same errors as ``prepare``."""
        names = ", ".join(each["metadata"]["name"] for each in claims)
        self.step(f"NodeUnprepareResources for {names}")
        with self.client() as client:
            entries = client.unprepare(*map(reference, claims), seconds=self.limits.call_seconds)
        check_entries("NodeUnprepareResources", entries, claims)

    @contextlib.contextmanager
    def prepared(self, *claims: ClaimObject) -> Iterator[list[dra_v1.NodePrepareResourceResponse]]:
        """Prepare claims and yield the response's entries. Unprepare the claims at the end of the
        with block."""
        entries = self.prepare(*claims)
        try:
            yield entries
        except BaseException:
            # The next check must find the devices free.
            self.forget(*claims)
            raise
        self.unprepare(*claims)

    def forget(self, *claims: ClaimObject) -> None:
        """Unprepare claims, and ignore errors. For clean-up at the end of a check."""
        with contextlib.suppress(CallFailed, Failed):
            self.unprepare(*claims)

    # -- CDI ---------------------------------------------------------------------------

    @property
    def cdi(self) -> CdiDirectories:
        """The CDI directories of the stage. While the driver runs, they include ``/etc/cdi`` and
        ``/var/run/cdi`` as its process sees them."""
        own = (self.stage.other_cdi_dir, self.stage.cdi_dir)
        # The driver's view of these paths is read through its process (/proc/PID/root).
        seen = () if self.plugin.has_exited else DEFAULT_DIRECTORIES
        return CdiDirectories(own, [self.plugin.path(str(each)) for each in seen])

    def check_resolved(self, entry: dra_v1.NodePrepareResourceResponse, when: str = "") -> None:
        """Raise Failed if a container runtime cannot resolve the CDI devices in ``entry``, a
        claim's entry in a response. ``when`` is appended to the error text."""
        if problem := self.cdi.unresolved(cdi_ids(entry)):
            raise Failed(f"{problem}{when}")

    # -- pods --------------------------------------------------------------------------

    def admit(self, claim: ClaimObject | None = None) -> str:
        """Run a pod that uses ``claim``, and return the UID of the pod.

        If ``claim`` is None, the pod needs no driver. Raises Failed if the pod does not start.
        """
        if claim is None:
            name = self.new_name()
            return self._admit(_pod(name, f"pod-of-{name}"))
        name = claim["metadata"]["name"]
        uid = f"pod-of-{name}"
        # The kubelet starts a pod only if its claims are reserved for it. In a cluster, the
        # scheduler writes the reservation.
        reserved = [{"resource": "pods", "name": name, "uid": uid}]
        self.api.change(
            "resourceclaims",
            name,
            lambda old: {**old, "status": {**old["status"], "reservedFor": reserved}},
            subresource="status",
        )
        return self._admit(_pod(name, uid, claims=[name]))

    def _admit(self, pod: Mapping[str, Any]) -> str:
        self.step(f"admit pod {pod['metadata']['name']}")
        admission = self.kubelet.admit(dict(pod))
        if error := admission.containers["main"].error:
            raise Failed(f"the pod does not start: {error}")
        return admission.uid


def _shortened(text: str) -> str:
    # The reason of a rejection lists each invalid device.
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."


def reference(claim: ClaimObject) -> dra_v1.Claim:
    """Return the message by which a kubelet refers to ``claim`` in its requests to a driver."""
    metadata = claim["metadata"]
    return dra_v1.Claim(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def cdi_ids(entry: dra_v1.NodePrepareResourceResponse) -> list[str]:
    """Return the IDs of the CDI devices in ``entry``, a claim's entry in a response, without
    duplicates."""
    return list(dict.fromkeys(id_ for device in entry.devices for id_ in device.cdi_device_ids))


def shown(
    entry: dra_v1.NodePrepareResourceResponse, *, cdi: bool = True
) -> list[tuple[object, ...]]:
    """Return the devices in ``entry``, a claim's entry in a response, as a sorted list of tuples.

    Use it to compare entries: the order of the devices does not matter. ``cdi``: True to include
    the IDs of the CDI devices. A driver may choose other IDs when it prepares the claim again.
    """
    return sorted(
        (
            device.pool_name,
            device.device_name,
            device.share_id,
            tuple(sorted(device.request_names)),
            tuple(sorted(device.cdi_device_ids)) if cdi else (),
        )
        for device in entry.devices
    )


def check_entries(rpc: str, entries: Mapping[str, Any], claims: Sequence[ClaimObject]) -> None:
    """Raise Failed if a response has an error, or not exactly one entry for each claim."""
    uids = {each["metadata"]["uid"] for each in claims}
    if missing := sorted(uids - entries.keys()):
        raise Failed(f"the response to {rpc} has no entry for claim UID {', '.join(missing)}")
    if unknown := sorted(entries.keys() - uids):
        raise Failed(
            f"the response to {rpc} has an entry for unknown claim UID {', '.join(unknown)}"
        )
    for uid, entry in sorted(entries.items()):
        if entry.error:
            raise Failed(f"{rpc} failed for claim UID {uid}: {entry.error}")


def _pod(name: str, uid: str, claims: Sequence[str] = ()) -> dict[str, Any]:
    uses = [{"name": each} for each in claims]
    container = {"name": "main", "image": "image", "resources": {"claims": uses}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
            "containers": [container],
        },
    }
