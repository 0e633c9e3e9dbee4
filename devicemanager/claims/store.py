"""Store of pools, classes, claims and configs, with the rules for replacing them."""

# Every method validates first and then applies, so a rejected object does not replace the old
# one. With ``checked``, the caller has validated the object (``reading.check``).

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.snapshot import Offer, config_of
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.convert import Converter
from devicemanager.claims.v1alpha1.reading import check
from devicemanager.claims.v1alpha1.resolve import Constraints


class ObjectStore:
    """Store of pools, classes, claims and config objects by name. Not thread-safe.

    Methods that store an object validate it first, unless ``checked`` is True. Pass True if the
    object is already validated.
    """

    def __init__(self) -> None:
        self._pools: dict[str, api.DevicePool] = {}
        self._classes: dict[str, api.DeviceClass] = {}
        self._claims: dict[str, api.DeviceClaim] = {}
        self._configs: dict[api.ConfigReference, api.ConfigObject] = {}
        # Grows with every change that can affect a search for devices, except changes of claims.
        self.version = 0
        self._converter = Converter()
        self._by_node: dict[str, Offer] = {}

    @property
    def pools(self) -> Mapping[str, api.DevicePool]:
        return MappingProxyType(self._pools)

    @property
    def classes(self) -> Mapping[str, api.DeviceClass]:
        return MappingProxyType(self._classes)

    @property
    def configs(self) -> Mapping[api.ConfigReference, api.ConfigObject]:
        return MappingProxyType(self._configs)

    @property
    def claims(self) -> Mapping[str, api.DeviceClaim]:
        """Claims by ``namespace/name``, without a status."""
        return MappingProxyType(self._claims)

    @property
    def is_empty(self) -> bool:
        """True if there are no pools, classes or claims."""
        return not (self._pools or self._classes or self._claims)

    def constraints(self, node: str) -> Constraints:
        """Return the evaluator of constraints on the devices that a node can use.

        The result is the same object until a pool changes, so that claims share its cached results.
        """
        return self.offer(node).constraints

    def offer(self, node: str) -> Offer:
        """Return the pools for the search on a node. The result is the same object until a pool
        changes."""
        found = self._by_node.get(node)
        if found is None:
            found = self._by_node[node] = Offer(self._pools, node, self._converter)
        return found

    def publish(self, pool: api.DevicePool, *, checked: bool = False) -> None:
        """Create or replace a pool.

        Raises InvalidObject for an invalid pool, and ClaimsError if the pool exists and belongs
        to another driver.
        """
        if not checked:
            check(pool)
        old = self._pools.get(pool.name)
        if old is not None and old.driver != pool.driver:
            raise ClaimsError(
                f'DevicePool "{pool.name}": spec.driver: only "{old.driver}", which published the'
                f' pool, can replace it, not "{pool.driver}"'
            )
        self._pools[pool.name] = pool
        # The status of a pool does not affect allocation: a driver that updates its number of
        # available devices must not cause all constraints to be evaluated again.
        if old is None or not _offer_the_same(old, pool):
            # A running search keeps its offer; the new version shows that its result is out of
            # date.
            self._by_node.clear()
            self.version += 1

    def withdraw_pool(self, name: str) -> bool:
        """Remove a pool. Return False if it does not exist. Allocated claims keep its devices."""
        self._converter.forget(name)
        self._by_node.clear()
        self.version += 1
        return self._pools.pop(name, None) is not None

    def define(self, device_class: api.DeviceClass, *, checked: bool = False) -> None:
        """Create or replace a device class. Raises InvalidObject for an invalid class."""
        if not checked:
            check(device_class)
        # An unchanged class must not make the result of a running search out of date.
        if self._classes.get(device_class.name) != device_class:
            self.version += 1
        self._classes[device_class.name] = device_class

    def withdraw_class(self, name: str) -> bool:
        """Remove a device class. Return False if it does not exist.

        Allocated claims are not affected.
        """
        self.version += 1
        return self._classes.pop(name, None) is not None

    def submit(self, claim: api.DeviceClaim, *, checked: bool = False) -> None:
        """Create or replace a claim; ignore its status, which only the allocator writes.

        Raises InvalidObject for an invalid claim.
        """
        claim = attrs.evolve(claim, status=api.ClaimStatus())
        if not checked:
            check(claim)
        self._claims[claim.id] = claim

    def withdraw_claim(self, claim: str) -> bool:
        """Remove a claim by ``namespace/name``. Return False if it does not exist."""
        return self._claims.pop(claim, None) is not None

    def configure(self, config: api.ConfigObject, *, checked: bool = False) -> None:
        """Create or replace a config object, which classes and claims can refer to."""
        if not checked:
            check(config)
        if self._configs.get(config.reference) != config:
            self.version += 1
        self._configs[config.reference] = config

    def withdraw_config(self, reference: api.ConfigReference) -> bool:
        """Remove a config object. Return False if it does not exist."""
        self.version += 1
        return self._configs.pop(reference, None) is not None

    def config(self, reference: api.ConfigReference) -> api.ConfigObject:
        """Return the config object of a reference. Raises ClaimsError if it does not exist."""
        return config_of(self._configs, reference)


def _offer_the_same(one: api.DevicePool, other: api.DevicePool) -> bool:
    return (one.node_name, one.attributes, one.resources, one.devices) == (
        other.node_name,
        other.attributes,
        other.resources,
        other.devices,
    )
