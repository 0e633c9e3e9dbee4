"""Parts of ``MockKubeletClient``: what is more than the answer of one request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.control import convert, operations, shapes
from devicemanager.control.api_client import ServedApi
from devicemanager.core.errors import RequestError
from devicemanager.core.rejection import Rejected
from devicemanager.core.runoptions import RunOptions
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.matching import CallQueries
from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.registry import as_fault
from devicemanager.faults.states import FaultState
from devicemanager.kubelet.pods.pod_info import PodInfo
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.objects.manifests import ManifestError, document

if TYPE_CHECKING:
    from devicemanager.claims.files import ClaimSource
    from devicemanager.objects.manifests import Source


class RemoteEvents:
    """The events of a kubelet; see ``EventStream``."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    @property
    def latest(self) -> int:
        """The number of the latest event; 0 before the first."""
        return self._api.call(operations.get_node).latest_event

    def recent(self, *kinds: EventKind) -> tuple[Event, ...]:
        """Return the stored events, oldest first; only of the given kinds, if any."""
        return tuple(self._read(0, follow=False, kinds=kinds))

    def follow(self, since: int | None = None, *kinds: EventKind) -> Iterator[Event]:
        """Yield events after number ``since``, by default new ones, until the server stops."""
        # "New" counts from this call and not from the first use of the iterator.
        return self._read(self.latest if since is None else since, follow=True, kinds=kinds)

    def _read(self, since: int, *, follow: bool, kinds: tuple[EventKind, ...]) -> Iterator[Event]:
        query = {"since": since, "follow": follow, "kind": [kind.value for kind in kinds]}
        for shape in self._api.read("getEvents", query):
            # A gap is visible in the numbers; no kubelet has an event of this kind.
            if shape.kind != convert.EVENTS_DROPPED:
                yield convert.event_from(shape)


class RemoteCalls(CallQueries):
    """The calls between a kubelet and its plugins; see ``CallLog``."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    @property
    def latest(self) -> int:
        """The number of the latest call; 0 before the first."""
        return self._api.call(operations.get_node).latest_call

    @property
    def dropped(self) -> int:
        """The number of calls that are no longer stored."""
        return self._api.call(operations.get_node).dropped_calls

    @property
    def in_progress(self) -> tuple[shapes.PendingCall, ...]:
        """Calls without a response yet, and open ListAndWatch streams."""
        return tuple(self._api.call(operations.get_pending_calls).items)

    def all(self) -> list[Call]:
        """Return every stored call, in the order of their numbers."""
        return list(self._read(0, follow=False))

    def follow(self, since: int | None = None) -> Iterator[Call]:
        """Yield calls after number ``since``, by default new ones, until the server stops."""
        return self._read(self.latest if since is None else since, follow=True)

    def _read(self, since: int, *, follow: bool) -> Iterator[Call]:
        # With the messages, because a Call decodes them when they are read.
        query = {"since": since, "follow": follow, "bytes": True}
        for shape in self._api.read("getCalls", query):
            if shape.rpc != convert.CALLS_DROPPED:
                yield convert.call_from(shape)

    def _missing(self) -> str:
        dropped = self.dropped
        return f"{dropped} earlier calls are no longer stored" if dropped else ""


class RemoteFaults:
    """The faults of a kubelet; see ``FaultRegistry``."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    @property
    def seed(self) -> int:
        """The seed for faults that have a probability and no seed."""
        return self._api.call(operations.list_faults).seed

    def set(self, fault: Any, /, **options: Any) -> FaultState:
        """Set a fault: by its kind and options, as one line, as a mapping or as a ``Fault``.
        Raises FaultError, and what an action raises."""
        # Parsed here, so that a mistake raises the same error without a request.
        spec = str(as_fault(fault, options))
        return convert.fault_from(self._api.call(operations.set_fault, spec=spec))

    def list(self) -> tuple[FaultState, ...]:
        """Return the faults that were set and not cleared."""
        found = self._api.call(operations.list_faults).items
        return tuple([convert.fault_from(each) for each in found])

    def clear(self, which: int | str | None = None) -> int:
        """Clear a fault by its ID, every fault of a kind, or all; return their number. Raises
        RequestError if no fault with the ID or of the kind is set."""
        if isinstance(which, int):
            return self._api.call(operations.clear_fault, str(which)).count
        return self._api.call(operations.clear_faults, kind=which).count


