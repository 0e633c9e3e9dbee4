"""The kubelet and its plugin, and who restarts them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Final, Self

import attrs

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from tools.bench.clock import now
from tools.bench.environment import Helper
from tools.bench.plugin import RESOURCE

_SETTINGS: Final = Settings(pod_resources_qps=None, calls_kept=100)
"""Few calls are kept, so that the record is full after the first lap and grows no more."""

_CALM: Final = 0.25
"""Seconds between two restarts, in which something gets done."""


@attrs.define
class Upheaval:
    """Restarts of one thing, counted at their beginning and at their end."""

    count: int = 0

    @property
    def is_on(self) -> bool:
        """Whether one is under way."""
        return self.count % 2 == 1


class Node:
    """A kubelet, and a plugin in a process of its own. A context manager."""

    timeout: Final = 60.0
    """Seconds within which a plugin has come back, whatever else the threads do."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.kubelet = MockKubelet(settings=_SETTINGS)
        self.of_kubelet = Upheaval()
        self.of_plugin = Upheaval()
        # Held over a restart: of two at once the plugin would meet a kubelet that is away.
        self._turn = threading.Lock()
        self._next = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # The plugin is ended first, as the kubelet's directory is its own.
            stack.enter_context(self.kubelet)
            directory = self.kubelet.plugin_dir
            self._plugin = stack.enter_context(Helper("tools.soak.plugin", directory, self.devices))
            self._start_plugin()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def restart_plugin(self) -> bool:
        """The plugin starts anew; returns when all its devices are back. False: it is too
        soon for another restart."""
        with self._restarting() as may:
            if may:
                with _upheaval(self.of_plugin):
                    self._start_plugin()
        return may

    def restart_kubelet(self) -> bool:
        """The kubelet's process starts anew, and the plugin registers again. False: it is too
        soon for another restart."""
        with self._restarting() as may:
            if may:
                with _upheaval(self.of_plugin), _upheaval(self.of_kubelet):
                    self.kubelet.restart()
                    self._start_plugin()
        return may

    @contextmanager
    def _restarting(self) -> Iterator[bool]:
        if not self._turn.acquire(blocking=False):
            yield False
            return
        try:
            may = now() >= self._next
            yield may
            if may:
                self._next = now() + _CALM
        finally:
            self._turn.release()

    def _start_plugin(self) -> None:
        self._plugin.ask("start")
        self.kubelet.wait_for_resource(RESOURCE, self.devices, self.timeout)


@contextmanager
def _upheaval(of: Upheaval) -> Iterator[None]:
    of.count += 1
    try:
        yield
    finally:
        of.count += 1
