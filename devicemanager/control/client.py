"""``MockKubeletClient``: the methods of ``MockKubelet`` on a kubelet of another process."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from devicemanager.control import convert, shapes
from devicemanager.control.answers import RemoteAdmission
from devicemanager.control.api_client import ServedApi
from devicemanager.control.callwaits import RemoteCallWaits
from devicemanager.control.direct import RemoteDirectCalls
from devicemanager.control.operations import operation
from devicemanager.control.podlife import RemotePodLife
from devicemanager.control.records import RemoteCalls, RemoteClock, RemoteEvents, RemoteFaults
from devicemanager.control.transport import transport_to
from devicemanager.control.yaml_documents import manifest_text, objects_text
from devicemanager.core.node import NodeStatus
from devicemanager.core.runoptions import RunOptions
from devicemanager.core.status import ResourceStatus
from devicemanager.events.calls.matching import Mark
from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.arguments import check_function, check_seconds
from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
from devicemanager.kubelet.pods.records import Phase, PodRecord
from devicemanager.kubelet.waits import WaitTimeout

if TYPE_CHECKING:
    from devicemanager.claims.sources import Source as ClaimSource
    from devicemanager.objects.manifests import Source

__all__ = ["MockKubeletClient"]

_LOOK_SECONDS = 0.25
_SHOWN_EVENTS = 20


class MockKubeletClient(RemoteDirectCalls, RemotePodLife, RemoteCallWaits):
    """A kubelet that ``devicemanager run --control`` or ``ControlServer`` serves.

    Meets ``KubeletInterface``: each method does what that of ``MockKubelet`` does and raises
    the same errors; besides them ControlError. May be used from any thread. Holds no
    connection, so there is nothing to close; ``close`` and the end of a with block leave the
    kubelet as it is.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        *,
        token: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        """``address``: the control socket, the kubelet's directory, or ``http://HOST:PORT``
        with the ``token`` of its ``control.token``. ``timeout``: seconds for an answer,
        besides what a wait may take. Raises ValueError for an address that is none."""
        self._api = ServedApi(transport_to(address, token), operation, timeout)
        self.events = RemoteEvents(self)
        self.calls = RemoteCalls(self)
        self.faults = RemoteFaults(self)
        self.clock = RemoteClock(self)

    def ask(
        self,
        name: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout: float = 0.0,
    ) -> Any:
        """The answer of an operation, by its ``operationId`` in the OpenAPI document: an
        instance of its type, None where it has none. ``body`` is bytes or a shape."""
        check_seconds(timeout)
        return self._api.ask(name, *path, query=query, body=body, timeout=timeout)

    def read(self, name: str, query: Mapping[str, object]) -> Iterator[Any]:
        """The lines of a stream, by its ``operationId``. Raises ControlError if they end in the
        midst of one."""
        return self._api.read(name, query)

    def node(self) -> shapes.Node:
        """The node, and where its kubelet's files are."""
        found: shapes.Node = self.ask("getNode")
        return found

    # -- where things are ------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        return self.node().serving

    @property
    def root(self) -> Path:
        return Path(self.node().root)

    @property
    def plugin_dir(self) -> Path:
        return Path(self.node().plugin_dir)

    @property
    def plugin_socket(self) -> Path:
        return Path(self.node().plugin_socket)

    @property
    def pod_resources_socket(self) -> Path:
        return Path(self.node().pod_resources_socket)

    @property
    def plugins_registry_dir(self) -> Path:
        return Path(self.node().plugins_registry_dir)

    @property
    def checkpoint_path(self) -> Path:
        return Path(self.node().checkpoint_path)

    @property
    def claims_state_path(self) -> Path:
        return Path(self.node().claims_state_path)

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        self.ask("startKubelet")
        return self

    def stop(self) -> None:
        self.ask("stopKubelet")

    def restart(self) -> None:
        self.ask("restartKubelet")

    def reboot(self) -> None:
        self.ask("rebootNode")

    def sources_ready(self) -> None:
        self.ask("setSourcesReady")

    def check(self) -> None:
        """Raises ControlError with the text of the first error on a server thread."""
        self.ask("checkServers")

    def close(self) -> None:
        """Nothing: the kubelet is somebody else's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- structured claims -----------------------------------------------------------

    def publish(self, pool: ClaimSource) -> None:
        self.ask("publishPools", body=objects_text(pool))

    def define(self, device_class: ClaimSource) -> None:
        self.ask("defineClasses", body=objects_text(device_class))

    def claim(self, claim: ClaimSource) -> None:
        self.ask("createClaims", body=objects_text(claim))

    # -- pods ------------------------------------------------------------------------

    def admit(self, manifest: Source, *, start: bool = True) -> RemoteAdmission:
        text = manifest_text(manifest)
        return RemoteAdmission(self.ask("admitPod", query={"start": start}, body=text))

    def terminate(self, *uids: str) -> None:
        if uids:
            self.ask("deletePods", query={"uid": list(uids)})

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        codes = exit_codes if isinstance(exit_codes, int) else dict(exit_codes)
        finished: shapes.Finished = self.ask("finishPod", uid, body=shapes.Finish(exit_codes=codes))
        return finished.phase

    def start_container(self, uid: str, container: str) -> RunOptions:
        options: RunOptions = self.ask("startContainer", uid, container)
        return options

    def restart_container(self, uid: str, container: str) -> RunOptions:
        options: RunOptions = self.ask("restartContainer", uid, container)
        return options

    # -- reading ---------------------------------------------------------------------

    def _resources(self) -> list[shapes.Resource]:
        found: shapes.ResourceList = self.ask("listResources")
        return found.items

    def capacity(self) -> dict[str, int]:
        return {each.name: each.capacity for each in self._resources()}

    def allocatable(self) -> dict[str, int]:
        return {each.name: each.allocatable for each in self._resources()}

    def node_status(self) -> NodeStatus:
        found: shapes.NodeStatus = self.ask("getNodeStatus")
        return NodeStatus(found.capacity, found.allocatable)

    def plugins(self) -> tuple[PluginStatus, ...]:
        found: shapes.PluginList = self.ask("listPlugins")
        return tuple(found.items)

    def inventory(self) -> tuple[DeviceStatus, ...]:
        found: shapes.DeviceList = self.ask("listDevices")
        return tuple(found.items)

    def pod(self, uid: str) -> PodRecord:
        return convert.record_from(self.ask("getPod", uid))

    def pods(self) -> dict[str, PodRecord]:
        found: shapes.PodList = self.ask("listPods")
        return {each.uid: convert.record_from(each) for each in found.items}

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        found: shapes.PodDevices = self.ask("getPodDevices", uid)
        return found.containers

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        found: shapes.PodResourcesStatus = self.ask("getPodResourcesStatus", uid)
        return {name: tuple(resources) for name, resources in found.containers.items()}

    def mark(self) -> Mark:
        node = self.node()
        return Mark(node.latest_event, node.latest_call)

    # -- waiting ---------------------------------------------------------------------

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        body = shapes.ResourceWait(resource=resource, count=count, timeout=timeout)
        self.ask("waitForResource", body=body, timeout=timeout)

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        check_function(condition, "condition")
        check_seconds(timeout)
        end = time.monotonic() + timeout
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
            try:
                self.wait_for_event(after=seen, timeout=min(rest, _LOOK_SECONDS))
            except WaitTimeout:
                continue  # time alone may have fulfilled it

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
            # Patterns and functions are of this process.
            is_said = not isinstance(text, re.Pattern) or text.search(event.message)
            if is_said and (where is None or where(event)):
                return event
            after, timeout = event.number, max(0.0, end - time.monotonic())
