"""The base classes for authors: Plugin for one resource, Lister for several."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from devicemanager.plugin.names import check_namespace, check_resource_name
from devicemanager.plugin.values import ContainerSettings, Device

if TYPE_CHECKING:
    from devicemanager.plugin.lists import DeviceList

__all__ = [
    "DeviceLists",
    "Lister",
    "NameLists",
    "Plugin",
    "StaticLister",
    "offers",
    "wrong_type",
]

DeviceLists = Iterable[Device | str] | Iterator[Iterable[Device | str]]
"""One device list (a list, tuple or set), or an iterator that yields whole lists."""

NameLists = Iterable[str] | Iterator[Iterable[str]]
"""One list of last names, or an iterator that yields whole lists."""


class Plugin(ABC):
    """Base class for the plugin of one resource. Override ``devices`` and ``allocate``.

    The rest is optional. ``preferred_allocation`` and ``pre_start_container`` are offered to the
    kubelet if you override them. They and ``allocate`` can run in several threads at once.
    """

    @abstractmethod
    def devices(self) -> DeviceLists:
        """Return the devices: a list, or a generator that yields the whole list at each change.

        A device is a :class:`Device`, or an ID for a healthy one. Called once, after ``start``, on
        a separate thread that can block forever. If it raises, the error is logged and the method
        is called again later; until then the last list stays valid.
        """

    @abstractmethod
    def allocate(self, device_ids: Sequence[str]) -> ContainerSettings | None:
        """Return the settings of a container that these devices are allocated to, or None.

        The IDs are in the newest list, healthy, sorted and distinct. If it raises, the pod is
        rejected with the error's type and text. There is no call that frees devices: the same IDs
        can be allocated again at any time.
        """

    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Iterable[str]:
        """Return the ``size`` devices of ``available`` that fit together best.

        They must contain ``must_include``. The framework completes and corrects the result before
        it is sent to the kubelet.
        """
        raise NotImplementedError

    def pre_start_container(self, device_ids: Sequence[str]) -> None:
        """Prepare the devices of a container before each start of it, within 30 s."""
        raise NotImplementedError

    def start(self) -> None:  # noqa: B027 - a hook that most plugins leave empty
        """Prepare the resource before it is served. Called up to 3 times while it raises."""

    def stop(self) -> None:  # noqa: B027 - see start
        """Clean up after the resource is no longer served."""

    # Not in `__init__`: authors override it, and often do not call this one.
    @cached_property
    def stopping(self) -> threading.Event:
        """Event that is set when the resource stops. Wait on it instead of sleeping."""
        return threading.Event()

    def update(self, devices: Iterable[Device | str]) -> None:
        """Replace the device list until ``devices`` yields the next one. Thread-safe."""
        self._device_list.publish(devices)

    @cached_property
    def _device_list(self) -> DeviceList:
        """The newest list, as sent to the kubelet."""
        # Imported here: it imports protobuf, which a program needs only to serve.
        from devicemanager.plugin.lists import DeviceList

        return DeviceList()


def offers(plugin: Plugin, hook: Callable[..., object]) -> bool:
    """True if the plugin overrides ``hook``, a method of :class:`Plugin`."""
    # Compare the class, not the instance: the options are sent once, at registration, and must not
    # depend on an attribute that is set later.
    return getattr(type(plugin), hook.__name__) is not hook


def wrong_type(expected: str, given: object) -> str:
    """Return the error text for an argument that is not a plugin or lister; often it is a class."""
    if isinstance(given, type):
        return f"expected a {expected}, not a class: use {given.__name__}()"
    return f"expected a {expected}, not {given!r}"


class Lister(ABC):
    """Base class for a list of resources in one namespace such as ``vendor.com``."""

    namespace: str

    @abstractmethod
    def discover(self) -> NameLists:
        """Return the last names, ``["red", "blue"]``: a list, or a generator of whole lists.

        Each list replaces the one before: a plugin is created for each new name, and plugins of
        missing names are stopped. Called once, on a separate thread that can block forever.
        """

    @abstractmethod
    def new_plugin(self, last_name: str) -> Plugin:
        """Return a new plugin for ``<namespace>/<last name>``."""

    @cached_property
    def stopping(self) -> threading.Event:
        """Event that is set when the manager stops."""
        return threading.Event()


class StaticLister(Lister):
    """A fixed list of resources: plugins by last name.

    Raises ConfigurationError for a resource name that kubelets reject.
    """

    def __init__(self, namespace: str, plugins: dict[str, Plugin]) -> None:
        check_namespace(namespace)
        # A frequent mistake is to pass the plugin itself.
        if not isinstance(plugins, Mapping):
            raise TypeError(f"expected plugins by last name, as in {{'gpu': …}}, not {plugins!r}")
        for last_name, plugin in plugins.items():
            check_resource_name(f"{namespace}/{last_name}")
            if not isinstance(plugin, Plugin):
                raise TypeError(wrong_type("plugin", plugin))
        self.namespace = namespace
        self._plugins = plugins

    def discover(self) -> list[str]:
        return list(self._plugins)

    def new_plugin(self, last_name: str) -> Plugin:
        return self._plugins[last_name]
