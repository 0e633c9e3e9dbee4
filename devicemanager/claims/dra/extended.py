"""Claims for extended resources that DRA drivers serve (``extendeddynamicresources.go``, v1.37).

In:  a pod with extended resources in its requests or limits, and the device classes.
Out: the requests of one claim for the whole pod, and the request that each container uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.claims.dra.slices import Object
from devicemanager.core.quantity import NANOS, parse_quantity

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
# Not a valid name, so no claim of the API server can have it.
NO_NAME = "<extended-resources>"
"""Placeholder for the name of a claim that is not created yet. Messages contain this text."""
_IMPLICIT = "deviceclass.resource.kubernetes.io/"


def classes_by_resource(classes: Iterable[Object]) -> dict[str, str]:
    """Return the device class of each extended resource, by resource name.

    A class NAME serves the resource ``deviceclass.resource.kubernetes.io/NAME``. It also serves the
    resource in its field ``spec.extendedResourceName``, if set. If several classes serve one
    resource, the newest is used.
    """
    found: dict[str, str] = {}
    # Newest first. Equally old classes are in the order of their names, because the second sort is
    # stable.
    ordered = sorted(classes, key=lambda each: str(each["metadata"]["name"]))
    ordered.sort(
        key=lambda each: str(each["metadata"].get("creationTimestamp") or ""), reverse=True
    )
    for each in ordered:
        name = each["metadata"]["name"]
        found[f"{_IMPLICIT}{name}"] = name
        explicit = (each.get("spec") or {}).get("extendedResourceName")
        if explicit:
            found.setdefault(explicit, name)
    return found


@attrs.frozen
class ExtendedClaim:
    """Requests for the extended resources of a pod."""

    requests: tuple[dict[str, Any], ...]
    mappings: tuple[dict[str, str], ...]
    """``requestMappings`` of ``pod.status.extendedResourceClaimStatus``."""

    def claim(self, pod: Object) -> dict[str, Any]:
        """Return the claim, owned by the pod. Its name is the placeholder ``NO_NAME``."""
        metadata = pod["metadata"]
        return {
            "metadata": {
                "name": NO_NAME,
                "generateName": f"{metadata['name']}-extended-resources-",
                "namespace": metadata["namespace"],
                "annotations": {ANNOTATION: "true"},
                "ownerReferences": [owner_reference(pod)],
            },
            "spec": {"devices": {"requests": list(self.requests)}},
        }


def owner_reference(pod: Object) -> dict[str, Any]:
    """Return an owner reference that makes the pod the controller of a claim."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }


def extended_claim(pod: Object, resources: Mapping[str, str]) -> ExtendedClaim:
    """Return the requests for a pod's extended resources, and the containers that use them.

    ``resources``: name of the device class by resource.

    For each resource, every sidecar and every app container has its own request. The other init
    containers end before later containers start. So these init containers use the devices of later
    sidecars and app containers. One additional request serves all init containers that need more
    devices.
    """
    spec = pod["spec"]
    initial = list(spec.get("initContainers") or ())
    containers = [*initial, *(spec.get("containers") or ())]
    short = [place for place, each in enumerate(initial) if each.get("restartPolicy") != "Always"]
    requests: list[dict[str, Any]] = []
    mappings: list[dict[str, str]] = []
    for resource in sorted(resources):
        found = _Requests(resource, resources[resource], containers, frozenset(short))
        requests += found.requests
        mappings += found.mappings
    requests.sort(key=lambda each: str(each["name"]))
    return ExtendedClaim(tuple(requests), tuple(mappings))


def served_by_dra(
    pod: Object, allocatable: Mapping[str, Any], resources: Mapping[str, str]
) -> dict[str, str]:
    """Return the resources that a pod requests and that DRA serves on a node.

    The result maps each resource to its DeviceClass. DRA does not serve a resource while a device
    plugin has allocatable devices of it.

    ``allocatable``: the node's allocatable amounts, by resource. ``resources``: the DeviceClass of
    each extended resource.
    """
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    wanted = {
        name
        for container in containers
        for kind in ("limits", "requests")
        for name, amount in ((container.get("resources") or {}).get(kind) or {}).items()
        if str(amount) != "0"
    }
    return {
        name: class_
        for name, class_ in resources.items()
        if name in wanted and str(allocatable.get(name, "0")) == "0"
    }


class _Requests:
    """Requests for one extended resource, and the containers that use them."""

    def __init__(
        self, resource: str, class_: str, containers: Sequence[Object], short: frozenset[int]
    ) -> None:
        self._resource, self._class = resource, class_
        lasting: dict[int, dict[str, Any]] = {}
        self.mappings: list[dict[str, str]] = []
        # Sidecars and app containers first: other init containers use their devices.
        for place, container in enumerate(containers):
            wanted = _wanted(container, resource)
            if wanted and place not in short:
                lasting[place] = self._request(place, container, wanted)
                self._map(container, lasting[place]["name"])
        largest: dict[str, Any] | None = None
        sharing = []
        for place in sorted(short):
            rest = _wanted(containers[place], resource)
            for other in sorted(lasting):
                # An earlier sidecar still runs, and needs its devices.
                if other >= place and rest > 0:
                    self._map(containers[place], lasting[other]["name"])
                    rest -= lasting[other]["exactly"]["count"]
            if rest > 0:
                own = self._request(place, containers[place], rest)
                sharing.append(containers[place])
                # These containers run one after another, so the largest request is enough for all.
                if largest is None or largest["exactly"]["count"] < rest:
                    largest = own
        for container in sharing:
            self._map(container, largest["name"] if largest else "")
        self.requests = [*([largest] if largest else []), *lasting.values()]

    def _request(self, place: int, container: Object, count: int) -> dict[str, Any]:
        # The names are visible in the status of the pod, so they have the scheduler's format.
        index = sorted(_amounts(container)).index(self._resource)
        return {
            "name": f"container-{place}-request-{index}",
            "exactly": {
                "deviceClassName": self._class,
                "allocationMode": "ExactCount",
                "count": count,
            },
        }

    def _map(self, container: Object, request: str) -> None:
        self.mappings.append(
            {
                "containerName": container["name"],
                "resourceName": self._resource,
                "requestName": request,
            }
        )


def _amounts(container: Object) -> dict[str, Any]:
    resources = container.get("resources") or {}
    # The API server copies a limit to a missing request.
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _wanted(container: Object, resource: str) -> int:
    return parse_quantity(str(_amounts(container).get(resource, 0))) // NANOS
