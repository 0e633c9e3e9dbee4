"""Find the names of the pods in a checkpoint, which contains only their UIDs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from checkpoint import Checkpoint, PodDevicesEntry
from checkpoint.dra import ClaimState
from devicemanager.snapshot.model import PodDirectories, SnapshotError
from podresources.values import Pod, ids_by_resource

__all__ = [
    "Names",
    "from_claims",
    "from_directories",
    "from_kubectl",
    "from_pod_resources",
    "ids_of",
    "matches",
]

Names: TypeAlias = Mapping[str, str]
"""Names of pods as ``namespace/name``, by UID."""

# A static pod has two UIDs: one on its node, computed from its manifest, and another one in the
# API. Its annotations contain the UID of the node.
_STATIC = ("kubernetes.io/config.hash", "kubernetes.io/config.mirror")


def from_directories(directories: PodDirectories | None) -> Names:
    """Return the names of the pods that have a directory for container logs, by UID."""
    logged = () if directories is None else directories.logged
    return {pod.uid: f"{pod.namespace}/{pod.name}" for pod in logged}


def from_pod_resources(saved: Checkpoint, pods: Iterable[Pod]) -> Names:
    """Return the names of the checkpoint's pods, found by comparing their devices with
    PodResources.

    PodResources has names, but no UIDs. The function ``matches`` decides which pods match a UID. A
    UID that matches several pods gets no name.
    """
    found = matches(saved, pods)
    return {uid: name for uid, names in found.items() if len(names) == 1 for name in names}


def from_claims(claims: Iterable[ClaimState], pods: Iterable[Pod]) -> Names:
    """Return the names of the pods that hold claims, found by comparing the claims with
    PodResources.

    A claim that several pods share gives no name.
    """
    users: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        for container in pod.containers:
            for used in container.dynamic_resources:
                key = (used.claim_namespace, used.claim_name)
                users.setdefault(key, set()).add(f"{pod.namespace}/{pod.name}")
    names: dict[str, str] = {}
    for claim in claims:
        found = users.get((claim.namespace, claim.name), set())
        # With more pods on either side, nothing shows which UID has which name.
        if len(claim.pods) == len(found) == 1:
            names |= {uid: name for uid in claim.pods for name in found}
    return names


def matches(saved: Checkpoint, pods: Iterable[Pod]) -> Mapping[str, frozenset[str]]:
    """Return, for each UID in the checkpoint, the names of the matching pods in PodResources.

    A pod matches a UID if a checkpoint entry with this UID matches a container of the pod. The
    entry and the container must have the same container name, and the same devices of the
    entry's resource. UIDs without a matching pod are left out.
    """
    # Container name, resource and devices together are almost always unique on a node.
    holdings: dict[tuple[str, str, frozenset[str]], set[str]] = {}
    for pod in pods:
        for container in pod.containers:
            for resource, ids in ids_by_resource(container.devices).items():
                holding = (container.name, resource, frozenset(ids))
                holdings.setdefault(holding, set()).add(f"{pod.namespace}/{pod.name}")
    found: dict[str, set[str]] = {}
    for entry in saved.entries or ():
        holding = (entry.container_name, entry.resource_name, ids_of(entry))
        found.setdefault(entry.pod_uid, set()).update(holdings.get(holding, ()))
    return {uid: frozenset(names) for uid, names in found.items() if names}


def ids_of(entry: PodDevicesEntry) -> frozenset[str]:
    """Return the device IDs of a checkpoint entry, without duplicates."""
    return frozenset(id_ for ids in (entry.device_ids or {}).values() for id_ in ids or ())


def from_kubectl(data: bytes, source: str) -> Names:
    """Return the pod names in the output of ``kubectl get pods -o json``, for one pod or a list.

    ``source`` is the file's name in errors. Raises SnapshotError for any other data.
    """
    try:
        content = json.loads(data)
    # RecursionError: the file is untrusted, and its lists can be nested very deeply.
    except (ValueError, RecursionError):
        raise SnapshotError(f"{source}: not JSON: {_EXPECTED}") from None
    return dict(_pods(content, source))


_EXPECTED = "expected the output of `kubectl get pods --all-namespaces -o json`"


def _pods(content: Any, source: str) -> Iterator[tuple[str, str]]:
    # `kubectl get pod NAME -o json` prints the pod itself, not a list.
    items = content.get("items", [content]) if isinstance(content, dict) else None
    if not isinstance(items, list):
        raise SnapshotError(f"{source}: no list of pods: {_EXPECTED}")
    for item in items:
        metadata = _mapping(_mapping(item).get("metadata"))
        uid, name = metadata.get("uid"), metadata.get("name")
        if not isinstance(uid, str) or not isinstance(name, str):
            raise SnapshotError(f"{source}: a pod without name or UID: {_EXPECTED}")
        title = f"{metadata.get('namespace') or 'default'}/{name}"
        yield uid, title
        # The checkpoint of a static pod has the UID of the node, so add both UIDs.
        annotations = _mapping(metadata.get("annotations"))
        for key in _STATIC:
            if isinstance(static := annotations.get(key), str):
                yield static, title


def _mapping(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
