"""Discovery documents: ``/api``, ``/apis``, API groups, and the resources of a version."""

from __future__ import annotations

from typing import Any, Final

from devicemanager.apiserver.kinds import Kind, Kinds

__all__ = ["document"]

_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
_SUBRESOURCE_VERBS: Final = dict.fromkeys(
    ("status", "resize", "ephemeralcontainers"), ("get", "patch", "update")
)


def document(path: str, kinds: Kinds) -> dict[str, Any] | None:
    """Return the discovery document at a path; None if the path has none.

    Clients request aggregated discovery first. This server does not serve it, so clients then
    request these documents.
    """
    parts = path.strip("/").split("/")
    if parts[0] not in ("api", "apis") or len(parts) > 3:
        return None
    groups = _groups(kinds)
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            rows = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}
        case ["apis", name] if name in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, groups[name])}
        case ["api", _] | ["apis", _, _]:
            return _resources("/".join(parts[1:]), kinds)
    return None


def _groups(kinds: Kinds) -> dict[str, list[str]]:
    """Return the versions of each group; the preferred version is first."""
    found: dict[str, list[str]] = {}
    for kind in kinds.all():
        for api_version in kinds.versions(kind):
            group = api_version.rpartition("/")[0]
            versions = found.setdefault(group, [])
            if api_version not in versions:
                versions.append(api_version)
    return found


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    rows = [
        {"groupVersion": each, "version": each.rpartition("/")[2]}
        # Stable versions come first, even if only one kind of the group has them.
        for each in sorted(versions, key=lambda each: "alpha" in each or "beta" in each)
    ]
    return {"name": name, "versions": rows, "preferredVersion": rows[0]}


def _resources(api_version: str, kinds: Kinds) -> dict[str, Any] | None:
    found = [kind for kind in kinds.all() if api_version in kinds.versions(kind)]
    if not found:
        return None
    rows = [row for kind in sorted(found, key=lambda kind: kind.plural) for row in _rows(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": rows,
    }


def _rows(kind: Kind) -> list[dict[str, Any]]:
    row: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(_VERBS),
    }
    if kind.short:
        row["shortNames"] = list(kind.short)
    below = [
        {
            "name": f"{kind.plural}/{each}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": list(_SUBRESOURCE_VERBS.get(each, ("create",))),
        }
        for each in kind.subresources
    ]
    return [row, *below]
