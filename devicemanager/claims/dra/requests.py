"""Translate the requests of claims for the search (``validateDeviceRequest``, v1.37).

In:  the claims to allocate together, the device classes, and the pools that a node can use.
Out: the requests of each claim, as the search reads them (``core.device_order``); or
     AllocationError for a claim that can never be allocated as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.claims.core.compatibility import Groups
from devicemanager.claims.core.device_order import (
    Compared,
    Constraint,
    Distinct,
    Match,
    Option,
    OrderedClaim,
    Values,
)
from devicemanager.claims.core.inventory import Amounts
from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.step_budget import StepBudget
from devicemanager.claims.dra.capacity import (
    Amount,
    Arithmetic,
    CapacityError,
    consumption,
)
from devicemanager.claims.dra.errors import AllocationError
from devicemanager.claims.dra.nodes import InvalidSelector, Node, node_matches
from devicemanager.claims.dra.pools import Offer, Source
from devicemanager.claims.dra.profile import Feature, Profile, Quirk
from devicemanager.claims.dra.quirks import DistinctPerRequest, StaleMatch
from devicemanager.claims.dra.selectors import Selector, Selectors
from devicemanager.claims.dra.slices import Object
from devicemanager.claims.dra.taints import are_tolerated

MAX_DEVICES = 32
"""Maximum number of devices of a claim (``AllocationResultsMaxSize``)."""
_NODE_OPERATIONS = Feature.NODE_OPERATIONS.value
_VALUE_TYPES = {"int": "ints", "bool": "bools", "string": "strings", "version": "versions"}


@attrs.frozen(eq=False)
class RequestOption:
    """A request, or a subrequest of a prioritized list (``firstAvailable``)."""

    name: str
    """Name in results: ``request`` or ``request/subrequest``."""
    spec: Object
    device_class: Object
    option: Option
    candidate: Candidate
    """Functions that check which devices this request can use."""

    @property
    def class_name(self) -> str:
        """Name of the device class."""
        return str(self.device_class["metadata"]["name"])


@attrs.frozen(eq=False)
class ClaimRequests:
    """A claim, the options of each of its requests, and its form for the search (``ordered``)."""

    claim: Object
    requests: tuple[tuple[RequestOption, ...], ...]
    ordered: OrderedClaim


@attrs.frozen(eq=False)
class Call:
    """Inputs of one call of the allocator, except the claims: a node with its devices, the device
    classes, and the counter of search steps.

    The method ``claims`` translates the claims for the search.
    """

    profile: Profile
    node: Node
    offer: Offer
    view: LedgerView
    classes: Mapping[str, Object]
    selectors: Selectors
    steps: StepBudget
    groups: Groups

    def claims(self, claims: Sequence[Object]) -> tuple[ClaimRequests, ...]:
        """Translate claims for the search.

        Raises AllocationError with the error that Kubernetes' allocator reports first.
        """
        return tuple([_Reader(self, claim).read() for claim in claims])

    @property
    def arithmetic(self) -> Arithmetic:
        """Rules for computing consumed capacity; they depend on version and feature gates."""
        return Arithmetic(
            self.profile.has(Feature.FRACTIONAL_RANGE), not self.profile.keeps_step_format
        )


def key_of(claim: Object) -> str:
    """Return ``namespace/name`` of a claim, or its name if it has no namespace."""
    metadata = claim["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class _Reader:
    """Translate one claim."""

    def __init__(self, call: Call, claim: Object) -> None:
        self._call = call
        self._claim = claim
        self._key = key_of(claim)
        self._devices = claim["spec"].get("devices") or {}
        self._constraints = self._devices.get("constraints") or ()
        # One function for each constraint: ``_kinds`` of the search reads the values of all devices
        # once for each function.
        self._published = tuple([self._values(_attribute_of(each)) for each in self._constraints])
        self._derived: dict[tuple[str, str], Callable[[int], Values | None]] = {}

    def read(self) -> ClaimRequests:
        requests, total = [], 0
        for request in self._devices.get("requests") or ():
            found = self._request(request)
            # A lower bound: the search checks the limit again with the options that it chooses.
            least = min(each.option.count for each in found)
            if self._call.profile.limit_per_request and least > MAX_DEVICES - total:
                raise AllocationError(
                    f"claim {self._key}, request {request['name']}: adding {least} devices exceeds"
                    f" the claim limit of {MAX_DEVICES}, with {total} already accounted for"
                )
            total += least
            requests.append(found)
        if total > MAX_DEVICES:
            raise AllocationError(
                f"claim {self._key}: number of requested devices {total} exceeds the claim limit"
                f" of {MAX_DEVICES}"
            )
        # After the requests, because upstream reports errors of requests first.
        makers = tuple([self._maker(*each) for each in enumerate(self._constraints)])
        options = tuple([tuple([each.option for each in found]) for found in requests])
        return ClaimRequests(self._claim, tuple(requests), OrderedClaim(options, makers))

    def _request(self, request: Object) -> tuple[RequestOption, ...]:
        name, alternatives = request["name"], request.get("firstAvailable") or ()
        profile = self._call.profile
        if alternatives and not profile.has(Feature.PRIORITIZED_LIST):
            raise self._fault(
                name, "has subrequests, but the DRAPrioritizedList feature is disabled"
            )
        # The variant ``stable`` ignores capacities in requests.
        if not (profile.is_stable or profile.has(Feature.CONSUMABLE_CAPACITY)):
            self._reject_capacity(request)
        if not alternatives:
            return (self._option(name, request["exactly"], name, name),)
        return tuple(
            [
                self._option(each["name"], each, f"{name}/{each['name']}", name)
                for each in alternatives
            ]
        )

    def _reject_capacity(self, request: Object) -> None:
        text = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
        if (request.get("exactly") or {}).get("capacity") is not None:
            raise self._fault(request["name"], text)
        for each in request.get("firstAvailable") or ():
            if each.get("capacity") is not None:
                raise AllocationError(f"claim {self._key}, subrequest {each['name']}: {text}")

    def _option(self, name: str, spec: Object, full: str, parent: str) -> RequestOption:
        """Translate a request or subrequest. ``full`` is the name of the request or subrequest in
        results. Raises AllocationError."""
        # The order of these checks is that of upstream: only the first error is reported.
        profile = self._call.profile
        derived: dict[str, str] = {}
        if spec.get("derivedAttributes") and profile.knows_alpha_fields:
            if not profile.has(Feature.DERIVED_ATTRIBUTES):
                raise self._fault(
                    name, "cannot handle request with derived attributes, the feature is disabled"
                )
            derived = {each["name"]: each["expression"] for each in spec["derivedAttributes"]}
        for number, selector in enumerate(spec.get("selectors") or ()):
            if selector.get("cel") is None:
                raise AllocationError(
                    f"claim {self._key}, request {name}, selector #{number}: CEL expression empty"
                    " (unsupported selector type?)"
                )
        admin = spec.get("adminAccess")
        # Also an error for False: upstream tests only whether the field is set.
        if admin is not None and not profile.has(Feature.ADMIN_ACCESS):
            raise self._fault(name, "admin access is requested, but the feature is disabled")
        # A missing class is an error even for a subrequest that the search would not choose.
        device_class = self._class(name, spec)
        candidate = Candidate(
            self._call,
            spec,
            (
                *_selectors(f"class {spec['deviceClassName']}", device_class["spec"]),
                *_selectors(f"claim {self._key}", spec),
            ),
            f"claim {self._key}, request {name}",
        )
        every = self._every(name, candidate)
        count = spec.get("count", 0) if every is None else len(every)
        option = Option(
            count,
            candidate.accepts,
            candidate.permits,
            candidate.consumes if every is None else candidate.consumes_as_one_of_all,
            tuple(
                [
                    Compared(number, self._compared(number, derived))
                    for number, each in enumerate(self._constraints)
                    # A constraint without requests applies to all. The name of a request includes
                    # its subrequests.
                    if not each.get("requests") or {parent, full} & set(each["requests"])
                ]
            ),
            every,
            bool(admin),
        )
        return RequestOption(full, spec, device_class, option, candidate)

    def _class(self, name: str, spec: Object) -> Object:
        wanted = spec.get("deviceClassName")
        if not wanted:
            raise self._fault(name, "missing device class name (unsupported request type?)")
        found = self._call.classes.get(wanted)
        if found is None:
            raise self._fault(
                name,
                f"could not retrieve device class {wanted}:"
                f' deviceclass.resource.k8s.io "{wanted}" not found',
            )
        return found

    def _every(self, name: str, candidate: Candidate) -> tuple[int, ...] | None:
        """Return all candidates for ``allocationMode: All``; else None."""
        mode = candidate.spec.get("allocationMode", "")
        if mode == "ExactCount":
            return None
        if mode != "All":
            raise self._fault(name, f"unsupported count mode {mode}")
        # An incomplete or invalid pool is an error, because ``All`` must not miss a device.
        for pool in self._call.offer.pools:
            if not pool.is_usable:
                state = "being updated" if pool.is_incomplete else "invalid"
                # Check the devices of earlier pools first, because upstream reports their errors
                # first.
                self._all_of_pools(candidate, before=pool.key)
                raise self._fault(
                    name,
                    f"asks for all devices, but resource pool {pool.name} is currently {state}",
                )
        return tuple(self._all_of_pools(candidate))

    def _all_of_pools(self, candidate: Candidate, before: object = None) -> list[int]:
        found = []
        offer = self._call.offer
        unusable = next((n for n, pool in enumerate(offer.pools) if pool.key == before), None)
        earlier = {pool.key for pool in offer.pools[:unusable]}
        for number, source in enumerate(offer.sources):
            if source.slice.pool in earlier and candidate.is_one_of_all(number):
                found.append(number)
        return found

    def _values(self, name: str) -> Callable[[int], Values | None]:
        has_lists = self._call.profile.has(Feature.LIST_ATTRIBUTES)
        sources = self._call.offer.sources
        return lambda number: _published(sources[number], name, has_lists)

    def _compared(
        self, constraint: int, derived: Mapping[str, str]
    ) -> Callable[[int], Values | None]:
        """Return a function that gets a device number, and returns the device's values that a
        constraint compares for a request. The function returns None if the device has no such
        values.

        ``derived``: the expressions of the request's derived attributes, by name.
        """
        name = _attribute_of(self._constraints[constraint])
        if name not in derived:
            return self._published[constraint]
        key = name, derived[name]
        if key not in self._derived:
            self._derived[key] = self._derived_values(*key)
        return self._derived[key]

    def _derived_values(self, name: str, expression: str) -> Callable[[int], Values | None]:
        call = self._call
        has_lists = call.profile.has(Feature.LIST_ATTRIBUTES)

        def values(number: int) -> Values | None:
            source = call.offer.sources[number]
            return _compared_values(
                call.selectors.derived(name, expression, source, call.steps), has_lists
            )

        return values

    def _maker(self, number: int, constraint: Object) -> Callable[[], Constraint]:
        profile = self._call.profile
        if constraint.get("matchAttribute") is not None:
            return StaleMatch if Quirk.STALE_LIST_MATCH in profile.quirks else Match
        if constraint.get("distinctAttribute") is not None and not profile.is_stable:
            per_request = Quirk.DISTINCT_PER_REQUEST in profile.quirks
            return DistinctPerRequest if per_request else Distinct
        raise AllocationError(
            f"claim {self._key}, constraint #{number}: empty constraint"
            " (unsupported constraint type?)"
        )

    def _fault(self, request: str, text: str) -> AllocationError:
        return AllocationError(f"claim {self._key}, request {request}: {text}")


def _selectors(owner: str, spec: Object) -> Iterator[Selector]:
    for number, each in enumerate(spec.get("selectors") or ()):
        yield Selector(owner, number, each["cel"]["expression"])


def _attribute_of(constraint: Object) -> str:
    """Return the name of the attribute that a constraint compares."""
    return constraint.get("matchAttribute") or constraint.get("distinctAttribute") or ""


def _published(source: Source, name: str, has_lists: bool) -> Values | None:
    """Return the values of an attribute in a device's slice; None if the device lacks it."""
    attributes = source.device.get("attributes") or {}
    # Upstream looks for the full name first. Then a name in the driver's domain also matches the
    # short name, because drivers may omit their own domain.
    value: Mapping[str, Any] | None = attributes.get(name)
    if value is None:
        domain, slash, short = name.partition("/")
        if not slash or domain != source.slice.pool.driver:
            return None
        value = attributes.get(short)
        if value is None:
            return None
    return _compared_values(value, has_lists)


