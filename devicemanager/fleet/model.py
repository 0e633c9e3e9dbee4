"""A fleet in memory: the objects of a cluster, by kind and by node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.core.versions.version import KubeletVersion, VersionError
from devicemanager.snapshot.model import Part

__all__ = ["Fleet", "FleetError", "FleetNode", "Object"]

Object: TypeAlias = Mapping[str, Any]
"""API object, such as a Pod, as JSON, with only the fields that the module ``fields`` lists."""

_VERSION = re.compile(r"v?1\.\d+(\.\d+)?")
_ENDED = ("Succeeded", "Failed")


class FleetError(RequestError):
    """Error for a cluster, an archive or a pod that cannot be used. The text is one line."""


@attrs.frozen
class FleetNode:
    """One node of a fleet: its Node object, its pods, and its snapshot, which can be missing."""

    object: Object
    """The Node object."""
    pods: tuple[Object, ...] = ()
    """Pods bound to the node, including terminated ones, sorted by time of creation."""
    archive: bytes | None = None
    """Bytes of the node's snapshot archive; None if the fleet has no snapshot of the node."""

    @property
    def name(self) -> str:
        """Name of the Node object."""
        return str(self.object["metadata"]["name"])

    @property
    def running(self) -> tuple[Object, ...]:
        """Pods that have not terminated."""
        return tuple(pod for pod in self.pods if pod["status"].get("phase") not in _ENDED)

    @property
    def version(self) -> KubeletVersion | None:
        """Version of the kubelet; None if the node does not report one, or if devicemanager does
        not know it."""
        text = str(self.object["status"].get("nodeInfo", {}).get("kubeletVersion", ""))
        found = _VERSION.match(text)
        try:
            # Distributions add a suffix, such as -gke.100.
            return KubeletVersion.parse(found[0]) if found else None
        except VersionError:
            return None


@attrs.frozen(slots=False)
class Fleet:
    """Objects read from a cluster, and snapshots of its nodes."""

    taken: str
    """Time at which the cluster was read, in UTC, such as ``2026-01-31T12:00:00Z``."""
    tool: str
    """Version of devicemanager that read the cluster."""
    server: str
    """URL of the API server."""
    parts: tuple[Part, ...] = ()
    """Results of reading the cluster, one ``Part`` for each kind of object. A ``Part`` has the path
    of the LIST request, and the reason if the objects could not be read."""
    objects: Mapping[str, tuple[Object, ...]] = attrs.field(factory=dict)
    """Mapping from the plural name of each kind, such as ``nodes``, to the objects of the kind."""
    archives: Mapping[str, bytes] = attrs.field(factory=dict)
    """Mapping from node names to the bytes of the nodes' snapshot archives."""

    def all(self, plural: str) -> tuple[Object, ...]:
        """Return the objects of the kind with this plural name, such as ``nodes``.

        The result is empty if the objects could not be read.
        """
        return self.objects.get(plural, ())

    @cached_property
    def nodes(self) -> tuple[FleetNode, ...]:
        """The nodes with their pods, sorted by node name."""
        pods: dict[str, list[Object]] = {}
        for pod in self.all("pods"):
            # Pods without a node get an empty key, which no node looks up.
            pods.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        return tuple(self._nodes(pods))

    def _nodes(self, pods: Mapping[str, list[Object]]) -> Iterator[FleetNode]:
        for node in sorted(self.all("nodes"), key=_name):
            name = _name(node)
            # By age, as the kubelet sorts the pods that it admits after a restart.
            here = sorted(pods.get(name, ()), key=_age)
            yield FleetNode(node, tuple(here), self.archives.get(name))


def _name(value: Object) -> str:
    return str(value["metadata"]["name"])


def _age(pod: Object) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    # API times have a resolution of one second, so the names decide between equal times.
    return metadata.get("creationTimestamp") or "", metadata.get("namespace", ""), metadata["name"]
