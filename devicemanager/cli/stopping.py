"""SIGTERM and Ctrl-C during the set-up of a program that takes down what it has set up."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from devicemanager.plugin.signals import SignalWait


class Stopped(BaseException):
    """A signal asks to stop. No error, so no handler of errors may take it for one."""


class StopSignals(SignalWait):
    """SIGTERM and SIGINT raise Stopped in the main thread, once: a second one has its
    usual effect."""

    def __init__(self) -> None:
        super().__init__((signal.SIGTERM, signal.SIGINT), self._stop)
        self._held_back = False
        self._came = False

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """What is being set up here is set up whole, so that it is also taken down."""
        self._held_back = True
        try:
            yield
        finally:
            self._held_back = False
        if self._came:
            raise Stopped

    def _stop(self, *_: object) -> None:
        self.restore()
        self._came = True
        if not self._held_back:
            raise Stopped
