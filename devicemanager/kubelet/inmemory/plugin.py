"""A simulated device plugin in memory: its device list and its responses."""

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

ENDPOINT = "in-memory"
"""Endpoint of every in-memory plugin, in place of a socket's file name."""
_OPTIONS = PluginOptions()
_NO_DEVICES: frozenset[DeviceId] = frozenset()
_RESPONSE = AllocateAnswer((b"",))


class InMemoryPlugin:
    """Simulated plugin of one resource of an in-memory kubelet; guarded by the kubelet's lock.

    It implements ``Endpoint``, which has the calls that the device manager makes to a plugin. Its
    Allocate succeeds with an empty response, or fails if ``fails`` is set.
    """

    # Slots: a process holds one plugin per resource of thousands of nodes.
    __slots__ = ("_devices", "_endpoint", "_lost", "fails", "resource")

    def __init__(self, resource: ResourceName, devices: tuple[Device, ...]) -> None:
        self.resource = resource
        # Nodes with the same simulated devices share this tuple until one device changes.
        self._devices = devices
        self._lost = _NO_DEVICES
        self._endpoint: EndpointId | None = None
        self.fails: Callable[[], RpcError] | None = None
        """Function that creates the error of every Allocate call; None if Allocate succeeds."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that the plugin advertises, or will advertise when it re-registers."""
        if not self._lost:
            return self._devices
        return tuple(device for device in self._devices if device.id not in self._lost)

    @property
    def is_connected(self) -> bool:
        """True if the plugin is registered."""
        return self._endpoint is not None

    # -- what a real plugin sends to the kubelet -----------------------------------------

    def register(self, handler: ClientHandler) -> None:
        """Register with the kubelet and send the device list."""
        self._endpoint = handler.connect(self.resource, ENDPOINT, _OPTIONS, self)
        self._list(handler)

    def leave(self, handler: ClientHandler) -> None:
        """Disconnect from the kubelet, as if the plugin had ended its ListAndWatch stream."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            handler.disconnect(endpoint, "the plugin has disconnected")

    def was_dropped(self) -> None:
        """Mark the plugin as not registered, because the kubelet's process has stopped."""
        self._endpoint = None

    def replace(self, devices: Iterable[Device], handler: ClientHandler) -> None:
        """Replace all devices and advertise the new devices."""
        self._devices, self._lost = tuple(devices), frozenset()
        self._list(handler)

    def set_health(self, id_: str, healthy: bool, handler: ClientHandler) -> None:
        """Change the health of a device. Raises RequestError for an unknown device."""
        device = self.device(id_)
        # A new tuple: other nodes may share the old one.
        changed = attrs.evolve(device, health=HEALTHY if healthy else UNHEALTHY)
        self._devices = tuple(changed if each is device else each for each in self._devices)
        self._list(handler)

    def lose(self, id_: str, handler: ClientHandler) -> None:
        """Stop advertising a device. Raises RequestError for an unknown device."""
        self._lost |= {self.device(id_).id}
        self._list(handler)

    def lose_all(self, handler: ClientHandler) -> None:
        """Stop advertising all devices."""
        self._lost = frozenset(device.id for device in self._devices)
        self._list(handler)

    def find(self, id_: str | None, handler: ClientHandler) -> None:
        """Advertise a lost device again; with ``id_`` None, all lost devices."""
        self._lost = frozenset() if id_ is None else self._lost - {DeviceId(id_)}
        self._list(handler)

    def device(self, id_: str) -> Device:
        """Return the device with this ID. Raises RequestError for an unknown device."""
        for device in self._devices:
            if device.id == id_:
                return device
        ids = ", ".join(device.id for device in self._devices) or "none"
        raise RequestError(f"unknown device {id_!r} of {self.resource}: the resource has {ids}")

    def _list(self, handler: ClientHandler) -> None:
        if self._endpoint is not None:
            handler.update(self._endpoint, Columns.of(self.devices))

    # -- Endpoint: calls of the kubelet ---------------------------------------------------

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        if self.fails is not None:
            raise self.fails()
        return _RESPONSE

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
