"""What is looked at before anything is touched: who answers, what we may do, whose the names
are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import attrs

from devicemanager.cluster.client.api import ApiClient
from devicemanager.cluster.client.errors import ApiError, ClusterError, Unauthorized, Unavailable
from devicemanager.cluster.client.listing import pages
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.validation import defect, list_items
from devicemanager.cluster.options import AsNodes

__all__ = ["Findings", "Need", "check", "needs", "shard_needs"]

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_LEASES: Final = "kube-node-lease"
_LOCAL: Final = ("kind://", "k3s://", "k3d://", "minikube://", "docker://")
"""How ``spec.providerID`` begins where no cloud controller looks after nodes."""


@attrs.frozen
class Need:
    """One right: a verb on a resource."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


@attrs.frozen
class Findings:
    """What was found; nothing of it keeps anybody from joining."""

    version: str
    """The API server's, such as ``v1.32.13``."""
    existing: frozenset[str]
    """Wanted nodes that are there already and are ours."""
    cloud: str = ""
    """What speaks for a cloud controller, or empty."""


def needs(*, as_nodes: AsNodes = False, events: bool = True) -> Iterator[Need]:
    """The rights that joining takes."""
    if as_nodes == "strict":
        # To look at what is there, and what no node may do itself.
        yield from (Need(verb, "nodes") for verb in ("list", "delete"))
    else:
        yield from _own_needs(events)
    if as_nodes:
        yield from (Need("impersonate", what) for what in ("users", "groups"))


def _own_needs(events: bool) -> Iterator[Need]:
    for resource, verbs in {
        "nodes": ("get", "list", "watch", "create", "patch", "delete"),
        "nodes/status": ("patch",),
        "pods": ("list", "watch", "delete"),
        "pods/status": ("patch",),
        "events": ("create", "patch") if events else (),
    }.items():
        yield from (Need(verb, resource) for verb in verbs)
    for verb in ("get", "create", "update"):
        yield Need(verb, "leases", "coordination.k8s.io", _LEASES)


def shard_needs(namespace: str) -> Iterator[Need]:
    """The rights that claiming shards takes besides."""
    for verb in ("get", "create", "update"):
        yield Need(verb, "leases", "coordination.k8s.io", namespace)


def check(
    api: ApiClient, names: Collection[str], label: tuple[str, str], wanted: Iterable[Need]
) -> Findings:
    """Look at the cluster. ``label``: what our Nodes have.

    Raises ClusterError, in one line, if we cannot join; nothing was changed then.
    """
    try:
        version = str(api.attempt("GET", "/version").get("gitVersion", ""))
        _check_rights(api, wanted)
        return _look_at_nodes(api, set(names), label, version)
    except Unauthorized as error:
        text = f"the API server does not accept the credentials ({error.message or error.code})"
        raise ClusterError(f"{text}: they have expired, or are another cluster's") from None
    except ApiError as error:
        raise ClusterError(f"this is no API server that can be joined: {error}") from None
    except Unavailable as error:
        raise ClusterError(f"the API server cannot be reached at {api.url}: {error}") from None


def _check_rights(api: ApiClient, wanted: Iterable[Need]) -> None:
    missing = [need for need in wanted if not _may(api, need)]
    if missing:
        text = ", ".join(map(str, missing))
        raise ClusterError(f"rights are missing: {text}: deploy/join.yaml has a role with all")


def _may(api: ApiClient, need: Need) -> bool:
    resource, _, below = need.resource.partition("/")
    attributes = {"verb": need.verb, "group": need.group, "resource": resource}
    if below:
        attributes["subresource"] = below
    if need.namespace:
        attributes["namespace"] = need.namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.attempt("POST", _REVIEWS, review)
    status = answer.get("status")
    if not isinstance(status, dict):
        raise Unavailable(f"POST {_REVIEWS}: the answer has no status")
    return bool(status.get("allowed"))


def _look_at_nodes(
    api: ApiClient, names: set[str], label: tuple[str, str], version: str
) -> Findings:
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
        if provider and not provider.startswith(_LOCAL):
            cloud = cloud or f"node {metadata['name']} has providerID {provider}"
    if foreign:
        shown = ", ".join(sorted(foreign)[:3]) + (", …" if len(foreign) > 3 else "")
        raise ClusterError(
            f"{len(foreign)} of the names are nodes that are not ours (no label {key}={value}): "
            f"{shown}: choose another name"
        )
    return Findings(version, frozenset(existing), cloud)


def _nodes(api: ApiClient) -> Iterator[JsonObject]:
    for page in pages(api, "/api/v1/nodes"):
        yield from (each for each in list_items(page) if not defect(each))
