"""Simulated plugin with virtual devices, for a separate process or inside a test."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from devicemanager.plugin.author import DeviceLists, Plugin, StaticLister
from devicemanager.plugin.errors import DeviceRejected
from devicemanager.plugin.manager import ManagedPlugin, Manager
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.simulated.control import ControlFile
from devicemanager.plugin.simulated.faults import Faults
from devicemanager.plugin.simulated.service import CallLog, RpcCall, SimulatedService
from devicemanager.plugin.simulated.settings import PreferredPolicy, SimulationSettings
from devicemanager.plugin.simulated.table import HEALTH, DeviceTable
from devicemanager.plugin.values import ContainerSettings, Device

__all__ = ["SimulatedPlugin"]


class _Simulated(Plugin):
    def __init__(self, settings: SimulationSettings, recheck: float) -> None:
        self.table = DeviceTable(settings)
        self._settings = settings
        self._recheck = recheck

    def start(self) -> None:
        # Without a control file, the devices are already known, so serving need not wait for
        # devices().
        if not self._settings.control_file:
            self.update(self.table)

    def devices(self) -> DeviceLists:
        if not self._settings.control_file:
            return self.table
        return self._controlled(ControlFile(Path(self._settings.control_file), self._control))

    def _controlled(self, control: ControlFile) -> Iterator[DeviceTable]:
        try:
            while not self.stopping.is_set():
                control.refresh()
                yield self.table
                # File events apply changes immediately; the repeated read is for hosts without
                # inotify.
                self.stopping.wait(self._recheck)
        finally:
            control.close()

    def _control(self, states: Mapping[str, str]) -> None:
        self.table.control(states)
        self.update(self.table)

    def allocate(self, device_ids: Sequence[str]) -> ContainerSettings:
        return self._settings.container_settings(self.table.indexes(device_ids))


class _Preferring(_Simulated):
    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> list[str]:
        policy = self._settings.preferred_policy
        if policy is PreferredPolicy.ERROR:
            raise DeviceRejected("simulated failure of the preferred allocation")
        # The framework adds required devices and cuts the result to the requested size.
        return sorted(available, reverse=policy is PreferredPolicy.REVERSE)


class _PreStarting(_Simulated):
    def pre_start_container(self, device_ids: Sequence[str]) -> None:
        pass


class _PreferringAndPreStarting(_Preferring, _PreStarting):
    pass


# The kubelet calls only the optional methods that a plugin's class overrides, so each combination
# of these methods needs a class.
_CLASSES: dict[tuple[bool, bool], type[_Simulated]] = {
    (False, False): _Simulated,
    (True, False): _Preferring,
    (False, True): _PreStarting,
    (True, True): _PreferringAndPreStarting,
}


class SimulatedPlugin(ManagedPlugin):
    """Simulated plugin with virtual devices of one resource. ``directory``: the plugin directory.

    ``start`` serves in the background and re-registers after kubelet restarts. ``stop`` stops
    serving; the plugin cannot be started again. A context manager: entering it starts, leaving it
    stops. Thread-safe.
    """

    def __init__(
        self,
        settings: SimulationSettings | None = None,
        directory: str | os.PathLike[str] | None = None,
        plugin_settings: PluginSettings | None = None,
    ) -> None:
        if settings is not None and not isinstance(settings, SimulationSettings):
            raise TypeError(
                "expected settings such as "
                f'SimulationSettings(resource_name="vendor.com/gpu"), not {settings!r}'
            )
        self.settings = settings or SimulationSettings()
        # Use a short grace period, because calls that hang due to a fault delay every stop.
        framework = plugin_settings or PluginSettings(stop_grace=0.5)
        # Copy the faults of the settings, because tests change faults while the plugin runs.
        self.faults = Faults(
            delays=dict(self.settings.rpc_delays),
            errors=dict(self.settings.rpc_errors),
            lists=self.settings.list_fault,
            allocate=self.settings.allocate_fault,
        )
        policy = self.settings.preferred_policy
        make = _CLASSES[policy is not PreferredPolicy.NONE, self.settings.pre_start]
        self._plugin = make(self.settings, framework.recheck)
        self._call_log = CallLog(self.settings.calls_kept)
        # SimulationSettings has checked the name.
        namespace, _, name = self.settings.resource_name.partition("/")
        self.manager = Manager(
            StaticLister(namespace, {name: self._plugin}),
            directory,
            framework,
            socket_name=f"{self.settings.plugin_name}.sock",
            _service=partial(
                SimulatedService, call_log=self._call_log, faults=self.faults, policy=policy
            ),
        )

    @property
    def devices(self) -> tuple[Device, ...]:
        """Current devices, in the order in which they were added."""
        return tuple(self._plugin.table)

    @property
    def calls(self) -> tuple[RpcCall, ...]:
        """Latest RPCs of the kubelet, oldest first.

        At most ``settings.calls_kept`` RPCs with at most 64 MiB of requests are stored.
        """
        return self._call_log.calls

    @property
    def calls_dropped(self) -> int:
        """Number of earlier RPCs that :attr:`calls` no longer contains."""
        return self._call_log.dropped

    def set_health(self, device_id: str, health: str | bool) -> None:
        """Set a device's health: ``Healthy`` or True, ``Unhealthy`` or False.

        Raises UnknownDevice for an unknown ID, and ValueError for any other health.
        """
        # `Device` also accepts both forms, but the table needs a bool.
        if isinstance(health, str):
            if health not in HEALTH:
                raise ValueError(f"unknown health {health!r}: use Healthy or Unhealthy")
            health = HEALTH[health]
        # The control file can override this; the published list shows the result of both.
        self._plugin.table.set_health(device_id, health)
        self._publish()

    def add(
        self, device_id: str, *, healthy: bool = True, numa: tuple[int, ...] | None = None
    ) -> None:
        """Add a device. If a device already has this ID, the new device replaces it.

        If ``numa`` is None, the device gets a NUMA node from ``SimulationSettings.numa``. The nodes
        in that setting are assigned to the devices in turn.
        """
        self._plugin.table.put(device_id, healthy=healthy, numa=numa)
        self._publish()

    def remove(self, device_id: str) -> None:
        """Remove a device. Raises UnknownDevice for an unknown ID."""
        self._plugin.table.remove(device_id)
        self._publish()

    def wait_for_call(self, rpc: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Wait until ``rpc`` has been called ``count`` times since the start.

        Return False after ``timeout`` seconds.
        """
        return self._call_log.wait_for(rpc, count, timeout)

    def _publish(self) -> None:
        self._plugin.update(self._plugin.table)
