"""What stands behind the fixtures: makers of kubelets and plugins that clean up after."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType
from typing import Any, Self

from devicemanager.events.stream import Event
from devicemanager.io.clock import Clock
from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
from devicemanager.kubelet.settings import Settings
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings

__all__ = ["Closing", "MockKubeletFactory", "SimulatedPluginFactory"]

_SHOWN_EVENTS = 50


class Closing:
    """A context manager that takes down what was made in it, the latest first."""

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


class MockKubeletFactory(Closing):
    """Makes kubelets; a context manager that stops them and removes their directories."""

    def __init__(self, settings: Settings) -> None:
        """``settings`` are those of kubelets that are made without any."""
        super().__init__()
        self._settings = settings
        self._made: list[MockKubelet] = []

    def __call__(
        self,
        settings: Settings | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        start: bool = True,
    ) -> MockKubelet:
        """A kubelet, started unless ``start`` is false.

        Without ``root`` it gets a directory of its own, which stays until the end of the
        test, also while the kubelet is stopped. Raises StartError.
        """
        kubelet = MockKubelet(root, settings or self._settings, clock=clock)
        self._made.append(kubelet)
        self._stack.callback(kubelet.check)  # what went wrong while it stopped
        self._stack.callback(kubelet.close)
        return kubelet.start() if start else kubelet

    def check(self) -> None:
        """Raise the first error that happened on a server thread, if there was one."""
        for kubelet in self._made:
            kubelet.check()

    def story(self, after: int = 0) -> str:
        """The latest events of every kubelet, of those after the event of number ``after``,
        for people; empty if nothing happened."""
        return "\n".join(filter(None, (_story(kubelet, after) for kubelet in self._made)))


def _story(kubelet: MockKubelet, after: int) -> str:
    events = [event for event in kubelet.events.recent() if event.number > after]
    if not events:
        return ""
    start = events[0].time
    lines = [f"kubelet in {kubelet.root}"]
    if len(events) > _SHOWN_EVENTS:
        lines.append(f"  ({len(events) - _SHOWN_EVENTS} earlier events are left out)")
    lines += [_line(event, start) for event in events[-_SHOWN_EVENTS:]]
    return "\n".join(lines)


def _line(event: Event, start: float) -> str:
    mark = "!" if event.is_warning else " "
    return f"{event.time - start:9.3f} s {mark} {event}"


class SimulatedPluginFactory(Closing):
    """Makes plugins with virtual devices; a context manager that stops them."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """``kubelet`` is the one that plugins register with unless told otherwise."""
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
        """A plugin of ``count`` devices that the kubelet has registered and listed.

        The ids are ``gpu-mock-0``, ``gpu-mock-1`` for ``vendor.com/gpu``. ``settings`` are further
        fields of SimulationSettings, such as ``numa=(0, 1)``. With ``timeout`` None it is
        not waited for, as for a plugin that is meant to fail. Raises WaitTimeout, and
        ConfigurationError for settings that cannot work.
        """
        name = resource.rpartition("/")[2]
        defaults = {"plugin_name": name, "device_id_prefix": name, "node_name": "mock"}
        chosen = SimulationSettings(
            resource_name=resource, number_devices=count, **(defaults | settings)
        )
        kubelet = kubelet or self._kubelet
        plugin = self._stack.enter_context(SimulatedPlugin(chosen, kubelet.plugin_dir))
        if timeout is not None:
            _wait(plugin, kubelet, resource, timeout)
        return plugin


def _wait(plugin: SimulatedPlugin, kubelet: MockKubelet, resource: str, timeout: float) -> None:
    healthy = sum(device.healthy for device in plugin.devices)
    kubelet.wait_for_resource(resource, healthy, timeout=timeout)
    # For a plugin without healthy devices the line above was true from the start.
    if not plugin.wait_registered(timeout):
        raise WaitTimeout(f"waited {timeout:g} s for the plugin of {resource} to be registered")
