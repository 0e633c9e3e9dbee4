"""The registered DRA drivers with their instances, and the choice of the instance to call.

Follows ``DRAPluginManager`` (pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, v1.36).
"""

# A driver's ResourceSlices are deleted ("wiped") if none of its instances is usable for 30 seconds
# after it lost an instance. An instance that never connected is not usable.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import attrs

from devicemanager.core.dra import messages
from devicemanager.core.dra.errors import DraError, DriverRejected
from devicemanager.core.dra.model import DriverName, InstanceId
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.messages import go_printed, go_quoted
from devicemanager.core.versions.table import WipeRule

WIPE_DELAY = 30.0
"""Seconds without a usable instance after which the kubelet deletes a driver's ResourceSlices.
Since v1.34, an instance is usable while it is connected; in v1.33, while it is registered. Before
v1.33, the kubelet does not wait."""

_SERVICE_OF = {
    "v1.DRAPlugin": "v1",
    "v1beta1.DRAPlugin": "v1beta1",
    "v1alpha3.NodeService": "v1alpha4",
}


@attrs.define(eq=False)
class Instance:
    """A registered instance of a DRA driver. Its driver and endpoint identify it."""

    id: InstanceId
    driver: DriverName
    endpoint: str
    """Absolute path of the service socket."""
    service: str
    """Service version that the kubelet calls: ``v1``, ``v1beta1`` or ``v1alpha4``."""
    health_service: str | None
    """Health service version that the kubelet calls: ``v1`` or ``v1alpha1``; None for no health
    service."""
    connected: bool = False