def _compared_values(value: Object, has_lists: bool) -> Values | None:
    """Return the values of an attribute.

    The result is None for an unknown type, and empty if list attributes are disabled.
    """
    for kind, plural in _VALUE_TYPES.items():
        if has_lists and value.get(plural):
            return frozenset((kind, each) for each in value[plural])
        if value.get(kind) is not None:
            return frozenset(((kind, value[kind]),))
    # Upstream without lists: the first device with an unknown type is accepted, and no other is.
    # With lists: a device with an unknown type is never accepted.
    return None if has_lists else frozenset()


@attrs.frozen(eq=False)
class Candidate:
    """One request or subrequest, with methods that check whether a device can serve it. Their
    argument ``number`` is the number of the device in the inventory."""

    call: Call
    spec: Object
    selectors: tuple[Selector, ...]
    where: str
    """Claim and request, as error messages name them."""
    _consumed: dict[int, dict[str, Amount] | None] = attrs.field(factory=dict)
    _amounts: dict[int, Amounts] = attrs.field(factory=dict)

    def accepts(self, number: int) -> bool:
        """True if a device matches the selectors, the node can use the device, and the device's
        request policies allow the requested amounts."""
        source = self.call.offer.sources[number]
        if not self._is_selectable(source):
            return False
        name = "/".join(self.call.offer.inventory.devices[number].key)
        return self._has_capacity(source, name)

    def is_one_of_all(self, number: int) -> bool:
        """True if this request, which has ``allocationMode: All``, must get the device."""
        source = self.call.offer.sources[number]
        if not self._is_selectable(source):
            return False
        # Unlike in ``accepts``, upstream's error has neither driver nor pool here.
        if not self._has_capacity(source, source.device["name"]):
            return False
        # Without the quirk, a device with too little free capacity is included, so that the request
        # fails instead of getting fewer devices.
        skips_full = Quirk.ALL_SKIPS_FULL in self.call.profile.quirks
        used = self.call.view.allocated.get(number, {}) if skips_full else {}
        totals = source.facts.totals
        return all(
            amount + used.get(name, 0) <= totals[name]
            for name, amount in self.consumes(number).items()
        )

    def _is_selectable(self, source: Source) -> bool:
        profile, device = self.call.profile, source.device
        if device.get("bindingConditions") and not profile.has(Feature.BINDING_CONDITIONS):
            return False
        # Before the node, as upstream: an error in a selector shows even for devices of other
        # nodes.
        if not self.call.selectors.match(self.selectors, source, self.call.steps):
            return False
        if not source.slice.chooses_per_device:
            return True
        try:
            return node_matches(self.call.node, device)
        except InvalidSelector as error:
            raise AllocationError(str(error)) from None

    def _has_capacity(self, source: Source, name: str) -> bool:
        if not self.call.profile.has(Feature.CONSUMABLE_CAPACITY):
            return True
        try:
            return self.consumed(source) is not None
        except CapacityError as error:
            raise AllocationError(
                f"{self.where}: checking capacity for device {name}: {error}"
            ) from None

    def consumed(self, source: Source) -> dict[str, Amount] | None:
        """Return the amounts that the request consumes of a device, as quantities by capacity name.

        Return None if the request cannot use the device. Raises CapacityError for an amount that is
        negative or too large, or has too many decimals.
        """
        # Devices with equal capacities have the same facts, so the amounts are computed once for
        # them.
        key = id(source.facts)
        if key not in self._consumed:
            wanted = (self.spec.get("capacity") or {}).get("requests") or {}
            self._consumed[key] = consumption(
                {name: Amount.parse(text) for name, text in wanted.items()},
                source.facts.capacities,
                self.call.arithmetic,
            )
        return self._consumed[key]

    def consumes(self, number: int) -> Amounts:
        """Return the amounts of ``consumed`` in nano-units, by capacity name.

        The result is empty if the feature gate DRAConsumableCapacity is disabled, or if the request
        cannot use the device.
        """
        if not self.call.profile.has(Feature.CONSUMABLE_CAPACITY):
            return {}
        source = self.call.offer.sources[number]
        key = id(source.facts)
        if key not in self._amounts:
            consumed = self.consumed(source) or {}
            self._amounts[key] = {name: each.nanos for name, each in consumed.items()}
        return self._amounts[key]

    def consumes_as_one_of_all(self, number: int) -> Amounts:
        """Return the same amounts as ``consumes``, for a request with ``allocationMode: All``.

        Raises AllocationError if the device consumes counters and the quirk ``ALL_WITH_COUNTERS``
        is enabled: Kubernetes' allocator crashes in this case.
        """
        crashes = Quirk.ALL_WITH_COUNTERS in self.call.profile.quirks
        if crashes and self.call.offer.inventory.devices[number].charge:
            raise AllocationError(
                "runtime error: invalid memory address or nil pointer dereference"
            )
        return self.consumes(number)

    def permits(self, number: int) -> bool:
        """True if the feature gates and the request's tolerations permit using a device."""
        profile, source = self.call.profile, self.call.offer.sources[number]
        device = source.device
        if device.get("consumesCounters") and not profile.has(Feature.PARTITIONABLE):
            return False
        if source.slice.spec.get("skipNodeOperations") and _uses_node_operations(profile):
            # A kubelet that does not declare the feature would fail the pod.
            declared = _NODE_OPERATIONS in self.call.node.declared_features
            if not (profile.has(Feature.NODE_OPERATIONS) and declared):
                return False
        if not profile.has(Feature.TAINTS):
            return True
        return are_tolerated(
            device.get("taints") or (),
            self.spec.get("tolerations") or (),
            every=profile.every_taint_counts,
        )


def _uses_node_operations(profile: Profile) -> bool:
    """True if upstream's variant reads ``skipNodeOperations`` (``experimental``)."""
    return bool(
        profile.features
        & {
            Feature.LIST_ATTRIBUTES,
            Feature.NODE_OPERATIONS,
            Feature.DERIVED_ATTRIBUTES,
            Feature.COMPATIBILITY_GROUPS,
        }
    )
