"""Read a cluster. Only LIST requests are sent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from devicemanager.apiserver.conversion import to_stored
from devicemanager.apiserver.kinds import KINDS, RESOURCE_GROUP, Kind
from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load
from devicemanager.client.errors import ApiError, NotFound
from devicemanager.client.reflector import pages
from devicemanager.fleet import fields
from devicemanager.fleet.model import Fleet, FleetError, Object
from devicemanager.snapshot.model import Part, Snapshot
from devicemanager.snapshot.writing import TIME, archive

__all__ = ["collect_fleet"]

_REQUIRED = ("nodes", "pods")


def collect_fleet(
    kubeconfig: str | os.PathLike[str] | None = None,
    *,
    context: str | None = None,
    snapshots: Mapping[str, Snapshot] | None = None,
) -> Fleet:
    """Read a cluster. Return a fleet with the cluster's objects and the given snapshots of nodes.

    Without ``kubeconfig``, use the first that exists: the environment variable ``KUBECONFIG``,
    ``~/.kube/config`` or the pod's service account. ``snapshots`` maps file names to the snapshots
    in the files.

    Raises FleetError if nodes or pods cannot be read, and for a snapshot of a node that the cluster
    does not have. Raises ClusterError if the server cannot be reached.
    """
    api = ApiClient(load(kubeconfig, context))
    try:
        return _collect(api, snapshots or {})
    finally:
        api.close()


def _collect(api: ApiClient, snapshots: Mapping[str, Snapshot]) -> Fleet:
    objects: dict[str, tuple[Object, ...]] = {}
    parts = []
    for plural in fields.KINDS:
        path, found, problem, absent = _read(api, KINDS[plural])
        # Without the other kinds, which RBAC may forbid, the results are only less complete.
        if problem and plural in _REQUIRED:
            raise FleetError(f"cannot read {plural} from {api.url}: {problem}")
        objects[plural] = found
        parts.append(Part(f"{plural}.json", path, problem or None, absent))
    return Fleet(
        time.strftime(TIME, time.gmtime()),
        metadata.version("kubelet-devicemanager"),
        api.url,
        tuple(parts),
        objects,
        dict(_archives(objects["nodes"], snapshots)),
    )


def _read(api: ApiClient, kind: Kind) -> tuple[str, tuple[Object, ...], str, bool]:
    """LIST the objects of a kind. Return the path of the request, the objects, the error (empty
    on success), and True if the server does not have the kind."""
    path = ""
    for version in (kind.api_version, *kind.others):
        path = f"/{'apis' if '/' in version else 'api'}/{version}/{kind.plural}"
        try:
            return path, tuple(_objects(api, path, kind, version)), "", False
        # An older server has the objects only in a beta version.
        except NotFound:
            continue
        except ApiError as error:
            return path, (), str(error), False
    return path, (), f"the server has no {kind.plural}", True


def _objects(api: ApiClient, path: str, kind: Kind, version: str) -> Iterator[Object]:
    wanted = fields.KINDS[kind.plural]
    for page in pages(api, path):
        for found in page["items"]:
            stored: Any = found
            if kind.group == RESOURCE_GROUP:
                # Converted, so that all later code knows only one version of the API.
                stored = to_stored(kind, version, {**found, "apiVersion": version})
            # Later code reads both fields of every object, but not every kind has them.
            yield {"spec": {}, "status": {}, **fields.kept(stored, wanted)}


def _archives(
    nodes: tuple[Object, ...], snapshots: Mapping[str, Snapshot]
) -> Iterator[tuple[str, bytes]]:
    # The kubelet's host name can differ from the name of its node.
    names = {
        (each["metadata"].get("labels") or {}).get("kubernetes.io/hostname"): each["metadata"][
            "name"
        ]
        for each in nodes
    }
    # Names of nodes come last, because they take precedence over host names.
    names |= {each["metadata"]["name"]: each["metadata"]["name"] for each in nodes}
    for file, snapshot in snapshots.items():
        if snapshot.node not in names:
            raise FleetError(f"{file}: the cluster has no node {snapshot.node}: omit this snapshot")
        yield names[snapshot.node], archive(snapshot)
