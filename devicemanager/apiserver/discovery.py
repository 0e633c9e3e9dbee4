"""Discovery documents: ``/api``, ``/apis``, API groups, the resources of a version, and OpenAPI.

The OpenAPI documents have no schemas. They only say that the server supports ``fieldValidation``.
Therefore kubectl does not look for unknown fields itself, but leaves this to the server.
"""

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
    """Return the discovery document at a path; None for any other path.

    Clients request aggregated discovery first. This server does not serve it, so clients then
    request these documents.
    """
    parts = path.strip("/").split("/")
    if parts[:2] == ["openapi", "v3"]:
        return _openapi("/".join(parts[2:]), kinds)
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
    if kind.categories:
        row["categories"] = list(kind.categories)
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


def _openapi(path: str, kinds: Kinds) -> dict[str, Any] | None:
    """Return the index of the OpenAPI documents, or the document of a version.

    ``path``: such as ``apis/resource.k8s.io/v1``; empty for the index.
    """
    versions = {each for kind in kinds.all() for each in kinds.versions(kind)}
    roots = {f"apis/{each}" if "/" in each else f"api/{each}": each for each in versions}
    if not path:
        links = {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in sorted(roots)}
        return {"paths": links}
    if path not in roots:
        return None
    own = [kind for kind in kinds.all() if roots[path] in kinds.versions(kind)]
    return {
        "openapi": "3.0.0",
        "info": {"title": "devicemanager", "version": "unversioned"},
        "paths": dict(_patch(path, kind) for kind in own),
    }


def _patch(root: str, kind: Kind) -> tuple[str, dict[str, Any]]:
    *_, group, version = ["", *root.split("/")[1:]]
    below = "namespaces/{namespace}/" if kind.namespaced else ""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    operation = {
        "operationId": f"patch{kind.name}",
        "parameters": [parameter],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": {
            "group": group,
            "version": version,
            "kind": kind.name,
        },
    }
    return f"/{root}/{below}{kind.plural}/{{name}}", {"patch": operation}
