"""Factory of the fixture ``replay_plugin``."""

from __future__ import annotations

import os
from itertools import groupby

from devicemanager.core.printable import counted
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
from devicemanager.plugin.recording import Recording, ReplayPlugin
from devicemanager.testing.factories import Factory

__all__ = ["ReplayPluginFactory"]


class ReplayPluginFactory(Factory):
    """Factory of plugins that replay recordings; a context manager that stops the plugins."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """Create a factory; ``kubelet`` is the default kubelet of its plugins."""
        super().__init__()
        self._kubelet = kubelet
        self._checked: list[ReplayPlugin] = []

    def __call__(
        self,
        recording: Recording | str | os.PathLike[str],
        resource: str | None = None,
        *,
        kubelet: MockKubelet | None = None,
        speed: float | None = None,
        check: bool = True,
        timeout: float = 10.0,
    ) -> ReplayPlugin:
        """Start a plugin that replays a recording, and return it when the kubelet has its devices.

        ``recording`` is a ``Recording`` or its path. ``resource`` is optional if the recording has
        only one resource. ``speed`` is a factor: 2 replays twice as fast as recorded; None
        replays without pauses.

        The call waits for the first device list of the first recorded ListAndWatch stream. If
        ``speed`` is None, it waits for all device lists of this stream.

        With ``check``, the test fails if the kubelet makes a request that was not recorded. Raises
        RecordingError for an invalid recording, and WaitTimeout after ``timeout`` seconds.
        """
        kubelet = kubelet or self._kubelet
        plugin = ReplayPlugin(recording, kubelet.plugin_dir, resource=resource, speed=speed)
        if check:
            self._checked.append(plugin)
        # Read before the start: lists of an earlier plugin of this resource do not count.
        before = kubelet.events.latest
        self._stack.enter_context(plugin)
        _wait(plugin, kubelet, before, timeout)
        return plugin

    def check(self) -> None:
        """Raise NotRecorded for the first plugin that got a request that was not recorded."""
        for plugin in self._checked:
            plugin.check()


def _wait(plugin: ReplayPlugin, kubelet: MockKubelet, after: int, timeout: float) -> None:
    if not plugin.wait_registered(timeout):
        raise WaitTimeout(f"waited {timeout:g} s for {plugin.resource} to be registered")
    # With a speed, later lists arrive after the recorded time, which can be hours.
    lists = plugin.first_lists if plugin.speed is None else plugin.first_lists[:1]
    # The kubelet ignores a list that equals the previous list.
    expected = sum(1 for _ in groupby(lists))

    def listed() -> bool:
        events = kubelet.events.recent(EventKind.DEVICES_UPDATED)
        new = [e for e in events if e.number > after and e.resource == plugin.resource]
        return len(new) >= expected

    kubelet.wait_for(listed, timeout, f"{counted(expected, 'list')} of {plugin.resource}")
