"""Factories for the pytest fixtures. They create kubelets and plugins, and stop them afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from devicemanager.core.printable import counted
from devicemanager.events.stream import Event
from devicemanager.io.clock import Clock
from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
from devicemanager.kubelet.settings import Settings
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings

if TYPE_CHECKING:
    from devicemanager.testing.mock_podresources import MockPodResources, Script

__all__ = [
    "Factory",
    "MockKubeletFactory",
    "PodResourcesServerFactory",
    "SharedKubelet",
    "SimulatedPluginFactory",
    "with_marks",
]

_SHOWN_EVENTS = 50


class Factory:
    """Base class of factories: a context manager that stops created objects, the latest first."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()


class MockKubeletFactory(Factory):
    """Factory of kubelets; a context manager that stops them and removes their directories."""

    def __init__(self, settings: Settings) -> None:
        """Create a factory; ``settings`` are the default settings of its kubelets."""
        super().__init__()
        self._settings = settings
        self._kubelets: list[MockKubelet] = []

    def __call__(
        self,
        settings: Settings | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        start: bool = True,
    ) -> MockKubelet:
        """Create a kubelet, and start it unless ``start`` is false.

        Without ``root``, the kubelet gets a new directory, which exists until the end of the test,
        even while the kubelet is stopped. Raises StartError if the kubelet cannot start.
        """
        kubelet = MockKubelet(root, settings or self._settings, clock=clock)
        self._kubelets.append(kubelet)
        # The stack runs in reverse order: close the kubelet, then raise errors of its threads.
        self._stack.callback(kubelet.check)
        self._stack.callback(kubelet.close)
        return kubelet.start() if start else kubelet

    def check(self) -> None:
        """Raise the first error that occurred on a server thread of a kubelet, if any."""
        for kubelet in self._kubelets:
            kubelet.check()

    def report(self, after: int = 0) -> str:
        """Return the latest events of each kubelet as text. Only events with a number above
        ``after`` are included."""
        return "\n".join(filter(None, (_events(kubelet, after) for kubelet in self._kubelets)))


def _events(kubelet: MockKubelet, after: int) -> str:
    # `recent` returns a limited number of events; older events have already been dropped.
    events = [event for event in kubelet.events.recent() if event.number > after]
    if not events:
        return ""
    start = events[0].time
    lines = [f"kubelet in {kubelet.root}"]
    if len(events) > _SHOWN_EVENTS:
        lines.append(f"  ({counted(len(events) - _SHOWN_EVENTS, 'earlier event')} not shown)")
    lines += [_line(event, start) for event in events[-_SHOWN_EVENTS:]]
    return "\n".join(lines)


def _line(event: Event, start: float) -> str:
    mark = "!" if event.is_warning else " "
    return f"{event.time - start:9.3f} s {mark} {event}"


class SharedKubelet(Factory):
    """Kubelet that several tests share and reset; a context manager that stops it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        # A factory with one kubelet provides `check` and `report`.
        self._factory = self._stack.enter_context(MockKubeletFactory(settings))
        self.kubelet = self._factory()
        self._last_event = 0

    def check(self) -> None:
        """Raise the first error that occurred on a server thread of the kubelet, if any."""
        self._factory.check()

    def reset(self) -> None:
        """Prepare the kubelet for the next test: remove pods, faults and claims."""
        self.kubelet.reset()
        self._last_event = self.kubelet.events.latest

    def report(self) -> str:
        """Return the kubelet's events since the last reset as text. Of many events, only the latest
        are included."""
        return self._factory.report(self._last_event)


def with_marks(
    settings: Settings, marks: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]
) -> Settings:
    """Return ``settings`` changed by the arguments of pytest marks named ``mock_kubelet``.

    ``marks``: positional and keyword arguments of each mark; the mark closest to the test comes
    first and has precedence. Raises TypeError for an argument that is not a field of Settings.
    """
    changes: dict[str, Any] = {}
    for args, kwargs in marks:
        if args:
            expected = "expected fields of Settings by name, such as strict=True"
            raise TypeError(f"mark mock_kubelet: {expected}, not {args[0]!r}")
        # Fields of closer marks, which come first, are not replaced.
        changes = {**kwargs, **changes}
    if unknown := changes.keys() - attrs.fields_dict(Settings).keys():
        raise TypeError(f"mark mock_kubelet: Settings has no field {min(unknown)!r}")
    # Return the same object if nothing changes, because creating settings validates them again.
    return attrs.evolve(settings, **changes) if changes else settings


class SimulatedPluginFactory(Factory):
    """Factory of plugins with virtual devices; a context manager that stops the plugins."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """Create a factory; ``kubelet`` is the default kubelet of its plugins."""
        super().__init__()
        self._kubelet = kubelet

    def __call__(
        self,
        resource: str = "vendor.com/gpu",
        count: int = 2,
        *,
        kubelet: MockKubelet | None = None,
        timeout: float | None = 10.0,
        **settings: Any,
    ) -> SimulatedPlugin:
        """Create a plugin with ``count`` devices; wait until the kubelet has its device list.

        The device IDs of ``vendor.com/gpu`` are ``gpu-mock-0``, ``gpu-mock-1`` and so on.
        ``settings`` are further fields of SimulationSettings, such as ``numa=(0, 1)``. With
        ``timeout=None``, do not wait, for example for a plugin that must fail. Raises WaitTimeout
        after ``timeout`` seconds, and ConfigurationError for invalid settings.
        """
        name = resource.rpartition("/")[2]
        # A fixed node name makes the device IDs predictable.
        defaults = {"plugin_name": name, "device_id_prefix": name, "node_name": "mock"}
        chosen = SimulationSettings(
            resource_name=resource, number_devices=count, **(defaults | settings)
        )
        kubelet = kubelet or self._kubelet
        # Enter the context before the wait, so that the plugin is stopped if the wait fails.
        plugin = self._stack.enter_context(SimulatedPlugin(chosen, kubelet.plugin_dir))
        if timeout is not None:
            _wait(plugin, kubelet, resource, timeout)
        return plugin


def _wait(plugin: SimulatedPlugin, kubelet: MockKubelet, resource: str, timeout: float) -> None:
    healthy = sum(device.healthy for device in plugin.devices)
    kubelet.wait_for_resource(resource, healthy, timeout=timeout)
    # With 0 healthy devices, the wait above returns even before the plugin is registered.
    if not plugin.wait_registered(timeout):
        raise WaitTimeout(f"waited {timeout:g} s for the plugin of {resource} to be registered")


class PodResourcesServerFactory(Factory):
    """Factory of mock PodResources servers; a context manager that stops the servers."""

    def __call__(
        self,
        script: Script | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        socket_path: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
    ) -> MockPodResources:
        """Create and start a server with a script: a Script, a dict, or the path of a file.

        Without a script, the server has no pods. Without ``socket_path``, the socket is in a new
        directory. With a ``ManualClock``, the test decides when steps and delays are due. Raises
        ScriptError for an invalid script.
        """
        # Imported here, because most tests do not use this factory.
        from devicemanager.testing.mock_podresources import (
            MockPodResources,
            Script,
            load_script,
            read_script,
        )

        if isinstance(script, Mapping):
            script = read_script(script)
        elif script is not None and not isinstance(script, Script):
            script = load_script(script)
        # ScriptError is raised before a server exists, so nothing has to be stopped.
        server = MockPodResources(script, socket_path, clock=clock)
        return self._stack.enter_context(server)
