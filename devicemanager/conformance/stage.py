"""A kubelet with the plugin under test, and the set of them that one run has open.

Theory of operation. A *stage* is a mock kubelet in a new temporary directory, and the plugin's
processes on it. Each stage is independent of all others, so checks on different stages can run
at the same time. ``Stages`` knows the open ones and can close them from another thread: an
interrupt during a run must stop every plugin, run ``cleanup`` and remove every directory, while
the threads that run checks still wait for something.

The kubelet of a stage has quirk Q3, as real kubelets do: a plugin that has been replaced keeps
its stream. Without it, a plugin that re-registers whenever its stream ends would take turns
with its successor in K11 and never come to rest.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable

import attrs

from devicemanager.conformance.limits import Limits
from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.running_plugin import RunningPlugin
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings

__all__ = ["OnWait", "Stage", "Stages"]

OnWait = Callable[[str], object]
"""Called with a progress line from time to time while the plugin has not registered."""


class Stage:
    """Kubelet in a directory of its own, and the plugin on it."""

    def __init__(
        self,
        plugin: PluginUnderTest,
        limits: Limits,
        settings: Settings,
        on_wait: OnWait | None = None,
    ) -> None:
        self.limits = limits
        self.on_wait = on_wait
        self.kubelet = MockKubelet(settings=attrs.evolve(settings, quirks=settings.quirks | {"Q3"}))
        self.plugin = RunningPlugin(plugin, self.kubelet)
        self._closing = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Stop the plugin and the kubelet. Thread-safe; has no effect the second time."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        with contextlib.ExitStack() as stack:  # close the kubelet even if the plugin raises
            stack.callback(self.kubelet.close)
            stack.callback(self.plugin.close)


class Stages:
    """The open stages of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak references: a stage that was closed and dropped need not be kept until the run ends.
        self._open: weakref.WeakSet[Stage] = weakref.WeakSet()
        self._closed = False

    def open(self, make: Callable[[], Stage]) -> Stage:
        """Return a new stage. Raises CheckError after ``close``."""
        with self._lock:
            if self._closed:
                raise CheckError("the run was ended")
            # Within the lock, so that no stage is created after `close` has taken its list.
            stage = make()
            self._open.add(stage)
        return stage

    def close(self) -> None:
        """Close all stages, even those in use, and create no more. Thread-safe."""
        with self._lock:
            self._closed = True
            stages = list(self._open)
        # All of them, even if one raises.
        with contextlib.ExitStack() as stack:
            for stage in stages:
                stack.callback(stage.close)
