"""Authorization of requests.

All users have the same permissions, except nodes. For a node (user ``system:node:NAME``), the Node
authorizer and the role ``system:node`` decide.

The Node authorizer follows plugin/pkg/auth/authorizer/node/node_authorizer.go (v1.32). The role
``system:node`` follows rbac/bootstrappolicy/policy.go (v1.32). Both have rules only for the
resources of the fake API server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.kinds import Target

__all__ = [
    "Permission",
    "Permissions",
    "forbidden",
    "node_may",
    "node_of",
    "permission_for",
    "permissions_of",
]

_USER: Final = "system:node:"
_NODE_VERBS: Final[Mapping[str, frozenset[str]]] = {
    "nodes": frozenset({"create", "get", "list", "watch", "update", "patch"}),
    "nodes/status": frozenset({"update", "patch"}),
    "pods": frozenset({"create", "get", "list", "watch", "delete"}),
    "pods/status": frozenset({"update", "patch"}),
    "pods/eviction": frozenset({"create"}),
    "resourceclaims": frozenset({"get"}),
    "resourceslices": frozenset(
        {"create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"}
    ),
    "events": frozenset({"create", "update", "patch"}),
    "leases": frozenset({"create", "get", "update", "patch", "delete"}),
}
_NODE_SELECTORS: Final = {
    "nodes": "metadata.name",
    "pods": "spec.nodeName",
    "resourceslices": "spec.nodeName",
}
_NODE_OWN: Final = ("nodes", "leases")


@attrs.frozen(order=True)
class Permission:
    """Permission for one verb on one resource, as in the rules of a role."""

    group: str
    resource: str
    """Plural name with the subresource, such as ``pods/status``."""
    verb: str


def permissions_of(rules: Iterable[Mapping[str, Sequence[str]]]) -> frozenset[Permission]:
    """Return all permissions in the rules of a Role or ClusterRole."""
    return frozenset(
        Permission(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


class Permissions:
    """Permissions that all users have, and a record of the permissions that requests needed.

    Thread-safe.
    """

    def __init__(self, allowed: Iterable[Permission] | None = None) -> None:
        """Grant permissions to all users.

        ``allowed``: the permissions to grant; None grants all permissions.
        """
        self.allowed = None if allowed is None else frozenset(allowed)
        self._lock = threading.Lock()
        self._used: set[Permission] = set()

    @property
    def used(self) -> frozenset[Permission]:
        """The permissions that requests have needed so far, granted or not."""
        with self._lock:
            return frozenset(self._used)

    def forget(self) -> None:
        """Clear the record of the permissions that requests have needed (``used``)."""
        with self._lock:
            self._used.clear()

    def use(self, permission: Permission) -> bool:
        """Record that a request needs a permission; return True if it is granted."""
        with self._lock:
            self._used.add(permission)
        return self.allows(permission)

    def allows(self, permission: Permission) -> bool:
        """True if a permission is granted."""
        return self.allowed is None or permission in self.allowed

    def review(self, spec: Mapping[str, Any]) -> bool:
        """Return ``status.allowed`` for a SelfSubjectAccessReview with this ``spec``."""
        of = spec.get("resourceAttributes")
        if of is None:
            # Paths such as /version need no permission.
            return spec.get("nonResourceAttributes") is not None
        resource = "/".join(filter(None, (of.get("resource"), of.get("subresource"))))
        return self.allows(Permission(of.get("group") or "", resource, of.get("verb") or ""))


def permission_for(verb: str, target: Target) -> Permission:
    """Return the permission that a request needs: for ``verb`` on the resource of ``target``."""
    return Permission(target.kind.group, target.resource, verb)


def forbidden(user: str, verb: str, target: Target) -> StatusError:
    """Return the error 403 for a request for which the user has no permission."""
    where = f'in the namespace "{target.namespace}"' if target.namespace else None
    return StatusError(
        403,
        f"{target.kind.plural} is forbidden: "
        f'User "{user}" cannot {verb} resource "{target.resource}" '
        f'in API group "{target.kind.group}" {where or "at the cluster scope"}',
    )


def node_of(user: str | None) -> str | None:
    """Return the node's name for the user ``system:node:NAME``; None for any other user."""
    return user.removeprefix(_USER) if user is not None and user.startswith(_USER) else None


def node_may(node: str, verb: str, target: Target, query: Mapping[str, str]) -> bool:
    """True if the Node authorizer allows a request of the node ``node``.

    The verb must be one that nodes may use for the resource. In addition, a node may access only
    its own Node object and Lease, and list only its own pods and ResourceSlices.
    """
    plural = target.kind.plural
    if verb not in _NODE_VERBS.get(target.resource, ()):
        return False
    # The Node authorizer allows lists only with this selector (AuthorizeNodeWithSelectors).
    if verb in ("list", "watch", "deletecollection"):
        wanted = f"{_NODE_SELECTORS[plural]}={node}"
        return wanted in (query.get("fieldSelector") or "").split(",")
    return plural not in _NODE_OWN or target.name in ("", node)
