"""Differences between Kubernetes versions of the allocator, such as feature gates and quirks.

A quirk is a bug of Kubernetes' allocator. Each version has the quirks of its last patch release.
The newest version, which is the default, has no quirks.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import attrs


class Quirk(enum.Enum):
    """Known bug of Kubernetes' allocator. The value is the name that users see."""

    STALE_LIST_MATCH = "stale-list-match"
    """For matchAttribute with lists, a device that the search tries excludes the values that it
    lacks. These values stay excluded after the search drops the device (k/k#140300)."""
    KEPT_RESERVATIONS = "kept-reservations"
    """A device that the search rejects keeps its counters reserved. So does a shareable device that
    the search picks and then puts back (k/k#140431, k/k#140436)."""
    SHARES_CHARGED_AGAIN = "shares-charged-again"
    """If the allocated shares of a device consume no capacity, the next share consumes the device's
    counters a second time (k/k#140433)."""
    COUNTERS_BY_POOL_NAME = "counters-by-pool-name"
    """Pools with the same name share their counters, even if their drivers differ (k/k#140434)."""
    SHARES_WITHOUT_COUNTERS = "shares-without-counters"
    """Allocated shares do not consume counters (k/k#139034)."""
    ALL_WITH_COUNTERS = "all-with-counters"
    """The allocator crashes if a request with ``allocationMode: All`` selects a device that
    consumes counters (k/k#138885)."""
    DISTINCT_PER_REQUEST = "distinct-per-request"
    """distinctAttribute compares a new device only with the latest device of each request, not with
    all devices (k/k#140438)."""
    ALL_SKIPS_FULL = "all-skips-full"
    """A request with ``allocationMode: All`` skips shareable devices that have too little free
    capacity, instead of failing."""
    CONFIG_PER_REQUEST = "config-per-request"
    """The allocation result has a copy of a claim's config for each request that the config names.
    Each copy names all these requests."""


class Feature(enum.Enum):
    """Feature gate of the allocator. Its value is the gate's name."""

    ADMIN_ACCESS = "DRAAdminAccess"
    BINDING_CONDITIONS = "DRADeviceBindingConditions"
    COMPATIBILITY_GROUPS = "DRADeviceCompatibilityGroups"
    CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DERIVED_ATTRIBUTES = "DRADerivedAttributes"
    FRACTIONAL_RANGE = "DRAFractionalCapacityRange"
    LIST_ATTRIBUTES = "DRAListTypeAttributes"
    NODE_OPERATIONS = "DRAOptionalNodeOperations"
    PARTITIONABLE = "DRAPartitionableDevices"
    PRIORITIZED_LIST = "DRAPrioritizedList"
    TAINTS = "DRADeviceTaints"


_STABLE = frozenset(
    {Feature.ADMIN_ACCESS, Feature.PARTITIONABLE, Feature.PRIORITIZED_LIST, Feature.TAINTS}
)
"""Gates that the variant ``stable`` supports. With any other gate, upstream uses a newer
variant."""

_DEFAULT_FEATURES = _STABLE | {Feature.BINDING_CONDITIONS, Feature.CONSUMABLE_CAPACITY}


