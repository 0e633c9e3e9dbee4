"""The factory behind the fixture ``replay_plugin``."""

from __future__ import annotations

import os
from itertools import groupby

from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
from devicemanager.plugin.recording import Recording, ReplayPlugin
from devicemanager.testing.factories import Factory

__all__ = ["ReplayPluginFactory"]


class ReplayPluginFactory(Factory):
    """Factory of plugins that replay recordings; a context manager that stops them."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """``kubelet`` is the default for plugins that are created without a kubelet."""
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
        """Create a plugin that responds as the recorded one; wait until it is registered.

        Also wait for the lists of its first stream: for all if ``speed`` is None, otherwise for the
        first one. ``recording`` is a recording or the path of one; ``resource`` is optional if it
        has only one. ``speed``: recorded seconds per second; None: no time between recorded
        events. With ``check``, the test fails if the kubelet makes a request that was not recorded.
        Raises RecordingError and WaitTimeout.
        """
        kubelet = kubelet or self._kubelet
        plugin = ReplayPlugin(recording, kubelet.plugin_dir, resource=resource, speed=speed)
        if check:
            self._checked.append(plugin)
        # Before the start: lists of an earlier plugin of this resource do not count.
        before = kubelet.events.latest
        self._stack.enter_context(plugin)
        _wait(plugin, kubelet, before, timeout)
        return plugin

    def check(self) -> None:
        """Raise NotRecorded for the first plugin with a request that was not recorded."""
        for plugin in self._checked:
            plugin.check()


def _wait(plugin: ReplayPlugin, kubelet: MockKubelet, after: int, timeout: float) -> None:
    if not plugin.wait_registered(timeout):
        raise WaitTimeout(f"waited {timeout:g} s for {plugin.resource} to be registered")
    # With a speed, later lists arrive in recorded time, which can be hours.
    lists = plugin.first_lists if plugin.speed is None else plugin.first_lists[:1]
    # The kubelet ignores a list that equals the one before.
    expected = sum(1 for _ in groupby(lists))

    def listed() -> bool:
        events = kubelet.events.recent(EventKind.DEVICES_UPDATED)
        new = [e for e in events if e.number > after and e.resource == plugin.resource]
        return len(new) >= expected

    kubelet.wait_for(listed, timeout, f"{expected} lists of {plugin.resource}")
