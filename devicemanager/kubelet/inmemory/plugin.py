"""A device plugin in memory: what it lists, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from devicemanager.core.allocation.selection import AllocateAnswer
from devicemanager.core.api.deviceplugin import HEALTHY, UNHEALTHY
from devicemanager.core.devices import Device
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import RequestError, RpcError
from devicemanager.core.ids import DeviceId, EndpointId, ResourceName
from devicemanager.core.inventory import Columns
from devicemanager.kubelet.manager.plugin_handler import ClientHandler

__all__ = ["InMemoryPlugin"]

NAME = "light"
_OPTIONS = PluginOptions()
_NOTHING_LOST: frozenset[DeviceId] = frozenset()
_ANSWER = AllocateAnswer((b"",))


class InMemoryPlugin:
    """The one plugin of a resource on a light node. The kubelet's lock guards it.

    It meets the manager's ``PluginClient``: every container gets its devices and nothing else,
    unless ``fails`` says how Allocate goes wrong.
    """

    __slots__ = ("_devices", "_endpoint", "_lost", "fails", "resource")

    def __init__(self, resource: ResourceName, devices: tuple[Device, ...]) -> None:
        self.resource = resource
        # Shared by the nodes that were made alike, until one of their devices changes.
        self._devices = devices
        self._lost = _NOTHING_LOST
        self._endpoint: EndpointId | None = None
        self.fails: Callable[[], RpcError] | None = None
        """Makes the error that Allocate answers with; None: it succeeds."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """What it lists, or will when it comes back."""
        if not self._lost:
            return self._devices
        return tuple(each for each in self._devices if each.id not in self._lost)

    @property
    def is_connected(self) -> bool:
        """Whether it is registered."""
        return self._endpoint is not None

    # -- towards the kubelet ---------------------------------------------------------

    def register(self, handler: ClientHandler) -> None:
        """Come, and list."""
        self._endpoint = handler.connect(self.resource, NAME, _OPTIONS, self)
        self._list(handler)

    def leave(self, handler: ClientHandler) -> None:
        """End the list stream."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            handler.disconnect(endpoint, "the plugin has left")

    def was_dropped(self) -> None:
        """The kubelet's process has ended."""
        self._endpoint = None

    def replace(self, devices: Iterable[Device], handler: ClientHandler) -> None:
        """List these from now on."""
        self._devices, self._lost = tuple(devices), frozenset()
        self._list(handler)

    def set_health(self, id_: str, healthy: bool, handler: ClientHandler) -> None:
        """Raises RequestError if it has no such device."""
        device = self.device(id_)
        changed = attrs.evolve(device, health=HEALTHY if healthy else UNHEALTHY)
        self._devices = tuple(changed if each is device else each for each in self._devices)
        self._list(handler)

    def lose(self, id_: str, handler: ClientHandler) -> None:
        """List this one no more. Raises RequestError if it has no such device."""
        self._lost |= {self.device(id_).id}
        self._list(handler)

    def lose_all(self, handler: ClientHandler) -> None:
        """List nothing."""
        self._lost = frozenset(each.id for each in self._devices)
        self._list(handler)

    def find(self, id_: str | None, handler: ClientHandler) -> None:
        """List this one again, or with None all that were lost."""
        self._lost = frozenset() if id_ is None else self._lost - {DeviceId(id_)}
        self._list(handler)

    def device(self, id_: str) -> Device:
        """Raises RequestError if it has no such device."""
        for device in self._devices:
            if device.id == id_:
                return device
        there = ", ".join(each.id for each in self._devices) or "none"
        raise RequestError(f"{self.resource} has no device {id_!r}: it has {there}")

    def _list(self, handler: ClientHandler) -> None:
        if self._endpoint is not None:
            handler.update(self._endpoint, Columns.of(self.devices))

    # -- PluginClient ----------------------------------------------------------------

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        if self.fails is not None:
            raise self.fails()
        return _ANSWER

    def preferred_allocation(
        self, available: tuple[DeviceId, ...], must_include: tuple[DeviceId, ...], size: int
    ) -> tuple[DeviceId, ...]:
        return ()

    def pre_start_container(self, device_ids: tuple[DeviceId, ...]) -> None:
        pass

    def close(self) -> None:
        pass

    def join(self) -> None:
        pass