class Drivers:
    """All registered instances of DRA drivers. Not thread-safe: the caller holds the lock. Times
    are in seconds."""

    def __init__(self, rules: DraRules) -> None:
        self._rules = rules
        self._instances: dict[DriverName, list[Instance]] = {}
        self._ids = count(1)
        self._wipe_at: dict[DriverName, float] = {}

    def __iter__(self) -> Iterator[Instance]:
        """Iterate over all instances, sorted by driver. Each driver's oldest instance is first."""
        return (each for name in sorted(self._instances) for each in self._instances[name])

    def validate(self, driver: DriverName, endpoint: str, services: Sequence[str]) -> str:
        """Return the service version to call: ``v1``, ``v1beta1`` or ``v1alpha4``.

        Raises DriverRejected, with stage ``validate``, if the kubelet supports none of
        ``services``. Before v1.34, only an empty list is rejected.
        """
        return self._service(driver, endpoint, services, "validate")

    def register(
        self, driver: DriverName, endpoint: str, services: Sequence[str], now: float
    ) -> Instance:
        """Register an instance and return it; the caller then connects to it.

        Raises DriverRejected, with stage ``register``, for services that ``validate`` rejects.
        Since v1.33, an endpoint that the driver has already registered is rejected, too. Before
        v1.33, the new instance replaces the driver's old instance.
        """
        service = self._service(driver, endpoint, services, "register")
        instances = self._instances.setdefault(driver, [])
        if self._rules.behaviour.dra_several_instances:
            if any(each.endpoint == endpoint for each in instances):
                text = messages.ENDPOINT_TAKEN.format(endpoint=endpoint, driver=driver)
                raise DriverRejected(text, "register")
        else:
            instances.clear()
        instance = Instance(
            InstanceId(next(self._ids)),
            driver,
            endpoint,
            service,
            self._health_service(services),
        )
        instances.append(instance)
        # The instance is not connected yet. Since v1.34, this plans a deletion if no other instance
        # is connected. The deletion happens if the new instance never connects.
        self._update_wipe(driver, now)
        return instance

    def deregister(self, driver: DriverName, endpoint: str, now: float) -> Instance | None:
        """Remove an instance and return it; None if the instance is not registered."""
        instances = self._instances.get(driver, [])
        # Before v1.33, the kubelet compares only the driver's name. The end of an old instance then
        # removes the new one.
        by_name = not self._rules.behaviour.dra_several_instances
        for instance in instances:
            if by_name or instance.endpoint == endpoint:
                instances.remove(instance)
                if not instances:
                    del self._instances[driver]
                self._update_wipe(driver, now)
                return instance
        return None

    def set_connected(self, instance: InstanceId, connected: bool, now: float) -> None:
        """Record that the connection to an instance was established or lost."""
        for each in self:
            if each.id == instance:
                each.connected = connected
                self._update_wipe(each.driver, now)

    def get(self, instance: InstanceId) -> Instance | None:
        """Return the instance; None if it is no longer registered."""
        return next((each for each in self if each.id == instance), None)

    def lookup(self, driver: DriverName) -> Instance:
        """Return the instance to call: the newest connected instance or, if no instance is
        connected, the newest instance.

        Raises DraError if no instance is registered.
        """
        if not driver:
            raise DraError(self._rules.wording.no_driver_name)
        instances = self._instances.get(driver)
        if not instances:
            raise DraError(self._rules.wording.no_driver.format(driver=driver))
        connected = [each for each in instances if each.connected]
        return (connected or instances)[-1]

    # Wiping of ResourceSlices.

    def next_wipe(self) -> float | None:
        """Return the time of the next deletion of ResourceSlices; None if none is planned."""
        return min(self._wipe_at.values(), default=None)

    def due_wipes(self, now: float) -> list[DriverName]:
        """Return the drivers whose ResourceSlices must be deleted now. Each planned deletion is
        returned only once."""
        due = sorted(name for name, at in self._wipe_at.items() if at <= now)
        for name in due:
            del self._wipe_at[name]
        return due

    def _update_wipe(self, driver: DriverName, now: float) -> None:
        rule = self._rules.behaviour.dra_wipe
        instances = self._instances.get(driver, [])
        # Before 1.34, a registered instance counts as usable.
        connected = rule is not WipeRule.DISCONNECTED or any(each.connected for each in instances)
        if instances and connected:
            self._wipe_at.pop(driver, None)
        else:
            delay = 0.0 if rule is WipeRule.AT_ONCE else WIPE_DELAY
            # The delay counts from the first loss. Later changes, such as the deregistration of
            # a broken instance, do not start it again.
            self._wipe_at.setdefault(driver, now + delay)

    # Services.

    def _service(
        self, driver: DriverName, endpoint: str, services: Sequence[str], stage: str
    ) -> str:
        known = self._rules.behaviour.dra_services
        if not self._rules.behaviour.dra_plugin_chooses:
            if not services:
                error = messages.NO_SERVICES
                text = messages.INVALID_SERVICES_BEFORE.format(driver=driver, error=error)
                raise DriverRejected(text, stage)
            # These kubelets reject only an empty list. If they know none of the services, they call
            # the oldest one.
            chosen = next((each for each in known if each in services), "v1alpha3.NodeService")
            return _SERVICE_OF[chosen]
        for each in services:
            if each in known:
                return _SERVICE_OF[each]
        if services:
            error = messages.NO_COMMON_SERVICE.format(
                offered=go_printed([*map(go_quoted, services)]),
                known=go_printed([*map(go_quoted, known)]),
            )
        else:
            error = messages.NO_SERVICES
        text = messages.INVALID_SERVICES.format(driver=driver, endpoint=endpoint, error=error)
        raise DriverRejected(text, stage)

    def _health_service(self, services: Sequence[str]) -> str | None:
        if not self._rules.behaviour.dra_health:
            return None
        known = self._rules.behaviour.dra_health_services
        # Before v1.37, the kubelet calls v1alpha1 even if the driver does not list it.
        if not known:
            return "v1alpha1"
        chosen = next((each for each in known if each in services), None)
        return chosen and chosen.partition(".")[0]


def wipe_selector(node: str, driver: DriverName | None = None) -> str:
    """Return the field selector with which the kubelet deletes ResourceSlices of its node.

    The selector matches the slices of ``driver`` on the node. If ``driver`` is None, it matches all
    slices of the node: the kubelet deletes all of them at each start.
    """
    of_driver = f"spec.driver={driver}," if driver is not None else ""
    return f"{of_driver}spec.nodeName={node}"
