"""Base classes for plugin authors: Plugin for one resource, Lister for several resources."""

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
"""One list of last names (resource names without the namespace and the slash), or an iterator of
such lists."""


class Plugin(ABC):
    """Base class for the plugin of one resource. Override ``devices`` and ``allocate``.

    All other methods are optional. The kubelet calls ``preferred_allocation`` and
    ``pre_start_container`` only if you override them. These two methods and ``allocate`` can run in
    several threads concurrently.
    """

    @abstractmethod
    def devices(self) -> DeviceLists:
        """Return the devices: a list, or a generator that yields the whole list at each change.

        A device is a :class:`Device`, or a string: the ID of a healthy device. This package (the
        *framework*) calls the method after ``start``. If the method raises, the framework logs the
        error and calls the method again later. Until the next list, the last list stays valid. The
        method has its own thread, so it can block forever.
        """

    @abstractmethod
    def allocate(self, device_ids: Sequence[str]) -> ContainerSettings | None:
        """Return the settings of the container that gets these devices; None for no settings.

        All IDs are in the newest list, sorted and distinct. Their devices are healthy, unless
        ``PluginSettings.reject_unhealthy`` is False. If this method raises, the pod is rejected
        with the error's type and text. The kubelet does not report freed devices, so it can
        allocate the same IDs again at any time.
        """

    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Iterable[str]:
        """Return the IDs of the ``size`` devices from ``available`` that suit a container best.

        The result must contain ``must_include``. The framework completes and corrects the result
        before the kubelet gets it.
        """
        raise NotImplementedError

    def pre_start_container(self, device_ids: Sequence[str]) -> None:
        """Prepare devices before their container starts or restarts; return within 30 s."""
        raise NotImplementedError

    def start(self) -> None:  # noqa: B027 - a hook that most plugins leave empty
        """Prepare the resource before it is served. If this method raises, it is called again.

        ``PluginSettings.start_attempts`` is the maximum number of calls (default: 3).
        """

    def stop(self) -> None:  # noqa: B027 - see start
        """Clean up. Called when the resource is no longer served."""

    # Not set in `__init__`: authors override it, and often do not call `super().__init__`.
    @cached_property
    def stopping(self) -> threading.Event:
        """Event that is set when the resource stops. Wait for this event instead of sleeping."""
        return threading.Event()

    def update(self, devices: Iterable[Device | str]) -> None:
        """Replace the device list with ``devices``. Thread-safe.

        This list is valid until the method ``devices`` of the plugin yields the next list.
        """
        self._device_list.publish(devices)

    @cached_property
    def _device_list(self) -> DeviceList:
        """Newest device list, which the framework sends to the kubelet."""
        # Imported here: the module imports protobuf, which only a served plugin needs.
        from devicemanager.plugin.lists import DeviceList

        return DeviceList()


def offers(plugin: Plugin, hook: Callable[..., object]) -> bool:
    """True if the plugin overrides ``hook``, a method of :class:`Plugin`."""
    # Check the class, not the instance: the options are sent once, at registration, and must not
    # depend on an attribute that is set later.
    return getattr(type(plugin), hook.__name__) is not hook


def wrong_type(expected: str, given: object) -> str:
    """Return the error text for an argument that is not a plugin or lister.

    ``expected``: "plugin" or "lister". If ``given`` is a class, the text suggests an instance.
    """
    if isinstance(given, type):
        return f"expected a {expected}, not a class: use {given.__name__}()"
    return f"expected a {expected}, not {given!r}"


class Lister(ABC):
    """Base class for a list of resources in one namespace such as ``vendor.com``."""

    namespace: str

    @abstractmethod
    def discover(self) -> NameLists:
        """Return the last names of the resources: a list, or a generator of whole lists.

        The last names ``["red", "blue"]`` stand for ``vendor.com/red`` and ``vendor.com/blue``.
        Each list replaces the previous list: a plugin is created for each new name, and plugins of
        missing names are stopped. The manager calls this method once. The method has its own
        thread, so it can block forever.
        """

    @abstractmethod
    def new_plugin(self, last_name: str) -> Plugin:
        """Return a new plugin for ``<namespace>/<last name>``."""

    @cached_property
    def stopping(self) -> threading.Event:
        """Event that is set when the manager stops."""
        return threading.Event()


class StaticLister(Lister):
    """Fixed list of resources, with one plugin for each resource name.

    The constructor raises ConfigurationError for a resource name that kubelets reject.
    """

    def __init__(self, namespace: str, plugins: dict[str, Plugin]) -> None:
        check_namespace(namespace)
        # A frequent mistake is to pass the plugin itself.
        if not isinstance(plugins, Mapping):
            raise TypeError(
                "expected a mapping from resource names without namespace to plugins, "
                f"as in {{'gpu': …}}, not {plugins!r}"
            )
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
