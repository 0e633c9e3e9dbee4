"""The relays of one recorder: whose front and plugin are still there, and who goes."""

from __future__ import annotations

import threading
from pathlib import Path

from devicemanager.plugin.recording.relay import Relay

__all__ = ["Relays"]


class Relays:
    """At most one relay for each front. Thread-safe.

    ``removes_plugins``: whether a plugin's socket is removed when the kubelet has removed its
    front; in one directory the kubelet has done so itself.
    """

    def __init__(self, *, removes_plugins: bool) -> None:
        self._removes_plugins = removes_plugins
        # Guards the dict: front to relay.
        self._lock = threading.Lock()
        self._relays: dict[Path, Relay] = {}

    def add(self, relay: Relay) -> None:
        """Take in a relay; one that had the same front is closed."""
        with self._lock:
            old = self._relays.get(relay.front)
            self._relays[relay.front] = relay
        if old is not None:
            old.close()

    def kubelet_leaves(self) -> None:
        """What plugins do from now on is because of that."""
        for relay in self._all():
            relay.kubelet_has_left = True

    def mirror(self) -> None:
        """What was removed on one side is removed on the other; who has nothing to do goes."""
        for relay in self._all():
            if relay.front_was_removed:
                if self._removes_plugins:
                    relay.remove_plugin()
            elif relay.plugin_was_removed:
                relay.remove_front()
            else:
                continue
            if relay.opened.is_set() and relay.is_idle:
                with self._lock:
                    if self._relays.get(relay.front) is relay:
                        del self._relays[relay.front]
                relay.close()

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            relays, self._relays = list(self._relays.values()), {}
        for relay in relays:
            relay.close()

    def _all(self) -> list[Relay]:
        with self._lock:
            return list(self._relays.values())
