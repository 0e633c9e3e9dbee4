"""Convert the devices that the search found to AllocationResults (``status.allocation``, v1.37)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.claims.core.device_order import Pick
from devicemanager.claims.dra.errors import AllocationError
from devicemanager.claims.dra.nodes import Node
from devicemanager.claims.dra.pools import Offer, Source
from devicemanager.claims.dra.profile import Feature, Profile, Quirk
from devicemanager.claims.dra.requests import ClaimRequests, RequestOption
from devicemanager.claims.dra.slices import Object

AllocationResult = Mapping[str, Any]
"""``AllocationResult`` of resource.k8s.io/v1 as JSON, without ``allocationTimestamp``."""


@attrs.frozen(eq=False)
class Writer:
    """Writer of the AllocationResults for one call of the allocator."""

    profile: Profile
    node: Node
    offer: Offer
    new_share_id: Callable[[], str]
    """Function that returns the ID for a new share."""

    def result(self, claim: ClaimRequests, picks: Sequence[Pick]) -> AllocationResult:
        """Return the AllocationResult that allocates the devices in ``picks`` to a claim.

        Raises AllocationError if the node selector of a device or its slice has several terms.
        """
        devices: dict[str, Any] = {}
        if picks:
            devices["results"] = [self._device(claim, pick) for pick in picks]
        chosen = _chosen(claim, picks)
        # Configs of classes first: drivers let later configs override earlier ones.
        configs = [*_class_configs(chosen), *self._claim_configs(claim, chosen)]
        if Quirk.CONFIG_PER_REQUEST not in self.profile.quirks:
            configs = [_for_all(each, chosen) for each in configs]
        if configs:
            devices["config"] = configs
        found: dict[str, Any] = {"devices": devices}
        selector = self._node_selector(claim, picks)
        if selector is not None:
            found["nodeSelector"] = selector
        return found

    def _device(self, claim: ClaimRequests, pick: Pick) -> dict[str, Any]:
        option = claim.requests[pick.request][pick.option]
        source = self.offer.sources[pick.number]
        key = self.offer.inventory.devices[pick.number].key
        found: dict[str, Any] = {
            "request": option.name,
            "driver": key.driver,
            "pool": key.pool,
            "device": key.name,
        }
        if option.spec.get("adminAccess"):
            found["adminAccess"] = True
        if option.spec.get("tolerations") and self.profile.writes_tolerations:
            found["tolerations"] = [
                # Go omits empty fields.
                {name: value for name, value in each.items() if value not in ("", None)}
                for each in option.spec["tolerations"]
            ]
        if self.profile.has(Feature.BINDING_CONDITIONS):
            for name in ("bindingConditions", "bindingFailureConditions"):
                if source.device.get(name):
                    found[name] = source.device[name]
        if self._is_share(source):
            found["shareID"] = self.new_share_id()
            consumed = option.candidate.consumed(source)
            if consumed:
                # All capacities of the device, also those that the request does not name.
                found["consumedCapacity"] = {name: str(consumed[name]) for name in sorted(consumed)}
        operations = source.slice.spec.get("skipNodeOperations")
        if operations and self.profile.has(Feature.NODE_OPERATIONS):
            found["skipNodeOperations"] = operations
        return found

    def _is_share(self, source: Source) -> bool:
        return self.profile.has(Feature.CONSUMABLE_CAPACITY) and bool(
            source.device.get("allowMultipleAllocations")
        )

    def _claim_configs(
        self, claim: ClaimRequests, chosen: Sequence[RequestOption]
    ) -> Iterator[dict[str, Any]]:
        for config in (claim.claim["spec"].get("devices") or {}).get("config") or ():
            wanted = config.get("requests") or ()
            times = sum(bool({*_names(each)} & {*wanted}) for each in chosen)
            if wanted and Quirk.CONFIG_PER_REQUEST not in self.profile.quirks:
                times = min(times, 1)
            # A config without requests applies to all, so it is written once.
            for _ in range(times if wanted else 1):
                yield _config("FromClaim", config, list(wanted))

    def _node_selector(self, claim: ClaimRequests, picks: Iterable[Pick]) -> dict[str, Any] | None:
        """Return a node selector for the nodes that can use the devices; None if all nodes can."""
        fields: list[Object] = []
        labels: list[Object] = []
        for pick in picks:
            source = self.offer.sources[pick.number]
            per_device = source.slice.chooses_per_device
            choice = source.device if per_device else source.slice.spec
            # The variant ``stable`` does not read ``bindsToNode``.
            binds = source.device.get("bindsToNode") and not self.profile.is_stable
            if choice.get("nodeName") is not None or binds:
                # One device that is local to the node binds the whole claim to it.
                return _only(self.node.name)
            terms = (choice.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
            # The API server allows one term. Several terms are alternatives, which cannot be merged
            # with the terms of other devices.
            if len(terms) > 1:
                raise AllocationError(
                    f"create NodeSelector for claim {claim.claim['metadata']['name']}:"
                    f" unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
                )
            for term in terms:
                _merge(fields, term.get("matchFields") or ())
                _merge(labels, term.get("matchExpressions") or ())
        term = {"matchExpressions": labels, "matchFields": fields}
        found = {name: each for name, each in term.items() if each}
        return {"nodeSelectorTerms": [found]} if found else None


def _only(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _merge(into: list[Object], requirements: Iterable[Object]) -> None:
    for each in requirements:
        if not any(_is_same(each, other) for other in into):
            into.append(each)


def _is_same(one: Object, other: Object) -> bool:
    return (
        one["key"] == other["key"]
        and one["operator"] == other["operator"]
        and {*(one.get("values") or ())} == {*(other.get("values") or ())}
    )


def _chosen(claim: ClaimRequests, picks: Iterable[Pick]) -> list[RequestOption]:
    """Return the chosen option of each request; for a request without devices, its first option."""
    options = {pick.request: pick.option for pick in picks}
    return [found[options.get(number, 0)] for number, found in enumerate(claim.requests)]


def _names(option: RequestOption) -> tuple[str, str]:
    """Return the names that a config can use for an option: ``request`` and
    ``request/subrequest``."""
    return option.name.partition("/")[0], option.name


def _class_configs(chosen: Iterable[RequestOption]) -> list[dict[str, Any]]:
    """Return the configs of each class once, with all requests that use the class."""
    found: dict[str, list[dict[str, Any]]] = {}
    for option in chosen:
        name = option.class_name
        if name in found:
            for config in found[name]:
                config["requests"].append(option.name)
        else:
            configs = option.device_class["spec"].get("config") or ()
            found[name] = [_config("FromClass", each, [option.name]) for each in configs]
    return [config for configs in found.values() for config in configs]


def _config(source: str, config: Object, requests: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"source": source}
    if requests:
        found["requests"] = requests
    return found | {name: value for name, value in config.items() if name != "requests"}


def _for_all(config: dict[str, Any], chosen: Iterable[RequestOption]) -> dict[str, Any]:
    """Return a config without its list of requests if it applies to all requests."""
    wanted = {*config.get("requests", ())}
    if all({*_names(each)} & wanted for each in chosen):
        config.pop("requests", None)
    return config
