"""Resource types of the fake API server, and the parsing of API paths."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

import attrs

__all__ = ["KINDS", "Kind", "Target", "target"]


@attrs.frozen
class Kind:
    """A resource type, such as Pod."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` of objects of this type, such as ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


@attrs.frozen
class Target:
    """The collection, object or subresource that an API path names."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """Resource with subresource as in RBAC, such as ``pods/status``."""
        return "/".join(filter(None, (self.kind.plural, self.subresource)))


_ALL: Final = (
    Kind("", "v1", "nodes", "Node", namespaced=False),
    Kind("", "v1", "namespaces", "Namespace", namespaced=False),
    Kind("", "v1", "pods", "Pod"),
    Kind("", "v1", "events", "Event"),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind("batch", "v1", "jobs", "Job"),
    Kind(
        "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", False
    ),
    Kind(
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
    ),
)
KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.plural: kind for kind in _ALL})
_BY_PATH: Final = {(kind.group, kind.version, kind.plural): kind for kind in _ALL}


def target(path: str) -> Target | None:
    """Parse an API path such as ``/api/v1/namespaces/default/pods/a/status``.

    Returns None if the path names no known resource.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    kind = _BY_PATH.get((group, version, rest[0]))
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        return None
    return Target(kind, namespace, *rest[1:])
