"""The factories behind the fixtures: they create kubelets and plugins, and stop them afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

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
    """Base class of factories: a context manager that stops what it created, the latest first."""

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
        """``settings`` is the default for kubelets that are created without settings."""
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

        Without ``root``, it gets a new directory, which exists until the end of the test, also
        while the kubelet is stopped. Raises StartError.
        """
        kubelet = MockKubelet(root, settings or self._settings, clock=clock)
        self._kubelets.append(kubelet)
        # The stack runs in reverse: close first, then raise what failed while it stopped.
        self._stack.callback(kubelet.check)
        self._stack.callback(kubelet.close)
        return kubelet.start() if start else kubelet

    def check(self) -> None:
        """Raise the first error that occurred on a server thread, if there is one."""
        for kubelet in self._kubelets:
            kubelet.check()

    def report(self, after: int = 0) -> str:
        """Return the latest events of all kubelets after event number ``after``, as text."""
        return "\n".join(filter(None, (_events(kubelet, after) for kubelet in self._kubelets)))


def _events(kubelet: MockKubelet, after: int) -> str:
    # `recent` has a limited number of events; older ones are already dropped.
    events = [event for event in kubelet.events.recent() if event.number > after]
    if not events:
        return ""
    start = events[0].time
    lines = [f"kubelet in {kubelet.root}"]
    if len(events) > _SHOWN_EVENTS:
        lines.append(f"  ({len(events) - _SHOWN_EVENTS} earlier events are not shown)")
    lines += [_line(event, start) for event in events[-_SHOWN_EVENTS:]]
    return "\n".join(lines)


def _line(event: Event, start: float) -> str:
    mark = "!" if event.is_warning else " "
    return f"{event.time - start:9.3f} s {mark} {event}"


class SharedKubelet(Factory):
    """A kubelet for several tests, to be reset after each; a context manager that stops it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        # A separate factory, which has the checks and reports.
        self._factory = self._stack.enter_context(MockKubeletFactory(settings))
        self.kubelet = self._factory()
        self._last_event = 0

    def check(self) -> None:
        """Raise the first error that occurred on a server thread, if there is one."""
        self._factory.check()

    def reset(self) -> None:
        """Prepare the kubelet for the next test."""
        self.kubelet.reset()
        self._last_event = self.kubelet.events.latest

    def report(self) -> str:
        """Return the latest events since the reset, as text."""
        return self._factory.report(self._last_event)


def with_marks(
    settings: Settings, marks: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]
) -> Settings:
    """Return the settings with the fields of marks ``mock_kubelet``.

    ``marks``: positional and keyword arguments of each mark, the closest to the test first. Raises
    TypeError for an argument that is not a field of Settings.
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
    # The same object if nothing changes: settings are validated when they are created.
    return attrs.evolve(settings, **changes) if changes else settings


class SimulatedPluginFactory(Factory):
    """Factory of plugins with virtual devices; a context manager that stops them."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """``kubelet`` is the default for plugins that are created without a kubelet."""
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
        """Create a plugin with ``count`` devices; wait until they are registered and listed.

        The IDs are ``gpu-mock-0``, ``gpu-mock-1`` for ``vendor.com/gpu``. ``settings`` are further
        fields of SimulationSettings, such as ``numa=(0, 1)``. With ``timeout=None``, do not wait,
        for example for a plugin that must fail. Raises WaitTimeout, and ConfigurationError for
        invalid settings.
        """
        name = resource.rpartition("/")[2]
        # A fixed node name makes the device IDs predictable.
        defaults = {"plugin_name": name, "device_id_prefix": name, "node_name": "mock"}
        chosen = SimulationSettings(
            resource_name=resource, number_devices=count, **(defaults | settings)
        )
        kubelet = kubelet or self._kubelet
        # Entered before the wait: if that fails, the plugin is still stopped.
        plugin = self._stack.enter_context(SimulatedPlugin(chosen, kubelet.plugin_dir))
        if timeout is not None:
            _wait(plugin, kubelet, resource, timeout)
        return plugin


def _wait(plugin: SimulatedPlugin, kubelet: MockKubelet, resource: str, timeout: float) -> None:
    healthy = sum(device.healthy for device in plugin.devices)
    kubelet.wait_for_resource(resource, healthy, timeout=timeout)
    # With 0 healthy devices, the line above was true from the start.
    if not plugin.wait_registered(timeout):
        raise WaitTimeout(f"waited {timeout:g} s for the plugin of {resource} to be registered")


class PodResourcesServerFactory(Factory):
    """Factory of mock PodResources servers; a context manager that stops them."""

    def __call__(
        self,
        script: Script | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        socket_path: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
    ) -> MockPodResources:
        """Create and start a server with a script: a Script, a dict, or the path of a file.

        Without a script, it serves no pods. Without ``socket_path``, the socket is in a new
        directory. With a ``ManualClock``, the test decides when steps and delays are due. Raises
        ScriptError.
        """
        # Imported here: most tests use the other factories only.
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
