"""``MockKubeletClient``: the methods of ``MockKubelet`` on a kubelet of another process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from devicemanager.control import convert, shapes
from devicemanager.control.answers import RemoteAdmission
from devicemanager.control.documents import manifest_text, objects_text
from devicemanager.control.errors import ControlError, error_of
from devicemanager.control.operations import operation
from devicemanager.control.transport import quoted, transport_to, with_query
from devicemanager.core.node import NodeStatus
from devicemanager.core.runoptions import RunOptions
from devicemanager.core.status import ResourceStatus
from devicemanager.events import Event, EventKind
from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
from devicemanager.kubelet.waiting import WaitTimeout
from devicemanager.pods.records import Phase, PodRecord

if TYPE_CHECKING:
    from devicemanager.claims.sources import Source as ClaimSource
    from devicemanager.manifests import Source

__all__ = ["MockKubeletClient", "RemoteClock", "RemoteEvents"]

_LOOK_SECONDS = 0.25
_SHOWN_EVENTS = 20


class MockKubeletClient:
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
        self._transport = transport_to(address, token)
        self._timeout = timeout
        self.events = RemoteEvents(self)
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
        row = operation(name)
        target = row.path
        for parameter, value in zip(row.parameters, path, strict=True):
            target = target.replace(f"{{{parameter}}}", quoted(value))
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        reply = self._transport.ask(
            row.method,
            with_query(target, query or {}),
            data,
            "application/yaml" if isinstance(body, bytes) else "application/json",
            self._timeout + timeout,
        )
        try:
            if reply.status >= 400:
                raise error_of(msgspec.json.decode(reply.body, type=shapes.Problem))
            if row.answer is None:
                return None
            return msgspec.json.decode(reply.body, type=row.answer)
        except msgspec.DecodeError as error:
            raise ControlError(
                f"{row.method} {target}: the answer with status {reply.status} is not what the "
                f"control API promises: {error}"
            ) from None

    def read_events(self, query: Mapping[str, object]) -> Iterator[shapes.Event]:
        """The lines of getEvents. Raises ControlError if they end in the middle of one."""
        follows = bool(query.get("follow"))
        path = with_query(operation("getEvents").path, query)
        with self._transport.stream(path, None if follows else self._timeout) as response:
            if response.status >= 400:
                raise error_of(msgspec.json.decode(response.read(), type=shapes.Problem))
            for line in response:
                yield msgspec.json.decode(line, type=shapes.Event)

    # -- where things are ------------------------------------------------------------

    def _node(self) -> shapes.Node:
        found: shapes.Node = self.ask("getNode")
        return found

    @property
    def is_serving(self) -> bool:
        return self._node().serving

    @property
    def root(self) -> Path:
        return Path(self._node().root)

    @property
    def plugin_dir(self) -> Path:
        return Path(self._node().plugin_dir)

    @property
    def plugin_socket(self) -> Path:
        return Path(self._node().plugin_socket)

    @property
    def pod_resources_socket(self) -> Path:
        return Path(self._node().pod_resources_socket)

    @property
    def plugins_registry_dir(self) -> Path:
        return Path(self._node().plugins_registry_dir)

    @property
    def checkpoint_path(self) -> Path:
        return Path(self._node().checkpoint_path)

    @property
    def claims_state_path(self) -> Path:
        return Path(self._node().claims_state_path)

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

    # -- waiting ---------------------------------------------------------------------

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        body = shapes.ResourceWait(resource=resource, count=count, timeout=timeout)
        self.ask("waitForResource", body=body, timeout=timeout)

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
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
        after: int | None = None,
        timeout: float = 10.0,
    ) -> Event:
        body = shapes.EventWait(
            kinds=[str(kind) for kind in kinds], resource=resource, after=after, timeout=timeout
        )
        return convert.event_from(self.ask("waitForEvent", body=body, timeout=timeout))


class RemoteEvents:
    """The events of a kubelet."""

    def __init__(self, client: MockKubeletClient) -> None:
        self._client = client

    @property
    def latest(self) -> int:
        """The number of the latest event; 0 before the first."""
        return self._client._node().latest_event

    def recent(self, *kinds: EventKind) -> tuple[Event, ...]:
        """The latest events, oldest first; of the given kinds only, if any are given."""
        return tuple(self._read(0, follow=False, kinds=kinds))

    def follow(self, since: int | None = None, *kinds: EventKind) -> Iterator[Event]:
        """Events later than ``since``, or than now, as they come, until the server ends."""
        return self._read(self.latest if since is None else since, follow=True, kinds=kinds)

    def _read(self, since: int, *, follow: bool, kinds: tuple[EventKind, ...]) -> Iterator[Event]:
        query = {"since": since, "follow": follow, "kind": [kind.value for kind in kinds]}
        for shape in self._client.read_events(query):
            if shape.kind != "events-dropped":
                yield convert.event_from(shape)


class RemoteClock:
    """The clock of a kubelet."""

    def __init__(self, client: MockKubeletClient) -> None:
        self._client = client

    def _read(self) -> shapes.Clock:
        found: shapes.Clock = self._client.ask("getClock")
        return found

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        return self._read().monotonic

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._read().time

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises RequestError unless the kubelet has a manual clock."""
        self._client.ask("advanceClock", body=shapes.Advance(seconds=seconds))
