"""What stands behind the fixture ``replay_plugin``."""

from __future__ import annotations

import os

from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
from devicemanager.recording import Recording, ReplayPlugin
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
        """A plugin that answers as the one of the recording did, registered and listed.

        ``recording`` is the path of a file, or what was loaded; ``resource`` may be left out
        if it has only one. ``speed``: recorded seconds that pass in a second; None: no time
        passes between recorded events. With ``check`` a test fails if the kubelet asked what
        was not recorded. Raises RecordingError and WaitTimeout.
        """
        kubelet = kubelet or self._kubelet
        plugin = ReplayPlugin(recording, kubelet.plugin_dir, resource=resource, speed=speed)
        if check:
            self._checked.append(plugin)
        self._stack.enter_context(plugin)
        if not plugin.wait_registered(timeout):
            raise WaitTimeout(f"waited {timeout:g} s for {plugin.resource} to be registered")
        kubelet.wait_for(
            lambda: plugin.resource in kubelet.capacity(), timeout, f"a list of {plugin.resource}"
        )
        return plugin

    def check(self) -> None:
        """Raise NotRecorded for the first plugin that was asked what was not recorded."""
        for plugin in self._checked:
            plugin.check()
