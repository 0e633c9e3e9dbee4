"""Objects that ``MockKubeletClient`` returns, for a kubelet in another process.

The objects for events, calls, faults, the clock and ResourceClaims send a request each time they
are used. The object for the result of an admission stores the result and sends no requests.

A *structured claim* requests devices in the API ``devmgmtproto.k8s.io``. It is not a ResourceClaim.
"""

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
    from devicemanager.objects.manifests.resource_claims import ClaimSources, JsonClaim


class RemoteEvents:
    """The events of a kubelet in another process. ``EventStream`` documents the methods."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    @property
    def latest(self) -> int:
        """The number of the latest event; 0 before the first event."""
        return self._api.call(operations.get_node).latest_event

    def recent(self, *kinds: EventKind) -> tuple[Event, ...]:
        """Return the stored events, oldest first. With ``kinds``, return only events of these
        kinds."""
        return tuple(self._read(0, follow=False, kinds=kinds))

    def follow(self, since: int | None = None, *kinds: EventKind) -> Iterator[Event]:
        """Yield events after number ``since`` until the server stops. By default, yield only new
        events."""
        # "New" is counted from this call, not from the first use of the iterator.
        return self._read(self.latest if since is None else since, follow=True, kinds=kinds)

    def _read(self, since: int, *, follow: bool, kinds: tuple[EventKind, ...]) -> Iterator[Event]:
        query = {"since": since, "follow": follow, "kind": [kind.value for kind in kinds]}
        for shape in self._api.read("getEvents", query):
            # Skipped, because no kubelet has events of this kind. The numbers show the gap.
            if shape.kind != convert.EVENTS_DROPPED:
                yield convert.event_from(shape)


class RemoteCalls(CallQueries):
    """The calls between a kubelet in another process and its plugins. ``CallLog`` documents the
    methods."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    @property
    def latest(self) -> int:
        """The number of the latest call; 0 before the first call."""
        return self._api.call(operations.get_node).latest_call

    @property
    def dropped(self) -> int:
        """The number of calls that are no longer stored."""
        return self._api.call(operations.get_node).dropped_calls

    @property
    def in_progress(self) -> tuple[shapes.PendingCall, ...]:
        """Calls without a response, and open ListAndWatch streams."""
        return tuple(self._api.call(operations.get_pending_calls).items)

    def all(self) -> list[Call]:
        """Return all stored calls, in the order of their numbers."""
        return list(self._read(0, follow=False))

    def follow(self, since: int | None = None) -> Iterator[Call]:
        """Yield calls after number ``since`` until the server stops. By default, yield only new
        calls."""
        return self._read(self.latest if since is None else since, follow=True)

    def _read(self, since: int, *, follow: bool) -> Iterator[Call]:
        # Messages are requested as bytes, because a Call decodes them at first use.
        query = {"since": since, "follow": follow, "bytes": True}
        for shape in self._api.read("getCalls", query):
            if shape.rpc != convert.CALLS_DROPPED:
                yield convert.call_from(shape)

    def _missing(self) -> str:
        dropped = self.dropped
        return f"earlier calls that are no longer stored: {dropped}" if dropped else ""


