"""Resource types of the API server, their versions, and the parsing of API paths."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

import attrs

__all__ = ["KINDS", "RESOURCE_GROUP", "Kind", "Kinds", "Target", "target"]

RESOURCE_GROUP: Final = "resource.k8s.io"


@attrs.frozen
class Kind:
    """A resource type, such as Pod. Its objects are stored at ``version``."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True
    others: tuple[str, ...] = ()
    """Other values of ``apiVersion`` that clients can use for objects of this type.

    The tuple does not contain ``api_version``, at which objects are stored.
    """
    subresources: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    """Short names, such as ``po``."""
    categories: tuple[str, ...] = ()
    """Names for groups of resources, such as ``all`` in ``kubectl get all``."""

    @property
    def api_version(self) -> str:
        """``apiVersion`` of stored objects of this type, such as ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Plural name with the group, such as ``jobs.batch``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """True if the kind has the subresource ``status``."""
        return "status" in self.subresources


@attrs.frozen
class Target:
    """The collection, object or subresource that an API path names."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    version: str = ""
    """``apiVersion`` of the request; empty means the stored version."""

    @property
    def resource(self) -> str:
        """Resource with subresource as in RBAC, such as ``pods/status``."""
        return "/".join(filter(None, (self.kind.plural, self.subresource)))

    @property
    def api_version(self) -> str:
        """``apiVersion`` of objects in the request and the response."""
        return self.version or self.kind.api_version


def _resource(plural: str, name: str, *, namespaced: bool = True, status: bool = False) -> Kind:
    return Kind(
        RESOURCE_GROUP,
        "v1",
        plural,
        name,
        namespaced,
        others=(f"{RESOURCE_GROUP}/v1beta2", f"{RESOURCE_GROUP}/v1beta1"),
        subresources=("status",) if status else (),
    )


_ALL: Final = (
    Kind("", "v1", "nodes", "Node", namespaced=False, subresources=("status",), short=("no",)),
    Kind("", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",)),
    Kind(
        "",
        "v1",
        "pods",
        "Pod",
        subresources=("status", "binding", "eviction", "resize", "ephemeralcontainers"),
        short=("po",),
        categories=("all",),
    ),
    # Both groups contain the same events, with different field names.
    Kind("", "v1", "events", "Event", others=("events.k8s.io/v1",), short=("ev",)),
    Kind("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "resourcequotas", "ResourceQuota", subresources=("status",), short=("quota",)),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind("batch", "v1", "jobs", "Job", categories=("all",)),
    Kind(
        "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", False
    ),
    Kind(
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
    ),
    _resource("resourceslices", "ResourceSlice", namespaced=False),
    _resource("resourceclaims", "ResourceClaim", status=True),
    _resource("resourceclaimtemplates", "ResourceClaimTemplate"),
    _resource("deviceclasses", "DeviceClass", namespaced=False),
    Kind(
        RESOURCE_GROUP,
        "v1",
        "devicetaintrules",
        "DeviceTaintRule",
        namespaced=False,
        others=(f"{RESOURCE_GROUP}/v1beta2",),
        subresources=("status",),
    ),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        subresources=("status",),
        short=("crd", "crds"),
    ),
)
KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.plural: kind for kind in _ALL})


class Kinds:
    """Table of the resource types that a server supports. Thread-safe.

    These are the built-in types and the types that CustomResourceDefinitions define.
    """

    def __init__(self, hidden: Iterable[str] = ()) -> None:
        """Create a table with the built-in resource types.

        ``hidden``: values of ``apiVersion`` that are not served, such as ``resource.k8s.io/v1``.
        """
        self.hidden = frozenset(hidden)
        self._lock = threading.Lock()
        self._kinds: tuple[Kind, ...] = _ALL

    def copied(self) -> Kinds:
        """Return a copy of this table of resource types."""
        found = Kinds(self.hidden)
        found._kinds = self.all()
        return found

    def all(self) -> tuple[Kind, ...]:
        """Return all kinds."""
        with self._lock:
            return self._kinds

    def add(self, kind: Kind) -> None:
        """Add a kind. It replaces a kind with the same group and plural name."""
        with self._lock:
            others = [each for each in self._kinds if each.qualified != kind.qualified]
            self._kinds = (*others, kind)

    def remove(self, qualified: str) -> None:
        """Remove the kind with a qualified name such as ``jobs.batch``, if it exists."""
        with self._lock:
            self._kinds = tuple(each for each in self._kinds if each.qualified != qualified)

    def define(self, definition: Mapping[str, Any]) -> Kind:
        """Add the kind that a CustomResourceDefinition defines, and return the kind.

        Raises ValueError if the definition has no group, names or served version.
        """
        kind = _defined(definition)
        self.add(kind)
        return kind

    def named(self, name: str) -> Kind:
        """Return the kind with a plural name such as ``jobs`` or ``jobs.batch``.

        Raises KeyError for an unknown name.
        """
        for kind in self.all():
            if name in (kind.plural, kind.qualified):
                return kind
        raise KeyError(name)

    def of(self, api_version: str, name: str) -> tuple[Kind, str] | None:
        """Return ``(kind, api_version)`` for the kind ``name``, such as ``Pod``.

        Return None if the server does not serve the kind at ``api_version``.
        """
        for kind in self.all():
            if kind.name == name and api_version in self.versions(kind):
                return kind, api_version
        return None

    def versions(self, kind: Kind) -> list[str]:
        """Return the values of ``apiVersion`` at which a kind is served; the preferred one is
        first."""
        return [each for each in (kind.api_version, *kind.others) if each not in self.hidden]

    def target(self, path: str) -> Target | None:
        """Return the collection, object or subresource that an API path names.

        An example of a path is ``/api/v1/namespaces/default/pods/a/status``. Return None if the
        server does not serve the resource.
        """
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "api" and len(parts) > 2:
            version, rest = parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            version, rest = "/".join(parts[1:3]), parts[3:]
        else:
            return None
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        for kind in self.all():
            if kind.plural == rest[0] and version in self.versions(kind):
                break
        else:
            return None
        if len(rest) > 3 or (namespace and not kind.namespaced):
            return None
        name, subresource, *_ = *rest[1:], "", ""
        return Target(kind, namespace, name, subresource, version)


def _defined(definition: Mapping[str, Any]) -> Kind:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    versions = [each for each in spec.get("versions") or () if each.get("served", True)]
    if not (spec.get("group") and names.get("plural") and names.get("kind") and versions):
        raise ValueError(
            "invalid CustomResourceDefinition: spec.group, spec.names.plural, spec.names.kind and "
            "a served version in spec.versions are required"
        )
    stored = next((each for each in versions if each.get("storage")), versions[0])
    return Kind(
        spec["group"],
        stored["name"],
        names["plural"],
        names["kind"],
        spec.get("scope", "Namespaced") == "Namespaced",
        others=tuple(f"{spec['group']}/{each['name']}" for each in versions if each is not stored),
        subresources=("status",) if "status" in (stored.get("subresources") or {}) else (),
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
    )


_BUILT_IN: Final = Kinds()


def target(path: str) -> Target | None:
    """Return the collection, object or subresource that an API path names.

    Return None if the path names no resource of a built-in kind.
    """
    return _BUILT_IN.target(path)
