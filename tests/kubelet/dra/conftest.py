"""A kubelet with simulated DRA drivers, on a clock that the test turns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from devicemanager import ManualClock, MockKubelet, Settings
from devicemanager.driver.simulated import DriverFaults, SimulatedDriver


class Node:
    """A kubelet, its clock and its drivers."""

    def __init__(self, stack: contextlib.ExitStack, **settings: Any) -> None:
        self.stack = stack
        self.clock = ManualClock(1000.0)
        self.kubelet = stack.enter_context(
            MockKubelet(settings=Settings(durability="process", **settings), clock=self.clock)
        )

    def driver(self, name: str = "gpu.example.com", **options: Any) -> SimulatedDriver:
        """Start a driver, and wait until the kubelet is connected to it."""
        driver = SimulatedDriver(name, kubelet=self.kubelet, **options)
        self.stack.callback(self._stop, driver)
        self.start(driver)
        return driver

    def start(self, driver: SimulatedDriver) -> None:
        """Start a driver that was stopped, and wait until the kubelet is connected to it."""
        mark = self.kubelet.mark()
        driver.start()
        endpoint = str(driver.sockets.service_socket)
        self.kubelet.wait_for_event("driver-connected", text=endpoint, since=mark)

    def restart(self, *drivers: SimulatedDriver, reboot: bool = False) -> None:
        """Restart the kubelet, and wait until it is connected to these drivers again."""
        mark = self.kubelet.mark()
        (self.kubelet.reboot if reboot else self.kubelet.restart)()
        for driver in drivers:
            endpoint = str(driver.sockets.service_socket)
            self.kubelet.wait_for_event("driver-connected", text=endpoint, since=mark)

    @staticmethod
    def _stop(driver: SimulatedDriver) -> None:
        driver.faults = DriverFaults()
        driver.stop()


@pytest.fixture
def nodes() -> Iterator[Any]:
    """Function that starts a node with settings."""
    with contextlib.ExitStack() as stack:
        yield lambda **settings: Node(stack, **settings)


@pytest.fixture
def node(nodes: Any) -> Node:
    """Node with the default settings."""
    made: Node = nodes()
    return made
