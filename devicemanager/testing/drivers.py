"""Factory of the fixture ``simulated_driver``."""

from __future__ import annotations

from typing import Any

from devicemanager.driver.simulated import DriverFaults, SimulatedDriver
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing.factories import Factory

__all__ = ["SimulatedDriverFactory"]


class SimulatedDriverFactory(Factory):
    """Factory of DRA drivers with virtual devices; a context manager that stops the drivers."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """Create a factory; ``kubelet`` is the default kubelet of its drivers."""
        super().__init__()
        self._kubelet = kubelet

    def __call__(
        self,
        name: str = "gpu.example.com",
        devices: int = 8,
        *,
        kubelet: MockKubelet | None = None,
        timeout: float | None = 10.0,
        **options: Any,
    ) -> SimulatedDriver:
        """Create a driver, and wait until the kubelet is connected to it.

        The devices of ``gpu.example.com`` are ``gpu-0``, ``gpu-1`` and so on. ``options`` are
        further arguments of SimulatedDriver, such as ``uid="2"`` for a second instance. With
        ``timeout=None``, do not wait, for example for a driver that must fail. Raises WaitTimeout
        after ``timeout`` seconds.
        """
        kubelet = kubelet or self._kubelet
        driver = SimulatedDriver(name, devices, kubelet, **options)
        # Before the start, so that the wait below cannot miss the event.
        mark = kubelet.mark()
        # Before the start, so that the driver is also stopped if the start or the wait fails.
        self._stack.callback(_stop, driver)
        driver.start()
        if timeout is not None:
            endpoint = str(driver.sockets.service_socket)
            kubelet.wait_for_event("driver-connected", text=endpoint, since=mark, timeout=timeout)
        return driver


def _stop(driver: SimulatedDriver) -> None:
    # Without faults, the stop does not wait.
    driver.faults = DriverFaults()
    driver.stop()
