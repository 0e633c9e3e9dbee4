"""Base class for the authors of DRA drivers."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TypeAlias

from devicemanager.driver.values import (
    Claim,
    Device,
    DeviceHealth,
    DriverResources,
    PreparedDevice,
)

__all__ = ["Driver", "Resources", "offers_health"]

_log = logging.getLogger(__name__)

Resources: TypeAlias = DriverResources | Iterable[Device | str]
"""Type of the devices that a driver publishes: pools of devices (``DriverResources``), or only
devices or device names. Devices without a pool form one pool with the node's name."""


class Driver(ABC):
    """Base class for a DRA driver. Override ``resources`` and ``prepare``.

    This package (the *framework*) calls the methods. It serializes ``prepare`` and ``unprepare``,
    even across the two processes of a rolling update. All other methods can run concurrently with
    these two.
    """

    health_interval: float = 10.0
    """Seconds between two calls of ``health``."""
    taint_unhealthy: bool = True
    """True to add the taint ``<driver>/unhealthy:NoSchedule`` to devices that ``health`` reports as
    Unhealthy, so that no new claim gets them."""

    @abstractmethod
    def resources(self) -> Resources | Iterator[Resources]:
        """Return the devices of this node, or yield all devices again after each change.

        The framework calls this method once. The method has its own thread, so it may block
        forever. If the method raises, the framework calls it again later. Until then, the published
        devices do not change.
        """

    @abstractmethod
    def prepare(self, claim: Claim) -> Iterable[PreparedDevice]:
        """Prepare the devices of a claim. Return them with the settings of their containers.

        For a repeated request, the framework responds with the stored result. It calls this method
        again for a claim only if the method failed, the process ended before the result was stored,
        or the node was rebooted. If the method raises, the pod waits and the kubelet retries. Raise
        ClaimError to choose the error message that the kubelet receives.
        """

    def unprepare(self, claim: Claim) -> None:  # noqa: B027 - a hook that many drivers leave empty
        """Undo ``prepare``. The framework calls this method even after ``prepare`` has failed.

        The ResourceClaim may already be deleted.

        If this method raises, the pod stays in Terminating, and the kubelet retries.
        """

    def health(self) -> Iterable[DeviceHealth]:
        """Return the health of all devices. Called every ``health_interval`` seconds.

        If this method raises or hangs, no new report is sent. The health of each device then
        becomes Unknown when its timeout has passed. A driver that does not override this method
        offers no health service.
        """
        raise NotImplementedError

    def handle_error(self, error: Exception, what: str) -> None:
        """Handle an error of the background task ``what``. By default, log the error.

        The framework then retries the task. Override this method to end the process after an error
        that retries cannot fix. For example, the API server may reject the devices.
        """
        _log.error("%s: %s: %s", what, type(error).__name__, error)

    def publish_resources(self, resources: Resources) -> None:
        """Replace the published devices. Thread-safe.

        The new devices are valid until the driver's method ``resources`` yields again.
        """
        self._resources.publish(resources)

    # Not set in `__init__`: authors override `__init__`, and often do not call `super().__init__`.
    @cached_property
    def stopping(self) -> threading.Event:
        """Event that is set when the driver stops. Wait for it instead of sleeping."""
        return threading.Event()

    @cached_property
    def _resources(self) -> NewestResources:
        return NewestResources()


class NewestResources:
    """The newest devices from a driver's ``resources`` or ``publish_resources``. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: Resources | None = None
        self._changed: Callable[[], None] = lambda: None

    def call_on_change(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each change from now on."""
        self._changed = changed

    @property
    def newest(self) -> Resources | None:
        """The newest devices; None if the driver has not provided any devices yet."""
        return self._newest

    def publish(self, resources: Resources) -> None:
        if not isinstance(resources, DriverResources):
            # Convert iterators: they can be read only once.
            resources = tuple(resources)
        with self._lock:
            self._newest = resources
        self._changed()


def offers_health(driver: Driver) -> bool:
    """True if the driver overrides ``health``."""
    return type(driver).health is not Driver.health
