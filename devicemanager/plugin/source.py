"""Runs an author's ``devices`` and publishes its lists."""

from __future__ import annotations

import logging
import threading

from devicemanager.plugin.author import Plugin
from devicemanager.plugin.consume import consume
from devicemanager.plugin.settings import PluginSettings

__all__ = ["DeviceSource"]

_log = logging.getLogger(__name__)


class DeviceSource:
    """The thread that waits for device lists, one per resource.

    It outlives kubelets and streams. It is a daemon thread, since the author's generator may
    not look at ``stopping`` for a long time.
    """

    def __init__(self, resource: str, plugin: Plugin, settings: PluginSettings) -> None:
        self._what = f"{resource}: devices()"
        self._thread = threading.Thread(
            target=consume,
            name=f"devices of {resource}",
            args=(
                self._what,
                plugin.devices,
                plugin.update,
                plugin.stopping,
                settings.list_backoff,
            ),
            daemon=True,
        )

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            _log.warning("%s does not look at self.stopping and keeps running", self._what)
