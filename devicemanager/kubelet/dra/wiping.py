"""Delete ResourceSlices of the node in the background.

At each start of the kubelet, all slices of the node are deleted. Later, the slices of a driver are
deleted when the driver has had no usable instance for some time (``core.dra.drivers``). A failed
deletion is retried with exponential backoff, until an instance of the driver is usable again
(``wipeResourceSlices``, pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, v1.36).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from devicemanager.core.dra.drivers import wipe_selector
from devicemanager.core.errors import DeviceManagerError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Cancel, Clock

__all__ = ["Wiper"]

# The values of the kubelet, which also adds a random jitter of up to 20 %.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0
"""First and maximum wait before a failed deletion is retried, in seconds."""


class Wiper:
    """Deletes ResourceSlices in the background and retries failed deletions. Thread-safe."""

    def __init__(
        self, node: str, wipe: Callable[[str], None], clock: Clock, events: EventStream
    ) -> None:
        """``wipe`` deletes the slices that match a field selector. The function can block."""
        self._node = node
        self._wipe = wipe
        self._clock = clock
        self._events = events
        # Guards the fields below.
        self._lock = threading.Lock()
        self._retries: dict[str | None, Cancel] = {}
        self._closed = False

    def wipe(self, driver: str | None = None) -> None:
        """Delete the slices of a driver in the background; without a driver, all slices of the
        node."""
        self._start(driver, _FIRST_WAIT)

    def _start(self, driver: str | None, wait: float) -> None:
        # Timers and connection callbacks call this function, and must not wait for the API server.
        work = threading.Thread(target=self._run, args=(driver, wait), name="slices", daemon=True)
        work.start()

    def _run(self, driver: str | None, wait: float) -> None:
        selector = wipe_selector(self._node, driver)
        try:
            self._wipe(selector)
        except DeviceManagerError as error:
            self._retry(driver, wait)
            self._events.publish(
                EventKind.SLICES_WIPED,
                f"ResourceSlices with {selector} could not be deleted: {error}; "
                f"next try in {wait:g} s",
            )
            return
        self._events.publish(EventKind.SLICES_WIPED, f"deleted ResourceSlices with {selector}")

    def _retry(self, driver: str | None, wait: float) -> None:
        def again() -> None:
            with self._lock:
                # A timer that has fired must not be canceled later.
                self._retries.pop(driver, None)
            self._start(driver, min(2 * wait, _LONGEST_WAIT))

        with self._lock:
            if not self._closed:
                self._retries[driver] = self._clock.call_at(self._clock.monotonic() + wait, again)

    def cancel(self, driver: str) -> None:
        """Stop retrying to delete a driver's slices: an instance of the driver is usable again."""
        with self._lock:
            cancel = self._retries.pop(driver, None)
        if cancel is not None:
            cancel()

    def close(self) -> None:
        """Stop all retries."""
        with self._lock:
            self._closed = True
            cancels = list(self._retries.values())
            self._retries.clear()
        for cancel in cancels:
            cancel()