class RemoteClock:
    """The clock of a kubelet."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._api.call(operations.get_clock).monotonic

    def time(self) -> float:
        """Return seconds since the epoch."""
        return self._api.call(operations.get_clock).time

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises RequestError unless the kubelet has a manual clock."""
        self._api.call(operations.advance_clock, seconds=seconds)


# -- the result of an admission ----------------------------------------------------------


@attrs.frozen
class RemoteFragment:
    """A part of an OCI configuration, made by the kubelet's host."""

    config: Mapping[str, Any]


class RemoteContainer:
    """A container of an admitted pod; see ``ContainerOutcome``."""

    def __init__(self, name: str, shape: shapes.ContainerOutcome) -> None:
        """Internal: ``RemoteAdmission.containers`` has the containers."""
        self.name = name
        self._shape = shape

    @property
    def devices(self) -> dict[str, list[str]]:
        """Resource to device IDs, sorted."""
        return self._shape.devices

    @property
    def affinity(self) -> tuple[int, ...] | None:
        """The NUMA nodes to which it is aligned; None for no affinity."""
        nodes = self._shape.numa_nodes
        return None if nodes is None else tuple(nodes)

    @property
    def claims(self) -> dict[str, tuple[str, ...]]:
        """Structured claim to devices, as ``pool/device``."""
        return {name: tuple(devices) for name, devices in self._shape.claims.items()}

    @property
    def error(self) -> str:
        """Why the container did not start; empty if it did."""
        return self._shape.start_error or ""

    @property
    def run_options(self) -> RunOptions:
        """The merged settings of all resources. Raises WireError if a plugin's response is
        invalid."""
        if self._shape.settings is None:
            raise WireError(self._shape.settings_error or "there are no settings")
        return self._shape.settings

    def oci(self) -> RemoteFragment:
        """Return the settings for a container runtime of the kubelet's host. Raises
        RequestError if that is not possible."""
        if self._shape.oci is None:
            raise RequestError(self._shape.oci_error or "there is no OCI configuration")
        return RemoteFragment(self._shape.oci)


class RemoteAdmission:
    """The result of ``admit``; see ``Admission``."""

    def __init__(self, shape: shapes.Admission) -> None:
        """Internal: ``MockKubeletClient.admit`` returns one."""
        self.shape = shape
        """The whole answer."""

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return self.shape.pod.uid

    @property
    def pod(self) -> PodInfo:
        """The pod right after its admission."""
        return self.shape.pod

    @property
    def admitted(self) -> bool:
        """False for a rejected pod."""
        return self.shape.admitted

    @property
    def reason(self) -> str:
        """The reason of the rejection; else empty."""
        return self.shape.reason

    @property
    def message(self) -> str:
        """The message of the rejection; else empty."""
        return self.shape.message

    @cached_property
    def containers(self) -> Mapping[str, RemoteContainer]:
        """By name. A rejected pod has none, and looking one up raises KeyError with the
        reason."""
        if not self.admitted:
            # Not at the top: most pods are admitted, and the module needs the kubelet.
            from devicemanager.kubelet.pods.admission import NoContainers

            why = f"{self.reason}: {self.message}"
            return NoContainers(f"pod {self.pod.title} was rejected: {why}")
        return {name: RemoteContainer(name, each) for name, each in self.shape.containers.items()}

    def explain(self) -> str:
        """Return the explanation as text, with a drawing of NUMA nodes and devices."""
        return self.shape.explanation_text

    def raise_for_rejection(self) -> None:
        """Raise Rejected if the pod was not admitted."""
        if not self.admitted:
            raise Rejected(self.reason, self.message)

    def __bool__(self) -> bool:
        raise TypeError("use .admitted: an Admission is always true")


# -- the user's documents as text for a request ------------------------------------------


def manifest_text(source: Source) -> bytes:
    """Return a pod's manifest as text. Raises ManifestError."""
    # Text is sent unchanged: the server parses it, and its errors have the right lines.
    found = document(source)
    if isinstance(found, str):
        return found.encode()
    try:
        return json.dumps(found).encode()
    except (TypeError, ValueError) as error:
        raise ManifestError(f"the manifest cannot be written as JSON: {error}") from None


def objects_text(source: ClaimSource) -> bytes:
    """Return objects of structured claims as text. Raises InvalidObject."""
    # Not at the top: most clients use no structured claims.
    from devicemanager.claims.files import read_source
    from devicemanager.claims.v1alpha1.writing import to_yaml

    if isinstance(source, Mapping):
        return json.dumps(source).encode()
    return to_yaml(read_source(source)).encode()
