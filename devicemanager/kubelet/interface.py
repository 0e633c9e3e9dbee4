"""What can be asked of a mock kubelet, in this process or through its control API.

``MockKubelet`` and ``MockKubeletClient`` both meet ``KubeletInterface``, so a test may be
written once for either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.node import NodeStatus
from devicemanager.core.podstatus.containers import ContainerStatus
from devicemanager.core.runoptions import ContainerSettings, RunOptions
from devicemanager.core.status import ResourceStatus
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.queries import CallQueries, Mark
from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.states import FaultState
from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
from devicemanager.kubelet.pods.records import Phase, PodRecord

if TYPE_CHECKING:
    from devicemanager.claims.files import ClaimSource
    from devicemanager.objects.manifests import Source

__all__ = [
    "AdmissionView",
    "ClockView",
    "ContainerView",
    "EventsView",
    "FaultsView",
    "FragmentView",
    "KubeletInterface",
]


class FragmentView(Protocol):
    """A part of an OCI configuration."""

    @property
    def config(self) -> Mapping[str, Any]:
        """In plain JSON values."""


class ContainerView(Protocol):
    """One container of an admitted pod; see ``ContainerOutcome``."""

    @property
    def name(self) -> str: ...
    @property
    def devices(self) -> dict[str, list[str]]: ...
    @property
    def affinity(self) -> tuple[int, ...] | None: ...
    @property
    def claims(self) -> Mapping[str, tuple[str, ...]]: ...
    @property
    def error(self) -> str: ...
    @property
    def run_options(self) -> RunOptions: ...
    def oci(self) -> FragmentView:
        """Of the kubelet's host."""


class AdmissionView(Protocol):
    """The answer to ``admit``; see ``Admission``."""

    @property
    def uid(self) -> str: ...
    @property
    def admitted(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def containers(self) -> Mapping[str, ContainerView]: ...
    def explain(self) -> str:
        """Why these devices, or why none, as text."""

    def raise_for_rejection(self) -> None:
        """Raises Rejected if the pod was not admitted."""


class EventsView(Protocol):
    """What has happened; see ``EventStream``."""

    @property
    def latest(self) -> int: ...
    def recent(self, *kinds: EventKind) -> tuple[Event, ...]: ...


class FaultsView(Protocol):
    """The faults of the kubelet's side; see ``FaultRegistry``."""

    def set(self, fault: Any, /, **options: Any) -> FaultState: ...
    def list(self) -> tuple[FaultState, ...]: ...
    def clear(self, which: int | str | None = None) -> int: ...


class ClockView(Protocol):
    """The kubelet's time."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...


class KubeletInterface(Protocol):
    """A mock kubelet; what each member does stands at ``MockKubelet``."""

    @property
    def root(self) -> Path: ...
    @property
    def plugin_dir(self) -> Path: ...
    @property
    def plugin_socket(self) -> Path: ...
    @property
    def pod_resources_socket(self) -> Path: ...
    @property
    def plugins_registry_dir(self) -> Path: ...
    @property
    def checkpoint_path(self) -> Path: ...
    @property
    def claims_state_path(self) -> Path: ...
    @property
    def is_serving(self) -> bool: ...
    @property
    def events(self) -> EventsView: ...
    @property
    def calls(self) -> CallQueries: ...
    @property
    def faults(self) -> FaultsView: ...
    @property
    def clock(self) -> ClockView: ...

    def mark(self) -> Mark: ...

    def start(self) -> object: ...
    def stop(self) -> None: ...
    def restart(self) -> None: ...
    def reboot(self) -> None: ...
    def sources_ready(self) -> None: ...
    def check(self) -> None: ...
    def close(self) -> None: ...

    def publish(self, pool: ClaimSource) -> None: ...
    def define(self, device_class: ClaimSource) -> None: ...
    def claim(self, claim: ClaimSource) -> None: ...

    def admit(self, manifest: Source, *, start: bool = True) -> AdmissionView: ...
    def terminate(self, *uids: str) -> None: ...
    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase: ...
    def start_container(self, uid: str, container: str) -> RunOptions: ...
    def restart_container(self, uid: str, container: str) -> RunOptions: ...

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus: ...
    def delete(self, uid: str, grace_period: float | None = None) -> None: ...
    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]: ...

    def allocate(
        self,
        resource: str,
        ids: Iterable[str] | None = None,
        *,
        containers: Sequence[Iterable[str]] | None = None,
        timeout: float = 10.0,
    ) -> tuple[ContainerSettings, ...]: ...
    def preferred(
        self,
        resource: str,
        available: Iterable[str],
        must_include: Iterable[str] = (),
        *,
        size: int,
        timeout: float = 10.0,
    ) -> tuple[tuple[str, ...], ...]: ...
    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float = 10.0) -> None: ...
    def options(self, resource: str, *, timeout: float = 10.0) -> PluginOptions: ...

    def capacity(self) -> dict[str, int]: ...
    def allocatable(self) -> dict[str, int]: ...
    def node_status(self) -> NodeStatus: ...
    def plugins(self) -> tuple[PluginStatus, ...]: ...
    def inventory(self) -> tuple[DeviceStatus, ...]: ...
    def pod(self, uid: str) -> PodRecord: ...
    def pods(self) -> dict[str, PodRecord]: ...
    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]: ...
    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]: ...

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None: ...
    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None: ...
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
    ) -> Event: ...
    def wait_for_call(
        self,
        resource: str | None = None,
        *,
        rpc: str | None = None,
        plugin: str | None = None,
        device_ids: Collection[str] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        code: str | None = None,
        where: Callable[[Call], bool] | None = None,
        since: Mark | None = None,
        timeout: float = 10.0,
    ) -> Call: ...
