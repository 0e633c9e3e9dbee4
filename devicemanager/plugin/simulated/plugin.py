"""The simulated plugin, for use in a process of one's own or inside a test."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from devicemanager.plugin.author import DeviceLists, Plugin, StaticLister
from devicemanager.plugin.errors import DeviceRejected
from devicemanager.plugin.manager import Manager
from devicemanager.plugin.resource import ResourceStatus
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.simulated.control import ControlFile
from devicemanager.plugin.simulated.faults import Faults
from devicemanager.plugin.simulated.recording import Recorder, RecordingService, RpcCall
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
        # Known already, unless a file says more: nothing has to wait for devices() then.
        if not self._settings.control_file:
            self.update(self.table)

    def devices(self) -> DeviceLists:
        if not self._settings.control_file:
            return self.table
        return self._controlled(ControlFile(Path(self._settings.control_file), self._control))

    def _controlled(self, control: ControlFile) -> Iterator[DeviceTable]:
        try:
            while not self.stopping.is_set():
                control.look()
                yield self.table
                # File events bring changes at once; this is for hosts that have none.
                self.stopping.wait(self._recheck)
        finally:
            control.close()

    def _control(self, words: Mapping[str, str]) -> None:
        self.table.control(words)
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
        return sorted(available, reverse=policy is PreferredPolicy.REVERSE)


class _PreStarting(_Simulated):
    def pre_start_container(self, device_ids: Sequence[str]) -> None:
        pass


class _PreferringAndPreStarting(_Preferring, _PreStarting):
    pass


# What a plugin overrides is what it offers, so each combination is a class.
_CLASSES: dict[tuple[bool, bool], type[_Simulated]] = {
    (False, False): _Simulated,
    (True, False): _Preferring,
    (False, True): _PreStarting,
    (True, True): _PreferringAndPreStarting,
}


class SimulatedPlugin:
    """Virtual devices of one resource, registered with the kubelet of ``directory``.

    ``start`` serves and goes on in the background, across kubelet restarts too; ``stop``
    unregisters, and cannot be followed by another start. A context manager does both. All
    methods work from any thread.
    """

    def __init__(
        self,
        settings: SimulationSettings | None = None,
        directory: str | os.PathLike[str] | None = None,
        plugin_settings: PluginSettings | None = None,
    ) -> None:
        if settings is not None and not isinstance(settings, SimulationSettings):
            raise TypeError(
                "settings is a SimulationSettings, such as "
                f'SimulationSettings(resource_name="vendor.com/gpu"): not {settings!r}'
            )
        self.settings = settings or SimulationSettings()
        # Nothing here is worth waiting for at the end, a call that hangs on purpose least.
        framework = plugin_settings or PluginSettings(stop_grace=0.5)
        self.faults = Faults(
            delays=dict(self.settings.rpc_delays),
            errors=dict(self.settings.rpc_errors),
            lists=self.settings.list_fault,
            allocate=self.settings.allocate_fault,
        )
        policy = self.settings.preferred_policy
        make = _CLASSES[policy is not PreferredPolicy.NONE, self.settings.pre_start]
        self._plugin = make(self.settings, framework.recheck)
        self._recorder = Recorder(self.settings.calls_kept)
        namespace, _, name = self.settings.resource_name.partition("/")
        self.manager = Manager(
            StaticLister(namespace, {name: self._plugin}),
            directory,
            framework,
            socket_name=f"{self.settings.plugin_name}.sock",
            service=partial(
                RecordingService, recorder=self._recorder, faults=self.faults, policy=policy
            ),
        )

    def start(self) -> Self:
        """Serve. Raises ConfigurationError if the directory is none, or not writable."""
        self.manager.start()
        return self

    def stop(self) -> None:
        """Unregister and remove the socket. Stopping twice does nothing."""
        self.manager.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices as they are now, in the order in which they came."""
        return tuple(self._plugin.table)

    @property
    def calls(self) -> tuple[RpcCall, ...]:
        """The RPCs that the kubelet has made, in order of arrival: the last
        ``settings.calls_kept``, of at most 64 MiB."""
        return self._recorder.calls

    @property
    def calls_dropped(self) -> int:
        """How many RPCs came before :attr:`calls`."""
        return self._recorder.dropped

    @property
    def status(self) -> ResourceStatus | None:
        """State, socket and registrations; None before it has started."""
        return next(iter(self.manager.resources()), None)

    def set_health(self, device_id: str, health: str | bool) -> None:
        """``Healthy`` or ``Unhealthy``, or a bool. UnknownDevice if there is no such device,
        ValueError for another word."""
        if isinstance(health, str):
            if health not in HEALTH:
                raise ValueError(f"health is Healthy or Unhealthy, not {health!r}")
            health = HEALTH[health]
        self._plugin.table.set_health(device_id, health)
        self._publish()

    def add(
        self, device_id: str, *, healthy: bool = True, numa: tuple[int, ...] | None = None
    ) -> None:
        """Plug in a device. Without ``numa`` its node is the next one of the settings."""
        self._plugin.table.put(device_id, healthy=healthy, numa=numa)
        self._publish()

    def remove(self, device_id: str) -> None:
        """Unplug a device. UnknownDevice if there is no such device."""
        self._plugin.table.remove(device_id)
        self._publish()

    def wait_registered(self, timeout: float = 10.0, *, streaming: bool = True) -> bool:
        """Wait until the kubelet has registered it and, if ``streaming``, opened its list."""
        return self.manager.wait_registered(timeout, streaming=streaming)

    def wait_for_call(self, rpc: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Wait until ``rpc`` has been called ``count`` times since the start."""
        return self._recorder.wait_for(rpc, count, timeout)

    def _publish(self) -> None:
        self._plugin.update(self._plugin.table)
