"""``MockKubeletClient``: ``MockKubelet`` for a kubelet in another process.

Every public member is here; each sends the request of its operation. ``remote`` has what is
more than one request: events, calls, faults, the clock and the result of an admission.
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
    from devicemanager.objects.manifests import Source

__all__ = ["MockKubeletClient"]

_CHECK_SECONDS: Final = 0.25
_SHOWN_EVENTS: Final = 20


class MockKubeletClient:
    """A kubelet that ``devicemanager run --control`` or ``ControlServer`` serves.

    Implements ``KubeletInterface``: each method does what that of ``MockKubelet`` does and
    raises the same errors, and ControlError if the API does not answer. Thread-safe. It holds
    no connection: ``close`` and the end of a with block do nothing.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        *,
        token: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        """``address`` is the control socket, the kubelet's directory, or ``http://HOST:PORT``
        with the ``token`` in its ``control.token``. ``timeout`` is in seconds per answer, in
        addition to the time of a wait. Raises ValueError for an invalid address."""
        # Without a request: a client can be created before the server has started.
        self._api = ServedApi(transport_to(address, token), operations.TABLE, timeout)
        self.events = RemoteEvents(self._api)
        self.calls = RemoteCalls(self._api)
        self.faults = RemoteFaults(self._api)
        self.clock = RemoteClock(self._api)

    def ask(
        self,
        name: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout: float = 0.0,
    ) -> Any:
        """Return the answer of an operation, by its ``operationId`` in the OpenAPI document:
        an instance of its type, or None. ``body`` is bytes or a shape."""
        check_seconds(timeout)
        return self._api.ask(name, *path, query=query, body=body, timeout=timeout)

    def read(self, name: str, query: Mapping[str, object]) -> Iterator[Any]:
        """Yield the lines of a stream, by its ``operationId``. Raises ControlError if the last
        line is incomplete."""
        return self._api.read(name, query)

    # -- node and paths --------------------------------------------------------------------
    # Each property is a request: another kubelet can serve the same socket by now.

    def node(self) -> shapes.Node:
        """Return the node and the paths of its kubelet's files."""
        return self._api.call(operations.get_node)

    @property
    def is_serving(self) -> bool:
        """True unless the kubelet is stopped."""
        return self.node().serving

    @property
    def root(self) -> Path:
        """The kubelet's directory."""
        return Path(self.node().root)

    @property
    def plugin_dir(self) -> Path:
        """The directory of plugin sockets."""
        return Path(self.node().plugin_dir)

    @property
    def plugin_socket(self) -> Path:
        """The socket where plugins register."""
        return Path(self.node().plugin_socket)

    @property
    def pod_resources_socket(self) -> Path:
        """The socket of the PodResources API."""
        return Path(self.node().pod_resources_socket)

    @property
    def pods_api_socket(self) -> Path:
        """The socket of the Pods API, which kubelets serve from 1.37 on."""
        return Path(self.node().pods_api_socket)

    @property
    def plugins_registry_dir(self) -> Path:
        """The directory that the plugin watcher watches."""
        return Path(self.node().plugins_registry_dir)

    @property
    def checkpoint_path(self) -> Path:
        """The device manager's checkpoint."""
        return Path(self.node().checkpoint_path)

    @property
    def claims_state_path(self) -> Path:
        """The file with allocated structured claims."""
        return Path(self.node().claims_state_path)

    # -- start and stop --------------------------------------------------------------------

    def start(self) -> Self:
        """Start the kubelet again."""
        self._api.call(operations.start_kubelet)
        return self

    def stop(self) -> None:
        """Stop the kubelet; the control API continues."""
        self._api.call(operations.stop_kubelet)

    def restart(self) -> None:
        """Restart the kubelet; containers keep running."""
        self._api.call(operations.restart_kubelet)

    def reboot(self) -> None:
        """Reboot the node: all containers stop, and every pod is admitted again."""
        self._api.call(operations.reboot_node)

    def sources_ready(self) -> None:
        """Declare that all pods of the node are known."""
        self._api.call(operations.set_sources_ready)

    def check(self) -> None:
        """Raise ControlError with the text of the first error on a server thread, if any."""
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
        """Publish pools."""
        self._api.call(operations.publish_pools, body=objects_text(pool))

    def define(self, device_class: ClaimSource) -> None:
        """Define device classes."""
        self._api.call(operations.define_classes, body=objects_text(device_class))

    def claim(self, claim: ClaimSource) -> None:
        """Create claims."""
        self._api.call(operations.create_claims, body=objects_text(claim))

    # -- pods ------------------------------------------------------------------------------

    def admit(self, manifest: Source, *, start: bool = True) -> RemoteAdmission:
        """Admit a pod and start its containers."""
        body = manifest_text(manifest)
        return RemoteAdmission(self._api.call(operations.admit_pod, body=body, start=start))

    def terminate(self, *uids: str) -> None:
        """Terminate and delete pods, all of them or none."""
        # Without UIDs there is nothing to do; the server requires at least one.
        if uids:
            self._api.call(operations.delete_pods, uid=list(uids))

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Let every app container of the pod terminate, and return the pod's phase."""
        # msgspec encodes a dict, but not every mapping of a user.
        codes = exit_codes if isinstance(exit_codes, int) else dict(exit_codes)
        return self._api.call(operations.finish_pod, uid, exit_codes=codes).phase

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start a container of an admitted pod, and return its settings."""
        return self._api.call(operations.start_container, uid, container)

    def restart_container(self, uid: str, container: str) -> RunOptions:
        """Start a container again with the same devices."""
        return self._api.call(operations.restart_container, uid, container)

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus:
        """Let a running container terminate, and return its status after that."""
        found = self._api.call(
            operations.exit_container, uid, container, exit_code=exit_code, reason=reason
        )
        return convert.container_status_from(found)

    def delete(self, uid: str, grace_period: float | None = None) -> None:
        """Delete a pod once its containers have terminated or the grace period has expired."""
        self._api.call(operations.delete_pod_gracefully, uid, grace_period=grace_period)

    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]:
        """Return the statuses of the pod's containers by name, init containers first."""
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
        """Call Allocate of a plugin, for one container or for several."""
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
        """Call GetPreferredAllocation of a plugin."""
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
        """Call PreStartContainer of a plugin."""
        self._api.call(
            operations.call_pre_start_container,
            resource=resource,
            ids=_texts(ids),
            timeout=timeout,
        )

    def options(self, resource: str, *, timeout: float = 10.0) -> PluginOptions:
        """Call GetDevicePluginOptions of a plugin."""
        return self._api.call(
            operations.call_get_device_plugin_options, resource=resource, timeout=timeout
        )

    # -- reading ---------------------------------------------------------------------------

    def _resources(self) -> list[shapes.Resource]:
        return self._api.call(operations.list_resources).items

    def capacity(self) -> dict[str, int]:
        """Return the number of devices per resource, healthy or not."""
        return {each.name: each.capacity for each in self._resources()}

    def allocatable(self) -> dict[str, int]:
        """Return the number of healthy devices per resource, allocated or not."""
        return {each.name: each.allocatable for each in self._resources()}

    def node_status(self) -> NodeStatus:
        """Return the devices in the node's status."""
        found = self._api.call(operations.get_node_status)
        return NodeStatus(found.capacity, found.allocatable)

    def plugins(self) -> tuple[PluginStatus, ...]:
        """Return the plugin of each known resource, sorted by resource."""
        return tuple(self._api.call(operations.list_plugins).items)

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """Return every device with its health and the container it is allocated to."""
        return tuple(self._api.call(operations.list_devices).items)

    def pod(self, uid: str) -> PodInfo:
        """Return the description of a pod."""
        return self._api.call(operations.get_pod, uid)

    def pods(self) -> dict[str, PodInfo]:
        """Return the descriptions of the pods that are known and not deleted, by UID."""
        return {each.uid: each for each in self._api.call(operations.list_pods).items}

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """Return the devices allocated to a pod: container to resource to IDs."""
        return self._api.call(operations.get_pod_devices, uid).containers

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """Return ``allocatedResourcesStatus`` by container."""
        found = self._api.call(operations.get_pod_resources_status, uid).containers
        return {name: tuple(resources) for name, resources in found.items()}

    def mark(self) -> Mark:
        """Return this moment among the events and calls."""
        node = self.node()
        return Mark(node.latest_event, node.latest_call)

    # -- waits -----------------------------------------------------------------------------

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait until ``count`` devices of the resource are allocatable (None: any)."""
        self._api.call(
            operations.wait_for_resource, resource=resource, count=count, timeout=timeout
        )

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Wait until ``condition()`` is true; it is checked again after every event."""
        check_function(condition, "condition")
        check_seconds(timeout)
        end = time.monotonic() + timeout
        # The condition runs here, so the server cannot wait for it. It waits for the next event
        # instead, with the number taken before the check, so that no event is missed.
        while True:
            seen = self.events.latest
            if condition():
                return
            rest = end - time.monotonic()
            if rest <= 0:
                events = self.events.recent()[-_SHOWN_EVENTS:]
                lines = [f"  {event}" for event in events] or ["  nothing"]
                head = f"waited {timeout:g} s for {what}; what did happen:"
                raise WaitTimeout("\n".join([head, *lines]))
            # For a short time only: time alone can fulfil the condition.
            try:
                self.wait_for_event(after=seen, timeout=min(rest, _CHECK_SECONDS))
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
        """Wait for the next event of these kinds that matches, and return it."""
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
            # Patterns and functions cannot be sent, so they are checked here.
            matches = not isinstance(text, re.Pattern) or text.search(event.message)
            if matches and (where is None or where(event)):
                return event
            # It does not match: wait for a later event, in the rest of the time.
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
        """Wait for the next call that matches to end, and return it."""
        from devicemanager.events.calls.matching import CallFilter

        # Rejects invalid criteria here, with the same error as in the kubelet's process.
        ids = CallFilter(resource, **criteria).device_ids
        check_seconds(timeout)
        # Sorted, because the order of a set differs between runs.
        wanted: dict[str, Any] = {**criteria, "device_ids": None if ids is None else sorted(ids)}
        end = time.monotonic() + timeout
        while True:
            body = shapes.CallWait(
                resource=resource, **wanted, since=since, bytes=True, timeout=timeout
            )
            call = convert.call_from(self.ask("waitForCall", body=body, timeout=timeout))
            # A function cannot be sent, so it is checked here.
            if where is None or where(call):
                return call
            since, timeout = Mark(call.after_event, call.number), max(0.0, end - time.monotonic())


def _texts(ids: Iterable[str]) -> list[str]:
    return list(map(str, device_ids(ids)))
