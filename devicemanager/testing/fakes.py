"""Fake plugins without a socket, for tests of the device manager and of its callers.

``FakePlugin`` implements the manager's interface to a plugin. Its fields determine its responses,
and it records its calls. The hook ``before_answer`` runs between a call and its response, so tests
can reproduce races without threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from devicemanager.core.allocation.selection import AllocateAnswer
from devicemanager.core.devices import Device
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import EndpointError
from devicemanager.core.ids import DeviceId, EndpointId, ResourceName
from devicemanager.core.inventory import Columns
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.kubelet.manager.plugin_handler import ClientHandler
from devicemanager.kubelet.wire import settings as wire

__all__ = [
    "ALLOCATE",
    "GET_PREFERRED_ALLOCATION",
    "PRE_START_CONTAINER",
    "FakeCall",
    "FakePlugin",
    "Ids",
    "Preference",
    "first",
    "garbage",
    "last",
    "one_short",
]

ALLOCATE = "Allocate"
GET_PREFERRED_ALLOCATION = "GetPreferredAllocation"
PRE_START_CONTAINER = "PreStartContainer"

Ids = tuple[DeviceId, ...]

Preference = Callable[[Ids, Ids, int], Ids]
"""Function that returns the preferred IDs.

Its arguments are the available IDs, the IDs to include, and the number of requested IDs.
"""


def first(available: Ids, must_include: Ids, size: int) -> Ids:
    """Return ``size`` IDs: all of ``must_include``, then the available IDs that sort first.

    If ``must_include`` has more than ``size`` IDs, return all of these. If too few IDs are
    available, return fewer.
    """
    rest = sorted(set(available) - set(must_include))
    return (*sorted(must_include), *rest)[: max(size, len(must_include))]


def last(available: Ids, must_include: Ids, size: int) -> Ids:
    """Return ``size`` IDs: all of ``must_include``, then the available IDs that sort last.

    If ``must_include`` has more than ``size`` IDs, return all of these. If too few IDs are
    available, return fewer.
    """
    rest = sorted(set(available) - set(must_include), reverse=True)
    return (*sorted(must_include), *rest)[: max(size, len(must_include))]


def one_short(available: Ids, must_include: Ids, size: int) -> Ids:
    """Return the result of ``first`` without its last ID. All IDs of ``must_include`` stay."""
    chosen = first(available, must_include, size)
    return chosen[:-1] if len(chosen) > len(must_include) else chosen


def garbage(available: Ids, must_include: Ids, size: int) -> Ids:
    """Return two device IDs that do not exist."""
    return (DeviceId("no-such-device"), DeviceId("another"))


@attrs.frozen
class FakeCall:
    """RPC that a fake plugin received, with IDs in the received order.

    ``device_ids`` is set for Allocate and PreStartContainer. ``available``, ``must_include`` and
    ``size`` are set for GetPreferredAllocation.
    """

    method: str
    device_ids: Ids = ()
    available: Ids = ()
    must_include: Ids = ()
    size: int = 0


def _nothing(_: FakeCall) -> None:
    pass


def _one_response() -> tuple[bytes, ...]:
    return (wire.settings_to_bytes(ContainerSettings(envs={"A": "1"})),)


# Compared by identity: two plugins with equal fields are still different connections.
@attrs.define(eq=False)
class FakePlugin:
    """Fake plugin of ``resource`` without a socket.

    Change the fields at any time to change the responses. Each field ``..._error`` is the error
    that one RPC raises, usually ``RpcError("Unknown", "…")``. With None, the RPC succeeds.
    """

    resource: ResourceName = attrs.field(converter=ResourceName)
    preference: Preference | None = None
    """Function that chooses the IDs in the response of GetPreferredAllocation.

    None: the plugin does not have this RPC, and reports this at registration.
    """
    pre_start_required: bool = False
    """True if the plugin reports at registration that it requires PreStartContainer."""
    responses: tuple[bytes, ...] = attrs.field(factory=_one_response)
    """Serialized ContainerAllocateResponse messages that each Allocate call returns. By default,
    one message with the environment variable A=1."""
    allocate_error: EndpointError | None = None
    preference_error: EndpointError | None = None
    pre_start_error: EndpointError | None = None
    before_answer: Callable[[FakeCall], None] = _nothing
    """Hook that runs on the caller's thread between an RPC and its response; it can raise."""
    calls: list[FakeCall] = attrs.field(factory=list, init=False)
    """All RPCs so far, oldest first."""
    closed: bool = attrs.field(default=False, init=False)
    """True if the manager has closed the connection."""
    _registered: tuple[ClientHandler, EndpointId] | None = attrs.field(default=None, init=False)

    # -- actions of a plugin ---------------------------------------------------------

    def register(self, handler: ClientHandler, name: str = "plugin.sock") -> EndpointId:
        """Register with ``handler``, usually ``manager.plugins``. Return the ID of the new
        endpoint.

        ``name`` is the socket name of the plugin. Afterwards, ``send_list`` sends a device list.
        """
        # Like a real plugin, report an optional call as available only if it is implemented.
        options = PluginOptions(self.pre_start_required, self.preference is not None)
        endpoint = handler.connect(self.resource, name, options, self)
        self._registered = handler, endpoint
        return endpoint

    def send_list(self, devices: Iterable[Device]) -> None:
        """Send a device list on the connection of the latest ``register``."""
        handler, endpoint = self._connection()
        handler.update(endpoint, Columns.of(devices))

    def leave(self, cause: str = "the plugin ended") -> None:
        """End the ListAndWatch stream of the latest ``register``."""
        handler, endpoint = self._connection()
        handler.disconnect(endpoint, cause)

    def _connection(self) -> tuple[ClientHandler, EndpointId]:
        if self._registered is None:
            raise ValueError(
                f"the fake plugin of {self.resource} has not registered: call register first"
            )
        return self._registered

    # -- calls to the plugin (PluginClient) ------------------------------------------

    def allocate(self, device_ids: Ids) -> AllocateAnswer:
        self._called(FakeCall(ALLOCATE, device_ids), self.allocate_error)
        return AllocateAnswer(self.responses)

    def preferred_allocation(self, available: Ids, must_include: Ids, size: int) -> Ids:
        call = FakeCall(
            GET_PREFERRED_ALLOCATION, available=available, must_include=must_include, size=size
        )
        self._called(call, self.preference_error)
        # A call that was not reported as available returns no preference.
        return self.preference(available, must_include, size) if self.preference else ()

    def pre_start_container(self, device_ids: Ids) -> None:
        self._called(FakeCall(PRE_START_CONTAINER, device_ids), self.pre_start_error)

    def close(self) -> None:
        self.closed = True

    def join(self) -> None:
        """Do nothing, because a fake plugin has no thread to wait for."""

    def _called(self, call: FakeCall, error: EndpointError | None) -> None:
        # Record the call first, so that tests see it even if `before_answer` raises.
        self.calls.append(call)
        self.before_answer(call)
        if error is not None:
            raise error