class RemoteFaults:
    """The faults of a kubelet in another process. ``FaultRegistry`` documents the methods."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    @property
    def seed(self) -> int:
        """The seed for faults that have a probability and no seed of their own."""
        return self._api.call(operations.list_faults).seed

    def set(self, fault: Any, /, **options: Any) -> FaultState:
        """Set a fault, and return its state. ``fault`` is the name of a kind of fault, and
        ``options`` are the options of that kind. Without ``options``, ``fault`` can also be a line
        of text, a mapping or a ``Fault``.

        Raises FaultError for an invalid fault. If the fault is an action that is executed
        immediately, the errors of the action are raised, too.
        """
        # Parsed here, so that an invalid fault raises the same error without a request.
        spec = str(as_fault(fault, options))
        return convert.fault_from(self._api.call(operations.set_fault, spec=spec))

    def list(self) -> tuple[FaultState, ...]:
        """Return the faults that were set and not cleared."""
        found = self._api.call(operations.list_faults).items
        return tuple([convert.fault_from(each) for each in found])

    def clear(self, which: int | str | None = None) -> int:
        """Clear faults, and return their number. ``which`` is the ID of one fault, or the kind
        of the faults to clear. None clears all faults.

        Raises RequestError if no fault has the ID or kind.
        """
        if isinstance(which, int):
            return self._api.call(operations.clear_fault, str(which)).count
        return self._api.call(operations.clear_faults, kind=which).count


class RemoteClock:
    """The clock of a kubelet in another process."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    def monotonic(self) -> float:
        """Return the kubelet's monotonic time in seconds. It never goes back."""
        return self._api.call(operations.get_clock).monotonic

    def time(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._api.call(operations.get_clock).time

    def advance(self, seconds: float) -> None:
        """Advance a manual clock. Raises RequestError if the kubelet uses the system clock."""
        self._api.call(operations.advance_clock, seconds=seconds)


class RemoteResourceClaims:
    """The DRA objects that a kubelet in another process stores. ``ResourceClaims`` documents the
    methods."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    def get(self, namespace: str, name: str) -> JsonClaim | None:
        """Return a ResourceClaim; None if it does not exist."""
        # The operation for one ResourceClaim returns a summary, not the object.
        for each in self.list():
            metadata = each["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return each
        return None

    def list(self) -> tuple[JsonClaim, ...]:
        """Return all ResourceClaims, sorted by namespace and name."""
        return self.objects("ResourceClaim")

    def objects(self, kind: str) -> tuple[JsonClaim, ...]:
        """Return all objects of a kind, sorted by namespace and name."""
        return tuple(self._api.call(operations.list_dra_objects, kind).items)

    def load(self, source: ClaimSources, *, namespace: str = "default") -> None:
        """Create or replace ResourceClaims, ResourceSlices, DeviceClasses and
        ResourceClaimTemplates. Raises ManifestError for an invalid object; then nothing has
        changed."""
        from devicemanager.objects.manifests.resource_claims import read_dra_objects

        # A text is sent unchanged, so that the server's errors have the right line numbers.
        if isinstance(source, str) and "\n" in source:
            body = source.encode()
        else:
            # JSON is also YAML, so the objects can be documents of one YAML text.
            body = b"\n---\n".join(_json(each) for each in read_dra_objects(source))
        self._api.call(operations.apply_dra_objects, body=body, namespace=namespace)

    def remove(self, kind: str, name: str, *, namespace: str = "default") -> None:
        """Delete an object. Raises RequestError if it does not exist."""
        self._api.call(operations.delete_dra_object, kind, name, namespace=namespace)


def _json(found: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(found).encode()
    except (TypeError, ValueError) as error:
        raise ManifestError(f"the object cannot be written as JSON: {error}") from None


# -- the result of an admission ----------------------------------------------------------


@attrs.frozen
class RemoteFragment:
    """A part of an OCI configuration, for a container runtime on the kubelet's host."""

    config: Mapping[str, Any]


class RemoteContainer:
    """A container of an admitted pod. ``ContainerOutcome`` documents the methods and properties."""

    def __init__(self, name: str, shape: shapes.ContainerOutcome) -> None:
        """Internal: use ``RemoteAdmission.containers``."""
        self.name = name
        self._shape = shape

    @property
    def devices(self) -> dict[str, list[str]]:
        """The sorted IDs of the allocated devices, by resource."""
        return self._shape.devices

    @property
    def affinity(self) -> tuple[int, ...] | None:
        """The NUMA nodes to which the container is aligned; None if it has no affinity."""
        nodes = self._shape.numa_nodes
        return None if nodes is None else tuple(nodes)

    @property
    def claims(self) -> dict[str, tuple[str, ...]]:
        """The devices of the container's claims, by claim name. A device has the form
        ``pool/device``.

        If the pod has structured claims, the result contains only these. Otherwise it contains
        the pod's ResourceClaims.
        """
        return {name: tuple(devices) for name, devices in self._shape.claims.items()}

    @property
    def error(self) -> str:
        """Why the container did not start; empty if it started."""
        return self._shape.start_error or ""

    @property
    def run_options(self) -> RunOptions:
        """The merged settings that all plugins returned for the container. Raises WireError if a
        plugin's response is invalid."""
        if self._shape.settings is None:
            raise WireError(self._shape.settings_error or f"container {self.name} has no settings")
        return self._shape.settings

    def oci(self) -> RemoteFragment:
        """Return the container's settings as part of an OCI configuration, for a container runtime
        on the kubelet's host. Raises RequestError if the settings cannot be converted."""
        if self._shape.oci is None:
            raise RequestError(
                self._shape.oci_error or f"container {self.name} has no OCI configuration"
            )
        return RemoteFragment(self._shape.oci)


class RemoteAdmission:
    """The result of admitting a pod. ``Admission`` documents the methods and properties."""

    def __init__(self, shape: shapes.Admission) -> None:
        """Internal: use ``MockKubeletClient.admit``."""
        self.shape = shape
        """The response to the request that admitted the pod."""

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return self.shape.pod.uid

    @property
    def pod(self) -> PodInfo:
        """The pod as it was immediately after its admission."""
        return self.shape.pod

    @property
    def admitted(self) -> bool:
        """True if the pod was admitted, False if it was rejected."""
        return self.shape.admitted

    @property
    def undecided(self) -> bool:
        """True if the search for devices for the pod's structured claims reached its limits. It is
        then unknown whether the claims fit."""
        return self.shape.undecided

    @property
    def reason(self) -> str:
        """The reason of the rejection; empty if the pod was admitted."""
        return self.shape.reason

    @property
    def message(self) -> str:
        """The message of the rejection; empty if the pod was admitted."""
        return self.shape.message

    @cached_property
    def containers(self) -> Mapping[str, RemoteContainer]:
        """The containers by name. A rejected pod has none; looking one up raises KeyError with the
        reason of the rejection."""
        if not self.admitted:
            # Imported here, because most pods are admitted, and the module needs the kubelet.
            from devicemanager.kubelet.pods.admission import NoContainers

            why = f"{self.reason}: {self.message}"
            return NoContainers(f"pod {self.pod.title} was rejected: {why}")
        return {name: RemoteContainer(name, each) for name, each in self.shape.containers.items()}

    def explain(self) -> str:
        """Return the explanation of the admission as text, with a drawing of NUMA nodes and
        devices."""
        return self.shape.explanation_text

    def raise_for_rejection(self) -> None:
        """Raise Rejected, with reason and message, if the pod was rejected."""
        if not self.admitted:
            raise Rejected(self.reason, self.message)

    def __bool__(self) -> bool:
        # By default, the result of a rejected pod would also be true.
        raise TypeError("the result of an admission has no truth value: use .admitted")


# -- the user's documents as text for a request ------------------------------------------


def manifest_text(source: Source, claims: ClaimSources | None = None) -> bytes:
    """Return a pod's manifest and its ResourceClaims as text for the body of a request.

    Raises ManifestError if they cannot be written as JSON.
    """
    if claims is not None:
        # Imported here, because most clients use no claims.
        from devicemanager.objects.manifests.resource_claims import read_resource_claims

        parts = [source, *read_resource_claims(claims)]
        return b"\n---\n".join(map(manifest_text, parts))
    # Text is sent unchanged, so that the server's errors have the right line numbers.
    found = document(source)
    if isinstance(found, str):
        return found.encode()
    try:
        return json.dumps(found).encode()
    except (TypeError, ValueError) as error:
        raise ManifestError(f"the manifest cannot be written as JSON: {error}") from None


def objects_text(source: ClaimSource) -> bytes:
    """Return objects of the API ``devmgmtproto.k8s.io`` as text for the body of a request. The
    objects are claims, pools or device classes.

    Raises InvalidObject if ``source`` is a text or file with an invalid object.
    """
    # Imported here, because most clients use no structured claims.
    from devicemanager.claims.files import read_source
    from devicemanager.claims.v1alpha1.writing import to_yaml

    if isinstance(source, Mapping):
        return json.dumps(source).encode()
    return to_yaml(read_source(source)).encode()
