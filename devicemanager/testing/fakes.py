"""Plugins without a socket, for tests of the device manager and everything above it.

``FakePlugin`` implements the manager's interface to a plugin. It responds as its fields say and
records its calls. A hook runs between a call and its response (``before_answer``), so tests can
reproduce races without threads.
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
"""From available IDs, IDs to include and a size: the IDs that the plugin prefers."""


def first(available: Ids, must_include: Ids, size: int) -> Ids:
    """Prefer the IDs that must be included, then the first available ones, sorted."""
    rest = sorted(set(available) - set(must_include))
    return (*sorted(must_include), *rest)[: max(size, len(must_include))]


def last(available: Ids, must_include: Ids, size: int) -> Ids:
    """Prefer the IDs that must be included, then the last available ones, sorted."""
    rest = sorted(set(available) - set(must_include), reverse=True)
    return (*sorted(must_include), *rest)[: max(size, len(must_include))]


def one_short(available: Ids, must_include: Ids, size: int) -> Ids:
    """Prefer as ``first``, with one ID too few unless all of them must be included."""
    chosen = first(available, must_include, size)
    return chosen[:-1] if len(chosen) > len(must_include) else chosen


def garbage(available: Ids, must_include: Ids, size: int) -> Ids:
    """Prefer IDs that do not exist."""
    return (DeviceId("no-such-device"), DeviceId("another"))


@attrs.frozen
class FakeCall:
    """One RPC as the plugin received it, with IDs in the order received.

    ``device_ids`` belongs to Allocate and PreStartContainer, the three others to
    GetPreferredAllocation.
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


@attrs.define(eq=False)
class FakePlugin:
    """A plugin of ``resource`` without a socket.

    Change the fields at any time to change the responses. Errors to raise are ``EndpointError``,
    usually ``RpcError("Unknown", "…")``; None: respond successfully.
    """

    resource: ResourceName = attrs.field(converter=ResourceName)
    preference: Preference | None = None
    """Response of GetPreferredAllocation; None: the plugin does not offer it. Whether it does is
    read when it registers."""
    pre_start_required: bool = False
    """True if the plugin requires PreStartContainer; read when it registers."""
    responses: tuple[bytes, ...] = attrs.field(factory=_one_response)
    """Serialized container responses of each Allocate; by default one that sets A=1."""
    allocate_error: EndpointError | None = None
    preference_error: EndpointError | None = None
    pre_start_error: EndpointError | None = None
    before_answer: Callable[[FakeCall], None] = _nothing
    """Called on the caller's thread between an RPC and its response; can raise an error."""
    calls: list[FakeCall] = attrs.field(factory=list, init=False)
    """Every RPC so far, oldest first."""
    closed: bool = attrs.field(default=False, init=False)
    """True if the manager has closed the connection."""
    _registered: tuple[ClientHandler, EndpointId] | None = attrs.field(default=None, init=False)

    # -- actions of a plugin ---------------------------------------------------------

    def register(self, handler: ClientHandler, name: str = "plugin.sock") -> EndpointId:
        """Connect to ``manager.plugins`` under a socket name, without sending a list."""
        # As a real plugin: it offers a call only if it can respond to it.
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
            raise ValueError(f"the fake plugin of {self.resource} has not registered yet")
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
        # A call although it is not offered gets no preference.
        return self.preference(available, must_include, size) if self.preference else ()

    def pre_start_container(self, device_ids: Ids) -> None:
        self._called(FakeCall(PRE_START_CONTAINER, device_ids), self.pre_start_error)

    def close(self) -> None:
        self.closed = True

    def join(self) -> None:
        """Do nothing: there is no thread to wait for."""

    def _called(self, call: FakeCall, error: EndpointError | None) -> None:
        # Recorded first: `before_answer` can raise, and tests then still see the call.
        self.calls.append(call)
        self.before_answer(call)
        if error is not None:
            raise error
