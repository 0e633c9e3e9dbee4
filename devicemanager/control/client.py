"""``MockKubeletClient``: a client with the methods of ``MockKubelet``, for a kubelet in another
process.

Most methods of the class send one request. Events, calls, faults, the clock and the result of an
admission are objects with methods of their own, in the module ``remote``.

Some methods concern structured claims: requests for devices in the API ``devmgmtproto.k8s.io``,
which is not DRA.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from devicemanager.control import convert, operations, shapes
from devicemanager.control.api_client import ServedApi, transport_to
from devicemanager.control.remote import (
    RemoteAdmission,
    RemoteCalls,
    RemoteClock,
    RemoteEvents,
    RemoteFaults,
    RemoteResourceClaims,
    manifest_text,
    objects_text,
)
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.node import NodeStatus
from devicemanager.core.podstatus.containers import ContainerStatus
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.runoptions import ContainerSettings, RunOptions
from devicemanager.core.status import ResourceStatus
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.matching import CallCriteria, Mark
from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.arguments import check_function, check_seconds, device_ids
from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
from devicemanager.kubelet.pods.pod_info import PodInfo
from devicemanager.kubelet.waits import WaitTimeout

if TYPE_CHECKING:
    from devicemanager.claims.files import ClaimSource
    from devicemanager.core.dra.report import (
        ClaimResult,
        ClaimsExplanation,
        DraStatus,
        ResourceClaimInfo,
    )
    from devicemanager.objects.manifests import Source
    from devicemanager.objects.manifests.resource_claims import ClaimSources

__all__ = ["MockKubeletClient"]

# ``MockKubelet.wait_for`` has the same interval.
_CHECK_SECONDS: Final = 0.25
_SHOWN_EVENTS: Final = 20


class MockKubeletClient:
    """Client for a kubelet that ``devicemanager run --control`` or ``ControlServer`` serves.

    Implements ``KubeletInterface``: each method has the effect and the errors of the same method of
    ``MockKubelet``, and raises ControlError if the API does not respond. Thread-safe. The client
    keeps no connection open, so ``close`` and the end of a with block do nothing.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        *,
        token: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Create a client without sending a request. ``address`` is the control socket, the
        kubelet's directory, or ``http://HOST:PORT``. A URL needs the ``token``, which is in the
        file ``control.token`` in the kubelet's directory.

        ``timeout`` is the time limit for a response, in seconds. The methods that wait add their
        own timeout to it. Raises ValueError for an invalid address.
        """
        # No request is sent, so a client can be created before the server has started.
        self._api = ServedApi(transport_to(address, token), operations.TABLE, timeout)
        self.events = RemoteEvents(self._api)
        self.calls = RemoteCalls(self._api)
        self.faults = RemoteFaults(self._api)
        self.clock = RemoteClock(self._api)
        self.resource_claims = RemoteResourceClaims(self._api)

    def ask(
        self,
        name: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout: float = 0.0,
    ) -> Any:
        """Call an operation by its ``operationId`` in the OpenAPI document, and return its result.
        None if the operation has no result. ``body`` is YAML or JSON as bytes, or an instance of
        the operation's class in ``control.shapes``. The client waits ``timeout`` seconds longer
        than usual for the response."""
        check_seconds(timeout)
        return self._api.ask(name, *path, query=query, body=body, timeout=timeout)

    def read(self, name: str, query: Mapping[str, object]) -> Iterator[Any]:
        """Call the operation with the ``operationId`` ``name``, which returns a stream. Yield each
        line as an object of the operation's result type. Raises ControlError if the connection
        breaks before the end of the stream."""
        return self._api.read(name, query)

    # -- node and paths --------------------------------------------------------------------
    # Each property sends a request, because another kubelet can have replaced the first one.

    def node(self) -> shapes.Node:
        """Return the node's name, the kubelet's version and the paths of the kubelet's files."""
        return self._api.call(operations.get_node)

    @property
    def is_serving(self) -> bool:
        """True if the kubelet is running."""
        return self.node().serving

    @property
    def root(self) -> Path:
        """The kubelet's directory."""
        return Path(self.node().root)

    @property
    def plugin_dir(self) -> Path:
        """The directory ``device-plugins``, where plugins create their sockets."""
        return Path(self.node().plugin_dir)

    @property
    def plugin_socket(self) -> Path:
        """The path of the socket where plugins register."""
        return Path(self.node().plugin_socket)

    @property
    def pod_resources_socket(self) -> Path:
        """The path of the socket of the PodResources API."""
        return Path(self.node().pod_resources_socket)

    @property
    def pods_api_socket(self) -> Path:
        """The path of the socket of the Pods API, which kubelets serve from version 1.37 on."""
        return Path(self.node().pods_api_socket)

    @property
    def plugins_registry_dir(self) -> Path:
        """The directory ``plugins_registry``, which the kubelet's plugin watcher watches."""
        return Path(self.node().plugins_registry_dir)

    @property
    def checkpoint_path(self) -> Path:
        """The path of the device manager's checkpoint file."""
        return Path(self.node().checkpoint_path)

    @property
    def claims_state_path(self) -> Path:
        """The path of the file with the devices allocated to structured claims. These claims belong
        to the API ``devmgmtproto.k8s.io``, not to DRA."""
        return Path(self.node().claims_state_path)

    # -- start and stop --------------------------------------------------------------------

    def start(self) -> Self:
        """Start the kubelet again after ``stop``, and return this client."""
        self._api.call(operations.start_kubelet)
        return self

    def stop(self) -> None:
        """Stop the kubelet. The control API continues."""
        self._api.call(operations.stop_kubelet)

    def restart(self) -> None:
        """Restart the kubelet. Containers keep running."""
        self._api.call(operations.restart_kubelet)

    def reboot(self) -> None:
        """Reboot the node: all containers stop, and every pod is admitted again."""
        self._api.call(operations.reboot_node)

    def sources_ready(self) -> None:
        """Inform the kubelet that it knows all pods of the node. It then frees the devices of pods
        that it does not know."""
        self._api.call(operations.set_sources_ready)

    def check(self) -> None:
        """Raise ControlError if an error occurred on a server thread of the kubelet since the last
        call of ``check``."""
        self._api.call(operations.check_servers)

    def close(self) -> None:
        """Do nothing: the kubelet belongs to another process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- structured claims -----------------------------------------------------------------

    def publish(self, pool: ClaimSource) -> None:
        """Publish pools of devices for structured claims (API ``devmgmtproto.k8s.io``, not DRA)."""
        self._api.call(operations.publish_pools, body=objects_text(pool))

    def define(self, device_class: ClaimSource) -> None:
        """Define device classes for structured claims (API ``devmgmtproto.k8s.io``, not DRA)."""
        self._api.call(operations.define_classes, body=objects_text(device_class))

    def claim(self, claim: ClaimSource) -> None:
        """Create structured claims (API ``devmgmtproto.k8s.io``, not DRA)."""
        self._api.call(operations.create_claims, body=objects_text(claim))

    # -- pods ------------------------------------------------------------------------------

    def admit(
        self,
        manifest: Source,
        *,
        start: bool = True,
        claims: ClaimSources | None = None,
        reserve: bool = True,
    ) -> RemoteAdmission:
        """Admit a pod and, if ``start`` is True, start its containers. Return the result.

        ``claims`` and ``reserve`` are as in ``MockKubelet.admit``."""
        # A file is read here, because the server can run in another directory or container.
        body = manifest_text(manifest, claims)
        return RemoteAdmission(
            self._api.call(operations.admit_pod, body=body, start=start, reserve=reserve)
        )

    def terminate(self, *uids: str) -> None:
        """Terminate and delete the pods with these UIDs. If a UID is unknown, no pod is deleted."""
        # Without UIDs no request is sent, because the server requires at least one UID.
        if uids:
            self._api.call(operations.delete_pods, uid=list(uids))

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Make every app container of the pod exit, and return the pod's phase. ``exit_codes`` is
        one exit code for all containers, or a mapping by container name."""
        # msgspec encodes a dict, but not every other mapping.
        codes = exit_codes if isinstance(exit_codes, int) else dict(exit_codes)
        return self._api.call(operations.finish_pod, uid, exit_codes=codes).phase

    def resync(self, uid: str) -> None:
        """Sync a pod now, without waiting for the kubelet's next periodic sync. The sync retries a
        failed prepare or unprepare of the pod's claims."""
        self._api.call(operations.resync_pod, uid)

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start a container of an admitted pod. Return the merged settings from all its devices,
        such as environment variables and mounts."""
        return self._api.call(operations.start_container, uid, container)

    def container_options(self, uid: str, container: str) -> RunOptions:
        """Return the merged settings that a container got from its devices at its last start, such
        as environment variables and mounts."""
        return self._api.call(operations.get_container_options, uid, container)

    def restart_container(self, uid: str, container: str) -> RunOptions:
        """Start a container again with the same devices. Return the merged settings from these
        devices, such as environment variables and mounts."""
        return self._api.call(operations.restart_container, uid, container)

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus:
        """Make a running container exit, and return its new status."""
        found = self._api.call(
            operations.exit_container, uid, container, exit_code=exit_code, reason=reason
        )
        return convert.container_status_from(found)

    def delete(self, uid: str, grace_period: float | None = None) -> None:
        """Delete a pod once its containers have terminated or the grace period, in seconds, has
        expired. None stands for the pod's ``terminationGracePeriodSeconds``."""
        self._api.call(operations.delete_pod_gracefully, uid, grace_period=grace_period)

    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]:
        """Return the statuses of the pod's containers by container name, init containers first."""
        found = self._api.call(operations.get_container_statuses, uid).items
        return {each.name: convert.container_status_from(each) for each in found}

    # -- direct calls ----------------------------------------------------------------------

    def allocate(
        self,
        resource: str,
        ids: Iterable[str] | None = None,
        *,
        containers: Sequence[Iterable[str]] | None = None,
        timeout: float = 10.0,
    ) -> tuple[ContainerSettings, ...]:
        """Call Allocate of a plugin. Return the plugin's settings for each container, such as
        mounts.

        ``ids`` are the device IDs for one container. For several containers, ``containers`` has the
        device IDs of each one. ``timeout`` is in seconds.
        """
        found = self._api.call(
            operations.call_allocate,
            resource=resource,
            ids=None if ids is None else _texts(ids),
            containers=None if containers is None else list(map(_texts, containers)),
            timeout=timeout,
        )
        return tuple(found.containers)

    def preferred(
        self,
        resource: str,
        available: Iterable[str],
        must_include: Iterable[str] = (),
        *,
        size: int,
        timeout: float = 10.0,
    ) -> tuple[tuple[str, ...], ...]:
        """Call GetPreferredAllocation of a plugin for one container. Return the device IDs of each
        container response that the plugin sends. ``timeout`` is in seconds."""
        found = self._api.call(
            operations.call_get_preferred_allocation,
            resource=resource,
            available=_texts(available),
            must_include=_texts(must_include),
            size=size,
            timeout=timeout,
        )
        return tuple(map(tuple, found.containers))

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float = 10.0) -> None:
        """Call PreStartContainer of a plugin for the devices ``ids``. ``timeout`` is in seconds."""
        self._api.call(
            operations.call_pre_start_container,
            resource=resource,
            ids=_texts(ids),
            timeout=timeout,
        )

    def options(self, resource: str, *, timeout: float = 10.0) -> PluginOptions:
        """Call GetDevicePluginOptions of a plugin, and return the options. ``timeout`` is in
        seconds."""
        return self._api.call(
            operations.call_get_device_plugin_options, resource=resource, timeout=timeout
        )

    def prepare_claims(
        self, driver: str, claims: Iterable[str], *, endpoint: str | None = None
    ) -> dict[str, ClaimResult]:
        """Call NodePrepareResources of a driver, without a pod. Return its results by claim UID.

        ``claims`` are names as ``NAMESPACE/NAME``. ``endpoint`` is the socket path of an instance
        of the driver; by default, the instance that the kubelet would call.
        """
        operation = operations.call_prepare_resources
        return self._api.call(
            operation, driver=driver, claims=list(claims), endpoint=endpoint
        ).claims

    def unprepare_claims(
        self, driver: str, claims: Iterable[str], *, endpoint: str | None = None
    ) -> dict[str, ClaimResult]:
        """Call NodeUnprepareResources of a driver, without a pod. Return its results by claim UID.

        ``claims`` are names as ``NAMESPACE/NAME``. ``endpoint`` is the socket path of an instance
        of the driver; by default, the instance that the kubelet would call.
        """
        operation = operations.call_unprepare_resources
        return self._api.call(
            operation, driver=driver, claims=list(claims), endpoint=endpoint
        ).claims

    # -- reading ---------------------------------------------------------------------------

    def _resources(self) -> list[shapes.Resource]:
        return self._api.call(operations.list_resources).items

    def capacity(self) -> dict[str, int]:
        """Return the number of devices of each resource, healthy or not."""
        return {each.name: each.capacity for each in self._resources()}

    def allocatable(self) -> dict[str, int]:
        """Return the number of healthy devices of each resource, allocated or not."""
        return {each.name: each.allocatable for each in self._resources()}

    def node_status(self) -> NodeStatus:
        """Return the device counts in the node's status: ``capacity`` and ``allocatable``, each by
        resource."""
        found = self._api.call(operations.get_node_status)
        return NodeStatus(found.capacity, found.allocatable)

    def plugins(self) -> tuple[PluginStatus, ...]:
        """Return one status per resource that the kubelet knows, sorted by resource: its plugin and
        its device counts."""
        return tuple(self._api.call(operations.list_plugins).items)

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """Return every device with its health and the container to which it is allocated."""
        return tuple(self._api.call(operations.list_devices).items)

    def dra_status(self) -> DraStatus:
        """Return the registered DRA drivers, the ResourceClaims that pods of the node use, and the
        ResourceSlices in the kubelet's memory."""
        return self._api.call(operations.get_dra)

    def claim_info(self, namespace: str, name: str) -> ResourceClaimInfo:
        """Describe a ResourceClaim: its pods, its devices and, if it is not prepared, the
        reason."""
        return self._api.call(operations.get_resource_claim, namespace, name)

    def explain_claims(self, uid: str) -> ClaimsExplanation:
        """Explain why a pod is Pending or cannot terminate: what each of its ResourceClaims waits
        for."""
        return self._api.call(operations.explain_pod_claims, uid)

    def pod(self, uid: str) -> PodInfo:
        """Return a snapshot of a pod: its containers, their states and their devices."""
        return self._api.call(operations.get_pod, uid)

    def pods(self) -> dict[str, PodInfo]:
        """Return a snapshot of each pod that is not deleted, by UID."""
        return {each.uid: each for each in self._api.call(operations.list_pods).items}

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """Return the devices allocated to a pod: container name → resource → device IDs."""
        return self._api.call(operations.get_pod_devices, uid).containers

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """Return ``allocatedResourcesStatus`` of the pod's containers, by container name."""
        found = self._api.call(operations.get_pod_resources_status, uid).containers
        return {name: tuple(resources) for name, resources in found.items()}

    def mark(self) -> Mark:
        """Return a mark that stands for this moment. A wait with this mark as ``since`` ignores
        earlier events and calls."""
        # One response has both numbers, so they stand for nearly the same moment.
        node = self.node()
        return Mark(node.latest_event, node.latest_call)

    # -- waits -----------------------------------------------------------------------------

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait up to ``timeout`` seconds until exactly ``count`` devices of the resource are
        allocatable, or at least one if ``count`` is None. Raises WaitTimeout."""
        self._api.call(
            operations.wait_for_resource, resource=resource, count=count, timeout=timeout
        )

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Wait until ``condition()`` is true. Call it after every event, and every 0.25 s.

        Raises WaitTimeout after ``timeout`` seconds. ``what`` names the condition in its text.
        """
        check_function(condition, "condition")
        check_seconds(timeout)
        end = time.monotonic() + timeout
        # The condition runs in this process, so the server cannot wait for it, only for an event.
        # The event number is read before the check, so that no event is missed.
        while True:
            seen = self.events.latest
            if condition():
                return
            remaining = end - time.monotonic()
            if remaining <= 0:
                events = self.events.recent()[-_SHOWN_EVENTS:]
                lines = [f"  {event}" for event in events] or ["  nothing"]
                head = f"waited {timeout:g} s for {what}; what did happen:"
                raise WaitTimeout("\n".join([head, *lines]))
            # Waits are short, because the condition can become true without an event.
            try:
                self.wait_for_event(after=seen, timeout=min(remaining, _CHECK_SECONDS))
            except WaitTimeout:
                continue

    def wait_for_event(
        self,
        *kinds: EventKind | str,
        resource: str | None = None,
        pod: str | None = None,
        text: str | re.Pattern[str] | None = None,
        where: Callable[[Event], bool] | None = None,
        since: Mark | int | None = None,
        after: int | None = None,
        timeout: float = 10.0,
    ) -> Event:
        """Wait up to ``timeout`` seconds for the next event that meets all criteria, and return it.
        Without ``kinds``, an event of any kind matches. Raises WaitTimeout.

        By default, only events after the start of the wait match. ``since`` is a mark or the number
        of an event: all later events match, even those before the start of the wait. ``after`` is
        another name for ``since`` with a number. If both are set, only ``since`` applies.
        """
        if since is not None:
            after = since.event if isinstance(since, Mark) else since
        check_seconds(timeout)
        end = time.monotonic() + timeout
        while True:
            body = shapes.EventWait(
                kinds=[str(kind) for kind in kinds],
                resource=resource,
                pod=pod,
                text=text if isinstance(text, str) else None,
                after=after,
                timeout=timeout,
            )
            event = convert.event_from(self.ask("waitForEvent", body=body, timeout=timeout))
            # Patterns and functions cannot be sent to the server, so they are checked here.
            matches = not isinstance(text, re.Pattern) or text.search(event.message)
            if matches and (where is None or where(event)):
                return event
            # The event does not match: wait for a later one in the remaining time.
            after, timeout = event.number, max(0.0, end - time.monotonic())

    def wait_for_call(
        self,
        resource: str | None = None,
        *,
        where: Callable[[Call], bool] | None = None,
        since: Mark | None = None,
        timeout: float = 10.0,
        **criteria: Unpack[CallCriteria],
    ) -> Call:
        """Wait up to ``timeout`` seconds until a call that meets all criteria has ended, and return
        the call. Raises WaitTimeout.

        By default, only calls that end after the start of the wait match. With the mark ``since``,
        all calls that end after this mark match, even if they ended before the start of the wait.
        """
        from devicemanager.events.calls.matching import CallFilter

        # CallFilter rejects invalid criteria with the same error as in the kubelet's process.
        ids = CallFilter(resource, **criteria).device_ids
        check_seconds(timeout)
        # Sorted, because the order of a set differs between runs.
        wanted: dict[str, Any] = {**criteria, "device_ids": None if ids is None else sorted(ids)}
        end = time.monotonic() + timeout
        while True:
            # The bytes are needed, because a Call decodes its request and response from them.
            body = shapes.CallWait(
                resource=resource, **wanted, since=since, bytes=True, timeout=timeout
            )
            call = convert.call_from(self.ask("waitForCall", body=body, timeout=timeout))
            # A function cannot be sent to the server, so it is checked here.
            if where is None or where(call):
                return call
            # Continue after this call. An earlier mark would return the same call again.
            since, timeout = Mark(call.after_event, call.number), max(0.0, end - time.monotonic())


def _texts(ids: Iterable[str]) -> list[str]:
    return list(map(str, device_ids(ids)))
