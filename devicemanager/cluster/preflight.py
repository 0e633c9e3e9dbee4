"""Checks before anything is changed: credentials, permissions, existing nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import attrs

from devicemanager.cluster.client.api import ApiClient
from devicemanager.cluster.client.errors import ApiError, ClusterError, Unauthorized, Unavailable
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.reflector import pages
from devicemanager.cluster.client.validation import defect, list_items
from devicemanager.cluster.options import AsNodes

__all__ = [
    "PreflightResult",
    "RequiredPermission",
    "check",
    "lease_permissions",
    "required_permissions",
]

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_LEASES: Final = "kube-node-lease"
_LOCAL: Final = ("kind://", "k3s://", "k3d://", "minikube://", "docker://")
"""Prefixes of ``spec.providerID`` in clusters without a cloud controller."""


@attrs.frozen
class RequiredPermission:
    """A verb on a resource."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


@attrs.frozen
class PreflightResult:
    """What the checks found; none of it prevents nodes from joining."""

    version: str
    """Version of the API server, such as ``v1.32.13``."""
    existing: frozenset[str]
    """Requested names of Nodes that devicemanager created earlier."""
    cloud: str = ""
    """A sign of a cloud controller, or empty."""


def required_permissions(
    *, as_nodes: AsNodes = False, events: bool = True
) -> Iterator[RequiredPermission]:
    """Yield the permissions that joining requires."""
    if as_nodes == "strict":
        # For the checks, and for what no node may do itself.
        yield from (RequiredPermission(verb, "nodes") for verb in ("list", "delete"))
    else:
        yield from _node_permissions(events)
    if as_nodes:
        yield from (RequiredPermission("impersonate", what) for what in ("users", "groups"))


def _node_permissions(events: bool) -> Iterator[RequiredPermission]:
    for resource, verbs in {
        "nodes": ("get", "list", "watch", "create", "patch", "delete"),
        "nodes/status": ("patch",),
        "pods": ("list", "watch", "delete"),
        "pods/status": ("patch",),
        "events": ("create", "patch") if events else (),
    }.items():
        yield from (RequiredPermission(verb, resource) for verb in verbs)
    yield from lease_permissions(_LEASES)


def lease_permissions(namespace: str) -> Iterator[RequiredPermission]:
    """Yield the permissions that leases in a namespace require: those of nodes or of shards."""
    for verb in ("get", "create", "update"):
        yield RequiredPermission(verb, "leases", "coordination.k8s.io", namespace)


def check(
    api: ApiClient,
    names: Collection[str],
    label: tuple[str, str],
    required: Iterable[RequiredPermission],
) -> PreflightResult:
    """Check whether nodes with these names can join. ``label``: the label of our Nodes.

    Raises ClusterError, with a one-line text, if they cannot. Changes nothing.
    """
    try:
        # First, because it needs no permission: its failure is about the server or the
        # credentials.
        version = str(api.attempt("GET", "/version").get("gitVersion", ""))
        _check_permissions(api, required)
        return _check_nodes(api, set(names), label, version)
    except Unauthorized as error:
        text = f"the API server rejects the credentials ({error.message or error.code})"
        raise ClusterError(f"{text}: they have expired or belong to another cluster") from None
    except ApiError as error:
        raise ClusterError(f"not an API server that nodes can join: {error}") from None
    except Unavailable as error:
        raise ClusterError(f"the API server at {api.url} is unavailable: {error}") from None


def _check_permissions(api: ApiClient, required: Iterable[RequiredPermission]) -> None:
    # All of them, so that an administrator can grant them at once.
    missing = [each for each in required if not _is_granted(api, each)]
    if missing:
        text = ", ".join(map(str, missing))
        raise ClusterError(f"missing permissions: {text}; deploy/join.yaml has a role with all")


def _is_granted(api: ApiClient, permission: RequiredPermission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {"verb": permission.verb, "group": permission.group, "resource": resource}
    if subresource:
        attributes["subresource"] = subresource
    if permission.namespace:
        attributes["namespace"] = permission.namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    response = api.attempt("POST", _REVIEWS, review)
    status = response.get("status")
    if not isinstance(status, dict):
        raise Unavailable(f"POST {_REVIEWS}: response without status")
    return bool(status.get("allowed"))


def _check_nodes(
    api: ApiClient, names: set[str], label: tuple[str, str], version: str
) -> PreflightResult:
    key, value = label
    existing, foreign, cloud = set[str](), list[str](), ""
    for node in _nodes(api):
        metadata = node["metadata"]
        if metadata["name"] in names:
            if (metadata.get("labels") or {}).get(key) == value:
                existing.add(metadata["name"])
            else:
                foreign.append(metadata["name"])
        provider = str((node.get("spec") or {}).get("providerID") or "")
        # Cloud controllers delete Nodes without a machine. One node with a provider ID is a sign
        # that such a controller runs.
        if provider and not provider.startswith(_LOCAL):
            cloud = cloud or f"node {metadata['name']} has providerID {provider}"
    if foreign:
        shown = ", ".join(sorted(foreign)[:3]) + (", …" if len(foreign) > 3 else "")
        raise ClusterError(
            f"{len(foreign)} of the names are nodes that devicemanager did not create "
            f"(no label {key}={value}): {shown}; use another name"
        )
    return PreflightResult(version, frozenset(existing), cloud)


def _nodes(api: ApiClient) -> Iterator[JsonObject]:
    for page in pages(api, "/api/v1/nodes"):
        yield from (each for each in list_items(page) if not defect(each))
