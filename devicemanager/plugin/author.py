"""The base classes for authors: Plugin, and Lister for several resources."""

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
"""One list of last names, or an iterator that yields whole lists of them."""


class Plugin(ABC):
    """One resource. Override ``devices`` and ``allocate``; the rest is optional.

    ``allocate``, ``preferred_allocation`` and ``pre_start_container`` may run in several
    threads at once. Overriding one of the latter two is what offers it to the kubelet.
    """

    @abstractmethod
    def devices(self) -> DeviceLists:
        """Return the devices: a list, or a generator that yields the whole list at each change.

        Called once, after ``start``, on a thread of its own that may block for ever. A
        device is a :class:`Device`, or an id for a healthy one. If it raises, it is logged
        and called again after a while; until then the last list stays.
        """

    @abstractmethod
    def allocate(self, device_ids: Sequence[str]) -> ContainerSettings | None:
        """Return what a container that gets these devices needs; None for nothing.

        The ids are in the newest list, healthy, sorted and distinct. What it raises fails
        the pod's admission, with its type and text. There is no call that gives devices back, and
        the same ids may come again at any time.
        """

    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Iterable[str]:
        """Return which ``size`` of the ``available`` devices go best together.

        ``must_include`` have to be among them. The answer is advice: the framework completes
        and corrects it before it goes to the kubelet.
        """
        raise NotImplementedError

    def pre_start_container(self, device_ids: Sequence[str]) -> None:
        """Prepare the devices of a container before each of its starts, within 30 s."""
        raise NotImplementedError

    def start(self) -> None:  # noqa: B027 - a hook that most plugins leave empty
        """Prepare the resource before it is served. Called up to 3 times if it raises."""

    def stop(self) -> None:  # noqa: B027 - see start
        """Clean up after the resource was unregistered."""

    @cached_property
    def stopping(self) -> threading.Event:
        """Set when the resource goes away. A generator waits on it instead of sleeping."""
        return threading.Event()

    def update(self, devices: Iterable[Device | str]) -> None:
        """Replace the device list, from any thread.

        The later of this and of what ``devices`` yields counts.
        """
        self.device_list.publish(devices)

    @cached_property
    def device_list(self) -> DeviceList:
        """The newest list, as it is sent to the kubelet."""
        # protobuf comes with it: a plugin is defined faster than it is served.
        from devicemanager.plugin.lists import DeviceList

        return DeviceList()


def offers(plugin: Plugin, hook: Callable[..., object]) -> bool:
    """Whether the plugin overrides ``hook``, a method of :class:`Plugin`."""
    return getattr(type(plugin), hook.__name__) is not hook


def wrong_type(wanted: str, given: object) -> str:
    """Return the error text for an argument that is no plugin or lister, often the class."""
    if isinstance(given, type):
        return f"pass a {wanted}, not the class: {given.__name__}()"
    return f"pass a {wanted}, not {given!r}"


class Lister(ABC):
    """Lists resources under one namespace such as ``vendor.com``."""

    namespace: str

    @abstractmethod
    def discover(self) -> NameLists:
        """Return the last names, ``["red", "blue"]``: a list, or a generator of whole lists.

        Each list replaces the one before: new names get a plugin, vanished ones are
        stopped. Called once, on a thread of its own that may block for ever.
        """

    @abstractmethod
    def new_plugin(self, last_name: str) -> Plugin:
        """Return a new plugin for ``<namespace>/<last name>``."""

    @cached_property
    def stopping(self) -> threading.Event:
        """Set when the manager stops."""
        return threading.Event()


class StaticLister(Lister):
    """Resources that are all known beforehand: last names to plugins.

    Raises ConfigurationError for a resource name that no kubelet takes.
    """

    def __init__(self, namespace: str, plugins: dict[str, Plugin]) -> None:
        check_namespace(namespace)
        if not isinstance(plugins, Mapping):
            raise TypeError(f"pass plugins by last name, such as {{'gpu': …}}: not {plugins!r}")
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
