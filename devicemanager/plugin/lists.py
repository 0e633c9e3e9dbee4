"""Store the newest device list of a resource, and wake ListAndWatch streams when it changes.

Older lists are not stored. Each stream remembers the version that it sent last, so every
stream sends the newest list. A slow stream skips earlier lists.
"""

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
    """Immutable copy of a device list, with its version.

    ``version`` grows with every snapshot. If ``mark`` differs from that of the previous snapshot,
    streams must send the list. ``mark`` changes with the serialized list, and with each call of
    :meth:`DeviceList.resend`. ``published`` is False before the first list.
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
    """The newest device list of one resource. Thread-safe.

    In a forked child process, which serves no kubelet, :meth:`publish` raises PluginError.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        # Guards _snapshot. Streams wait here for a newer version or until they are ended.
        self._changed = threading.Condition()
        self._snapshot = Snapshot()

    @property
    def current(self) -> Snapshot:
        return self._snapshot

    def publish(self, devices: Iterable[Device | str]) -> bool:
        """Replace the list. Return False if the new list equals the old list."""
        if os.getpid() != self._pid:
            raise PluginError(
                "devices were updated in a forked child, which serves no kubelet: send them to "
                "the process that serves the plugin"
            )
        # Read `devices` with the lock held: of two concurrent publishers, the later one must also
        # have read the later state.
        with self._changed:
            # An invalid list raises before anything changes, so the previous list stays valid.
            listed = normalise(devices)
            old = self._snapshot
            if old.published and old.devices == listed:
                return False
            # Serialized once, not once per stream: lists can have 100,000 devices.
            payload = wire.encode_list(listed.values())
            self._snapshot = attrs.evolve(
                old, version=old.version + 1, devices=listed, payload=payload, published=True
            )
            self._changed.notify_all()
        # Log after the list is published: an error during logging must not prevent publishing.
        _log_problems(listed, payload)
        return True

    def resend(self) -> None:
        """Make all streams send the list again, because the kubelet uses an outdated list."""
        with self._changed:
            old = self._snapshot
            self._snapshot = attrs.evolve(old, version=old.version + 1, resends=old.resends + 1)
            self._changed.notify_all()

    def wait_published(self, timeout: float, given_up: Callable[[], bool]) -> bool:
        """Wait for the first list, up to ``timeout`` seconds or until ``given_up()`` is true.

        Return False if no list is published yet.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._snapshot.published or given_up(), timeout)
            return self._snapshot.published

    def wait_newer(self, version: int, ended: Callable[[], bool]) -> Snapshot | None:
        """Wait for a snapshot newer than ``version``, and return it.

        Return None as soon as ``ended()`` is true.
        """
        with self._changed:
            self._changed.wait_for(lambda: ended() or self._snapshot.version > version)
            return None if ended() else self._snapshot

    def pause(self, seconds: float, ended: Callable[[], bool]) -> None:
        """Wait ``seconds``, or until ``ended()`` is true."""
        with self._changed:
            self._changed.wait_for(ended, seconds)

    def notify_streams(self) -> None:
        """Wake the waiting streams so that they check whether they have ended."""
        with self._changed:
            self._changed.notify_all()


def normalise(devices: Iterable[Device | str]) -> dict[str, Device]:
    """Return the devices by ID. For a repeated ID, use the last device, as the kubelet does.

    Raises TypeError for an entry that is not a Device or an ID.
    """
    listed: dict[str, Device] = {}
    for entry in devices:
        device = Device(entry) if isinstance(entry, str) else entry
        if not isinstance(device, Device):
            raise TypeError(f"invalid device {entry!r}: expected a Device or an ID")
        if device.id in listed:
            _log.warning("device ID %s is listed twice: the last entry is used", device.id)
        listed[device.id] = device
    return listed


def _log_problems(listed: Mapping[str, Device], payload: bytes) -> None:
    if len(payload) > _MESSAGE_LIMIT:
        _log.error(
            "the list of %d devices has %d bytes, and the kubelet's limit is %d: use fewer devices "
            "or shorter IDs",
            len(listed),
            len(payload),
            _MESSAGE_LIMIT,
        )
    # The API documents this limit, but kubelets do not check it.
    for device_id in listed:
        if len(device_id) > _ID_LIMIT:
            _log.warning("device ID %s is longer than %d characters", device_id, _ID_LIMIT)
            break
