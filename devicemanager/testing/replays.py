"""What stands behind the fixture ``replay_plugin``."""

from __future__ import annotations

import os
from itertools import groupby

from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
from devicemanager.plugin.recording import Recording, ReplayPlugin
from devicemanager.testing.factories import Closing

__all__ = ["ReplayPluginFactory"]


class ReplayPluginFactory(Closing):
    """Serves recorded plugins; a context manager that stops them."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """``kubelet`` is the one that plugins register with unless told otherwise."""
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
        """A plugin that answers as the one of the recording did, registered and listed: with
        all lists of its first stream if ``speed`` is None, else with the first.

        ``recording`` is the path of a file, or what was loaded; ``resource`` may be left out
        if it has only one. ``speed``: recorded seconds that pass in a second; None: no time
        passes between recorded events. With ``check`` a test fails if the kubelet asked what
        was not recorded. Raises RecordingError and WaitTimeout.
        """
        kubelet = kubelet or self._kubelet
        plugin = ReplayPlugin(recording, kubelet.plugin_dir, resource=resource, speed=speed)
        if check:
            self._checked.append(plugin)
        before = kubelet.events.latest
        self._stack.enter_context(plugin)
        _wait(plugin, kubelet, before, timeout)
        return plugin

    def check(self) -> None:
        """Raise NotRecorded for the first plugin that was asked what was not recorded."""
        for plugin in self._checked:
            plugin.check()


def _wait(plugin: ReplayPlugin, kubelet: MockKubelet, after: int, timeout: float) -> None:
    if not plugin.wait_registered(timeout):
        raise WaitTimeout(f"waited {timeout:g} s for {plugin.resource} to be registered")
    lists = plugin.first_lists if plugin.speed is None else plugin.first_lists[:1]
    # A list that equals the one before is no news for a kubelet.
    wanted = sum(1 for _ in groupby(lists))

    def listed() -> bool:
        events = kubelet.events.recent(EventKind.DEVICES_UPDATED)
        news = [e for e in events if e.number > after and e.resource == plugin.resource]
        return len(news) >= wanted

    kubelet.wait_for(listed, timeout, f"{wanted} lists of {plugin.resource}")
