"""Stages for checks: a stage is a mock kubelet with the plugin under test.

Theory of operation. A *stage* is a mock kubelet in a new temporary directory, and the plugin's
processes on it. Stages are independent, so checks on different stages can run in parallel.
``Stages`` has all open stages of a run and can close them from another thread. This is needed for
an interrupt: it must stop every plugin, run the hook ``cleanup`` and remove every directory,
although other threads still run checks.

The kubelet of a stage has quirk Q3, a known bug of real kubelets: the ListAndWatch stream of a
replaced plugin stays open. Check K11 needs this bug, because it runs two instances of the plugin.
Without Q3, each registration would end the stream of the other instance. If the plugin re-registers
whenever its stream ends, the instances would replace each other again and again.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping

import attrs

from devicemanager.conformance.limits import Limits
from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.running_plugin import RunningPlugin
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings

__all__ = ["OnWait", "Stage", "Stages"]

OnWait = Callable[[str], object]
"""Callback that gets a progress text every few seconds while the plugin has not registered."""


class Stage:
    """Mock kubelet in a temporary directory, and the plugin that runs with it."""

    def __init__(
        self,
        plugin: PluginUnderTest,
        limits: Limits,
        settings: Settings,
        on_wait: OnWait | None = None,
        device_counts: Mapping[str, int] | None = None,
    ) -> None:
        self.limits = limits
        self.on_wait = on_wait
        self.device_counts = device_counts or {}
        """Number of devices of each resource, counted when the plugin ran before on another stage.
        Empty if they have not been counted yet."""
        self.kubelet = self._new_kubelet(plugin, settings)
        self.plugin = self._new_plugin(plugin)
        self._closing = threading.Lock()
        self._closed = False

    def _new_kubelet(self, plugin: PluginUnderTest, settings: Settings) -> MockKubelet:
        return MockKubelet(settings=attrs.evolve(settings, quirks=settings.quirks | {"Q3"}))

    def _new_plugin(self, plugin: PluginUnderTest) -> RunningPlugin:
        return RunningPlugin(plugin, self.kubelet, self.limits.stop_seconds)

    def close(self) -> None:
        """Stop the plugin and the kubelet. Thread-safe. Later calls do nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        # Callbacks run in reverse order: the plugin stops first, while its kubelet still runs.
        with contextlib.ExitStack() as stack:  # close the kubelet even if the plugin raises
            stack.callback(self._clean_up)
            stack.callback(self.kubelet.close)
            stack.callback(self.plugin.close)

    def _clean_up(self) -> None:
        """For subclasses: remove what they created, after plugin and kubelet have stopped."""


class Stages:
    """All stages of one run of the suite that are still open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak references, so that closed stages can be freed before the run ends.
        self._open: weakref.WeakSet[Stage] = weakref.WeakSet()
        self._closed = False

    def open(self, make: Callable[[], Stage]) -> Stage:
        """Call ``make`` to create a stage, and return the stage. ``close`` then closes it, too.
        Raises CheckError if ``close`` was called before."""
        with self._lock:
            if self._closed:
                raise CheckError("cannot start a check: the run was closed")
            # Created with the lock held, so that ``close`` cannot miss the stage.
            stage = make()
            self._open.add(stage)
        return stage

    def close(self) -> None:
        """Close all stages, even those in use, and reject new ones. Thread-safe."""
        with self._lock:
            self._closed = True
            # The stages are closed after the lock is released, because a plugin can take
            # ``stop_seconds`` to exit. Threads that call ``open`` must not wait for this.
            stages = list(self._open)
        # ExitStack closes all stages, even if closing one raises an exception.
        with contextlib.ExitStack() as stack:
            for stage in stages:
                stack.callback(stage.close)
