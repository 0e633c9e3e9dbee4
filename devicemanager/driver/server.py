"""Run a driver in this process: sockets, slices, health and claims."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from devicemanager.driver.api import ResourceApi
from devicemanager.driver.author import Driver, Resources, offers_health
from devicemanager.driver.boot import boot_id
from devicemanager.driver.cdi import CdiFiles
from devicemanager.driver.checkpoint import CHECKPOINT_FILE, Checkpoint
from devicemanager.driver.claims import ClaimService
from devicemanager.driver.errors import ClaimError
from devicemanager.driver.health import HealthReports
from devicemanager.driver.keeping import SocketKeeper
from devicemanager.driver.lock import LOCK_FILE, CallLock
from devicemanager.driver.metadata import MetadataFiles
from devicemanager.driver.paths import DriverPaths, check_driver_name
from devicemanager.driver.publishing import SlicePublisher
from devicemanager.driver.services import CLAIM_SERVICES, HEALTH_SERVICES, add_services
from devicemanager.driver.settings import DriverSettings, driver_paths
from devicemanager.driver.slices import pools_of
from devicemanager.driver.sockets import DriverSockets
from devicemanager.driver.values import AllocatedDevice, Attribute, DriverResources
from devicemanager.io.retry import retry
from devicemanager.plugin.common.consume import consume

__all__ = ["DriverServer"]

_BACKOFF, _LONGEST_BACKOFF = 1.0, 30.0


class DriverServer:
    """A driver that is served from ``start`` to ``stop``. A context manager. Thread-safe.

    A ``Driver`` object belongs to one server. A stopped server cannot be started again.
    """

    def __init__(self, driver: Driver, name: str, settings: DriverSettings | None = None) -> None:
        """Create the server; ``start`` starts it.

        Raises ConfigurationError for an invalid name, SocketPathError if the path of a socket is
        too long, and ClusterError if no API server is configured.
        """
        from devicemanager.client.api import ApiClient
        from devicemanager.client.credentials import load

        self.name = check_driver_name(name)
        self.settings = settings = (settings or DriverSettings()).for_driver(name)
        self._driver = driver
        # Create them on one thread: they are cached properties of the author's object.
        self._stopping, self._resources = driver.stopping, driver._resources
        self.paths = driver_paths(settings, name)
        self._client = ApiClient(load(settings.kubeconfig))
        self._api = ResourceApi(self._client, name, settings.node_name)
        self._slices = SlicePublisher(
            self._api,
            name,
            settings.node_name,
            self._resources,
            self._stopping,
            self._report,
            # A function, because ``_health`` does not exist yet: it needs ``_slices``.
            lambda: self._health.unhealthy if driver.taint_unhealthy else (),
        )
        self._health = HealthReports(
            driver.health,
            driver.health_interval,
            settings.node_name,
            self._stopping,
            self._report,
            self._slices.notify,
        )
        self._claims = self._claim_service(settings, self.paths)
        self.sockets = self._driver_sockets()
        self._keeper = SocketKeeper(self.sockets, self.paths.registrar_dir, self._stopping)

    def _claim_service(self, settings: DriverSettings, paths: DriverPaths) -> ClaimService:
        metadata = MetadataFiles(self.name, paths.data_dir, paths.cdi_dir)
        return ClaimService(
            self.name,
            self._driver,
            self._api.claim,
            CallLock(paths.data_dir / LOCK_FILE),
            Checkpoint(paths.data_dir / CHECKPOINT_FILE, self._report),
            CdiFiles(paths.cdi_dir, self.name),
            boot=boot_id(),
            metadata=metadata if settings.metadata else None,
            published=self._published_attributes,
            watch_health=self._health.watch,
        )

    def _driver_sockets(self) -> DriverSockets:
        health = HEALTH_SERVICES if offers_health(self._driver) else ()
        services = (*CLAIM_SERVICES, *health)
        return DriverSockets(
            self.name,
            self.paths,
            services,
            lambda server: add_services(self._claims, services, server),
        )

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Start serving on background threads. Raises OSError if the data directory cannot be
        created."""
        self.paths.data_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._keeper.start()
        self._slices.start()
        # Both can block for a long time, and the driver must serve stored claims even while the API
        # server is unavailable.
        for target in (self._consume, self._reclaim):
            threading.Thread(target=target, name=f"driver {self.name}", daemon=True).start()
        if offers_health(self._driver):
            self._health.start()
        return self

    def stop(self) -> None:
        """Stop serving and remove the sockets. Idempotent.

        The ResourceSlices stay on the API server. The kubelet deletes them if the driver does not
        register again.
        """
        self._stopping.set()
        # This ends the retries of requests, which otherwise take up to 20 s.
        self._client.close()
        self._health.wake()
        self._slices.notify()
        self._keeper.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_registered(self, timeout: float = 10.0) -> bool:
        """Wait until the kubelet has registered the driver. Return False after ``timeout``
        seconds."""
        return self.sockets.wait_registered(timeout)

    def wait_published(self, timeout: float = 10.0) -> bool:
        """Wait until the newest resources are published. Return False after ``timeout``
        seconds."""
        return self._slices.wait_published(timeout)

    @property
    def registration_status(self) -> tuple[bool, str] | None:
        """The kubelet's last registration status, as a pair: True if registered, and the error
        text. None before the first status.
        """
        return self.sockets.statuses[-1] if self.sockets.statuses else None

    # -- the author's methods --------------------------------------------------------

    def _report(self, error: Exception, what: str) -> None:
        self._driver.handle_error(error, what)

    def _consume(self) -> None:
        name = f"{self.name}: resources()"
        consume(name, self._produce, self._publish, self._stopping, _BACKOFF)

    def _produce(self) -> Iterable[Resources] | Iterator[Iterable[Resources]]:
        # `consume` expects lists, so each value becomes a list of one value.
        produced = self._driver.resources()
        if isinstance(produced, Iterator):
            return ([each] for each in produced)
        return [produced]

    def _publish(self, values: Iterable[Resources]) -> None:
        for value in values:
            # Raise ValueError here: then it counts as an error of the author's method.
            pools = dict(pools_of(value, self.settings.node_name))
            self._resources.publish(DriverResources(pools))

    def _reclaim(self) -> None:
        # Raised only when the driver stops.
        with contextlib.suppress(ClaimError):
            retry(
                self._claims.reclaim,
                ClaimError,
                sleep=self._stopping.wait,
                first_wait=_BACKOFF,
                longest_wait=_LONGEST_BACKOFF,
                stopping=self._stopping.is_set,
                report=lambda error, _: self._report(error, "unpreparing deleted claims"),
            )

    def _published_attributes(self, device: AllocatedDevice) -> Mapping[str, Attribute] | None:
        """Return the attributes of a published device; None for an unknown device."""
        resources = self._resources.newest
        # A call can come before the author's method has returned for the first time.
        if resources is None:
            return {}
        pool = pools_of(resources, self.settings.node_name).get(device.pool)
        found = (each for each in pool.devices if each.name == device.device) if pool else ()
        return next((each.attributes for each in found), None)
