"""Checks before nodes join: credentials, permissions, existing nodes. They change nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import attrs

from devicemanager.client.api import ApiClient
from devicemanager.client.errors import ApiError, ClusterError, Unauthorized, Unavailable
from devicemanager.client.protocol import JsonObject
from devicemanager.client.reflector import pages
from devicemanager.client.validation import defect, list_items
from devicemanager.cluster.holders import check_holders
from devicemanager.cluster.options import AsNodes

__all__ = [
    "PreflightResult",
    "RequiredPermission",
    "check",
    "dra_permissions",
    "lease_permissions",
    "required_permissions",
]

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RESOURCES: Final = "resource.k8s.io"
_LEASES: Final = "kube-node-lease"
_LOCAL: Final = ("kind://", "k3s://", "k3d://", "minikube://", "docker://")
"""Prefixes of ``spec.providerID`` in clusters without a cloud controller."""


@attrs.frozen
class RequiredPermission:
    """Permission that nodes need to join the cluster: a verb on a resource."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


@attrs.frozen
class PreflightResult:
    """Information about the cluster, from checks that have passed before nodes join."""

    version: str
    """Version of the API server, such as ``v1.32.13``."""
    existing: frozenset[str]
    """Names of the checked nodes that already have a Node object, created by devicemanager."""
    cloud: str = ""
    """Text that says why a cloud controller seems to run; empty if none seems to run."""


def dra_permissions(
    *, device_status: bool = False, as_nodes: AsNodes = False
) -> Iterator[RequiredPermission]:
    """Yield the additional permissions that nodes with simulated DRA drivers need.

    With ``device_status``, nodes also need the permission to patch the status of ResourceClaims.
    With ``as_nodes``, nodes need no other additional permission. Their other requests impersonate
    the users ``system:node:NAME``, who have the permissions for these requests.
    """
    if not as_nodes:
        for verb in ("create", "update", "deletecollection"):
            yield RequiredPermission(verb, "resourceslices", _RESOURCES)
        yield RequiredPermission("get", "resourceclaims", _RESOURCES)
    if device_status:
        yield RequiredPermission("patch", "resourceclaims/status", _RESOURCES)


def required_permissions(
    *, as_nodes: AsNodes = False, events: bool = True
) -> Iterator[RequiredPermission]:
    """Yield the permissions on the API server that nodes need to join and to run.

    With ``as_nodes``, these include ``impersonate`` on users and groups. If ``as_nodes`` is
    ``"strict"``, most other permissions are not needed, because the impersonated users have them.
    ``events``: True if nodes write Events.
    """
    if as_nodes == "strict":
        # Needed for the checks, and for the deletion of Nodes, which no node is allowed to do.
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
    """Yield the permissions that nodes or shards need for their Leases in ``namespace``."""
    for verb in ("get", "create", "update"):
        yield RequiredPermission(verb, "leases", "coordination.k8s.io", namespace)


def check(
    api: ApiClient,
    names: Collection[str],
    label: tuple[str, str],
    required: Iterable[RequiredPermission],
    *,
    take_over: bool = True,
    as_nodes: bool = False,
) -> PreflightResult:
    """Check whether nodes with these names can join; change nothing.

    ``label`` is the label of Nodes that devicemanager created. ``take_over`` permits nodes that
    another process runs. With ``as_nodes``, the request for the Lease of a node impersonates this
    node. Raises ClusterError with a one-line text if the nodes cannot join.
    """
    try:
        # The version is read first. This needs no permission, so a failure is due to the server or
        # the credentials.
        version = str(api.attempt("GET", "/version").get("gitVersion", ""))
        # Before the LIST of Nodes, whose error would name only one missing permission.
        _check_permissions(api, required)
        found = _check_nodes(api, set(names), label, version)
        if not take_over:
            check_holders(api, found.existing, as_nodes=as_nodes)
        return found
    except Unauthorized as error:
        text = f"the API server rejects the credentials ({error.message or error.code})"
        raise ClusterError(f"{text}: they have expired or belong to another cluster") from None
    except ApiError as error:
        raise ClusterError(f"nodes cannot join through the API server {api.url}: {error}") from None
    except Unavailable as error:
        raise ClusterError(f"the API server at {api.url} is unavailable: {error}") from None


def _check_permissions(api: ApiClient, required: Iterable[RequiredPermission]) -> None:
    # All missing permissions are reported, so that an administrator can grant them in one step.
    missing = [each for each in required if not _is_granted(api, each)]
    if missing:
        text = ", ".join(map(str, missing))
        raise ClusterError(
            f"missing permissions: {text}: use the role in deploy/join.yaml, which has these "
            "permissions"
        )


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
        shown = ", ".join(sorted(foreign)[:3])
        if len(foreign) > 3:
            shown += f" and {len(foreign) - 3} more"
        raise ClusterError(
            "these names belong to Nodes that devicemanager did not create "
            f"(no label {key}={value}): {shown}: use other names"
        )
    return PreflightResult(version, frozenset(existing), cloud)


def _nodes(api: ApiClient) -> Iterator[JsonObject]:
    # A malformed Node of another program must not prevent all nodes from joining.
    for page in pages(api, "/api/v1/nodes"):
        yield from (each for each in list_items(page) if not defect(each))
