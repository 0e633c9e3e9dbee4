"""What a kubelet may do: the Node authorizer and the role ``system:node``, as far as the stub has
the resources (plugin/pkg/auth/authorizer/node/node_authorizer.go and
rbac/bootstrappolicy/policy.go, v1.32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from devicemanager.cluster.fake_apiserver.kinds import Target

__all__ = ["node_may", "node_of"]

_USER: Final = "system:node:"
_VERBS: Final[Mapping[str, frozenset[str]]] = {
    "nodes": frozenset({"create", "get", "list", "watch", "update", "patch"}),
    "nodes/status": frozenset({"update", "patch"}),
    "pods": frozenset({"create", "get", "list", "watch", "delete"}),
    "pods/status": frozenset({"update", "patch"}),
    "pods/eviction": frozenset({"create"}),
    "events": frozenset({"create", "update", "patch"}),
    "leases": frozenset({"create", "get", "update", "patch", "delete"}),
}
_SELECTORS: Final = {"nodes": "metadata.name", "pods": "spec.nodeName"}
_ONLY_OWN: Final = ("nodes", "leases")


def node_of(user: str | None) -> str | None:
    """The node that a user is; None for anybody else."""
    return user.removeprefix(_USER) if user is not None and user.startswith(_USER) else None


def node_may(node: str, verb: str, target: Target, query: Mapping[str, str]) -> bool:
    """Whether a node may do this: only with its own Node and Lease, and see only its own pods."""
    plural = target.kind.plural
    if verb not in _VERBS.get("/".join(filter(None, (plural, target.below))), ()):
        return False
    if verb in ("list", "watch"):
        return query.get("fieldSelector") == f"{_SELECTORS[plural]}={node}"
    return plural not in _ONLY_OWN or target.name in ("", node)