@attrs.frozen
class Profile:
    """Version of the allocator with its enabled feature gates and quirks."""

    version: str
    features: frozenset[Feature]
    quirks: frozenset[Quirk] = frozenset()
    error_names_device: bool = True
    """True if the error of a CEL selector names the device, and includes a hint if the selector
    reads a missing key (since 1.37)."""
    limit_per_request: bool = True
    """True if the error for too many devices names the request (since 1.37)."""
    keeps_step_format: bool = True
    """True if rounded amounts have the quantity format of the policy's ``step`` (since 1.37). False
    if they have the format BinarySI."""
    knows_alpha_fields: bool = True
    """True if the allocator reads derived attributes and compatibility groups (since 1.37). False
    if it ignores both.

    If True, disabled feature gates have an effect. Without DRADerivedAttributes, requests with
    derived attributes are rejected. Without DRADeviceCompatibilityGroups, slices with compatibility
    groups are not used.
    """
    counters_of_any_node: bool = False
    """True if every node uses all slices with counters, even those for other nodes (1.36)."""

    pools_of_node_only: bool = False
    """True if pools follow the rules of 1.34 and earlier.

    Only the node's slices count for a pool. One slice can have counters and devices. The devices of
    an incomplete pool are used.
    """
    every_taint_counts: bool = False
    """True if a request must tolerate taints with any effect (1.34 and earlier)."""
    writes_tolerations: bool = True
    """True if results contain the tolerations of their request (since 1.36)."""
    known_features: frozenset[Feature] = frozenset(Feature)
    """Gates that can be enabled. For 1.34, these are only the gates of the variant ``stable``."""

    @classmethod
    def of(
        cls,
        version: str | None = None,
        *,
        features: Iterable[str] | None = None,
        quirks: Iterable[str] | None = None,
    ) -> Profile:
        """Return the profile of a version; None means the newest.

        ``features``: names of the enabled gates; None means the version's defaults. ``quirks``:
        names of the enabled quirks; None means the version's quirks. Raises ValueError for an
        unknown version or name.
        """
        found = _BY_VERSION.get(version or VERSIONS[-1])
        if found is None:
            raise ValueError(f"unknown version {version!r}: use one of {', '.join(VERSIONS)}")
        if features is not None:
            found = attrs.evolve(found, features=frozenset(map(_feature, features)))
        if unknown := sorted(each.value for each in found.features - found.known_features):
            known = ", ".join(sorted(each.value for each in found.known_features))
            raise ValueError(
                f"feature gates not supported in {found.version}: {', '.join(unknown)}: use {known}"
            )
        if quirks is not None:
            found = attrs.evolve(found, quirks=frozenset(map(_quirk, quirks)))
        return found

    def has(self, feature: Feature) -> bool:
        """True if the feature gate is enabled."""
        return feature in self.features

    @property
    def is_stable(self) -> bool:
        """True if upstream uses its variant ``stable``, which lacks newer features."""
        return self.features <= _STABLE


_BY_VERSION = {
    each.version: each
    for each in (
        Profile(
            "1.34",
            # These features are beta in 1.34. The others are alpha, or come in later versions.
            frozenset({Feature.ADMIN_ACCESS, Feature.PRIORITIZED_LIST}),
            frozenset({Quirk.KEPT_RESERVATIONS, Quirk.CONFIG_PER_REQUEST}),
            error_names_device=False,
            limit_per_request=False,
            keeps_step_format=False,
            knows_alpha_fields=False,
            pools_of_node_only=True,
            every_taint_counts=True,
            writes_tolerations=False,
            known_features=_STABLE,
        ),
        Profile(
            "1.36",
            _DEFAULT_FEATURES,
            frozenset(
                {
                    # The other quirks are not in 1.36.3.
                    Quirk.STALE_LIST_MATCH,
                    Quirk.SHARES_CHARGED_AGAIN,
                    Quirk.COUNTERS_BY_POOL_NAME,
                    Quirk.DISTINCT_PER_REQUEST,
                    Quirk.ALL_SKIPS_FULL,
                    Quirk.CONFIG_PER_REQUEST,
                }
            ),
            error_names_device=False,
            limit_per_request=False,
            keeps_step_format=False,
            knows_alpha_fields=False,
            counters_of_any_node=True,
        ),
        Profile("1.37", _DEFAULT_FEATURES | {Feature.FRACTIONAL_RANGE}),
    )
}
VERSIONS = tuple(_BY_VERSION)
"""Supported versions, oldest first."""


def _feature(name: str) -> Feature:
    try:
        return Feature(name)
    except ValueError:
        known = ", ".join(sorted(each.value for each in Feature))
        raise ValueError(f"unknown feature gate {name!r}: use one of {known}") from None


def _quirk(name: str) -> Quirk:
    try:
        return Quirk(name)
    except ValueError:
        known = ", ".join(sorted(each.value for each in Quirk))
        raise ValueError(f"unknown quirk {name!r}: use one of {known}") from None
