"""The newest device list of a resource, and how a stream waits for a newer one."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping

import attrs

from devicemanager.plugin import wire
from devicemanager.plugin.errors import PluginError
from devicemanager.plugin.values import Device

__all__ = ["DeviceList", "Snapshot", "normalise"]

_log = logging.getLogger(__name__)

_MESSAGE_LIMIT = 4 * 1024 * 1024
_ID_LIMIT = 63


@attrs.frozen(eq=False)
class Snapshot:
    """One state of the list.

    ``version`` grows with every state. ``mark`` is equal for states that need not be sent
    again to a stream that has seen one of them.
    """

    version: int = 0
    devices: Mapping[str, Device] = attrs.field(factory=dict)
    payload: bytes = b""
    resends: int = 0
    published: bool = False

    @property
    def mark(self) -> tuple[bytes, int]:
        return (self.payload, self.resends)


class DeviceList:
    """The newest state only. Every stream remembers the version that it has sent, so no
    stream can take an update away from another.

    In a forked child, which no kubelet can see, :meth:`publish` is a PluginError.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        # Guards _snapshot; streams wait on it for a newer version or for their own end.
        self._changed = threading.Condition()
        self._snapshot = Snapshot()

    @property
    def current(self) -> Snapshot:
        return self._snapshot

    def publish(self, devices: Iterable[Device | str]) -> bool:
        """Replace the list. Return False if the new one equals the old one."""
        if os.getpid() != self._pid:
            raise PluginError(
                "devices were updated in a forked child, where no kubelet sees them: send them to "
                "the process that serves the plugin"
            )
        # Read under the lock: of two publishers the later one also has the later state.
        with self._changed:
            listed = normalise(devices)
            old = self._snapshot
            if old.published and old.devices == listed:
                return False
            payload = wire.encode_list(listed.values())
            self._snapshot = attrs.evolve(
                old, version=old.version + 1, devices=listed, payload=payload, published=True
            )
            self._changed.notify_all()
        _warn_of(listed, payload)
        return True

    def resend(self) -> None:
        """Send the list again: the kubelet has asked for a device that is not in it."""
        with self._changed:
            old = self._snapshot
            self._snapshot = attrs.evolve(old, version=old.version + 1, resends=old.resends + 1)
            self._changed.notify_all()

    def wait_published(self, timeout: float, given_up: Callable[[], bool]) -> bool:
        """Wait until there is a first list."""
        with self._changed:
            self._changed.wait_for(lambda: self._snapshot.published or given_up(), timeout)
            return self._snapshot.published

    def wait_newer(self, version: int, ended: Callable[[], bool]) -> Snapshot | None:
        """Return the newest state once it is newer than ``version``, None once ``ended``."""
        with self._changed:
            self._changed.wait_for(lambda: ended() or self._snapshot.version > version)
            return None if ended() else self._snapshot

    def pause(self, seconds: float, ended: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(ended, seconds)

    def notify_streams(self) -> None:
        """Make the waiting streams check whether they have ended."""
        with self._changed:
            self._changed.notify_all()


def normalise(devices: Iterable[Device | str]) -> dict[str, Device]:
    """The devices by id. Of two with one id the last counts, as in the kubelet."""
    listed: dict[str, Device] = {}
    for entry in devices:
        device = Device(entry) if isinstance(entry, str) else entry
        if not isinstance(device, Device):
            raise TypeError(f"a device list holds Device values or ids, not {entry!r}")
        if device.id in listed:
            _log.warning("device id %s appears twice in one list: only one counts", device.id)
        listed[device.id] = device
    return listed


def _warn_of(listed: Mapping[str, Device], payload: bytes) -> None:
    if len(payload) > _MESSAGE_LIMIT:
        _log.error(
            "the list of %d devices takes %d bytes; a kubelet rejects more than %d: use fewer "
            "devices or shorter ids",
            len(listed),
            len(payload),
            _MESSAGE_LIMIT,
        )
    for device_id in listed:
        if len(device_id) > _ID_LIMIT:
            _log.warning("device id %s is longer than %d characters", device_id, _ID_LIMIT)
            break
