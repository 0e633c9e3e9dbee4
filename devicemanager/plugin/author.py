"""What a plugin's author writes: a Plugin, and a Lister if there are several resources."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        """The devices: a list, or a generator yielding the whole list at every change.

        Called once, after ``start``, on a thread of its own that may block for ever. A
        device is a :class:`Device`, or an id for a healthy one. If it raises, it is logged
        and called again after a while; until then the last list stays.
        """

    @abstractmethod
    def allocate(self, device_ids: Sequence[str]) -> ContainerSettings | None:
        """What one container that gets these devices needs. None: nothing.

        The ids are in the newest list, healthy, sorted and distinct. What it raises fails
        the pod's admission, with its type and text. There is no call that gives devices back, and
        the same ids may come again at any time.
        """

    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Iterable[str]:
        """Which ``size`` of the ``available`` devices go best together.

        ``must_include`` have to be among them. Advice only: what is missing from the answer
        or out of place in it is put right before it goes to the kubelet.
        """
        raise NotImplementedError

    def pre_start_container(self, device_ids: Sequence[str]) -> None:
        """Prepare the devices of a container before each of its starts, within 30 s."""
        raise NotImplementedError

    def start(self) -> None:  # noqa: B027 - a hook that most plugins leave empty
        """Called before the resource is served. Raising means trying again, 3 times."""

    def stop(self) -> None:  # noqa: B027 - see start
        """Called after the resource has been unregistered."""

    @cached_property
    def stopping(self) -> threading.Event:
        """Set when the resource goes away: a generator waits on this rather than sleeping."""
        return threading.Event()

    def update(self, devices: Iterable[Device | str]) -> None:
        """Make this the device list, from any thread: the other way to announce a change.

        Of this and what ``devices`` gives, whichever comes later counts.
        """
        self.device_list.publish(devices)

    @cached_property
    def device_list(self) -> DeviceList:
        """The newest list, as the kubelet is told."""
        # protobuf comes with it: a plugin is defined faster than it is served.
        from devicemanager.plugin.lists import DeviceList

        return DeviceList()


def offers(plugin: Plugin, hook: Callable[..., object]) -> bool:
    """Whether the plugin overrides ``hook``, a method of :class:`Plugin`."""
    return getattr(type(plugin), hook.__name__) is not hook


def wrong_type(wanted: str, given: object) -> str:
    """What to say of something that is no plugin, or no lister: most often it is the class."""
    if isinstance(given, type):
        return f"pass a {wanted}, not the class: {given.__name__}()"
    return f"pass a {wanted}, not {given!r}"


class Lister(ABC):
    """Which resources there are, under one namespace such as ``vendor.com``."""

    namespace: str

    @abstractmethod
    def discover(self) -> NameLists:
        """The last names, ``["red", "blue"]``: a list, or a generator yielding whole lists.

        Each list replaces the one before: new names get a plugin, vanished ones are
        stopped. Called once, on a thread of its own that may block for ever.
        """

    @abstractmethod
    def new_plugin(self, last_name: str) -> Plugin:
        """A new plugin for ``<namespace>/<last name>``."""

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
