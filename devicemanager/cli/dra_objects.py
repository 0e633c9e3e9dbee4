"""Objects of resource.k8s.io, nodes and pods: from files, an API server or a mock kubelet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import attrs

from devicemanager.cli.dra_files import SERVED, has_files, located_objects, served_objects
from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devicemanager.claims.dra import Node
    from devicemanager.cli.dra_files import Object

_KINDS = ("ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "Node", "Pod")


@attrs.define
class DraObjects:
    """Nodes, pods and objects of resource.k8s.io/v1, with the defaults that the API server sets."""

    slices: list[Object] = attrs.field(factory=list)
    classes: list[Object] = attrs.field(factory=list)
    claims: list[Object] = attrs.field(factory=list)
    templates: list[Object] = attrs.field(factory=list)
    nodes: list[Object] = attrs.field(factory=list)
    pods: list[Object] = attrs.field(factory=list)

    @classmethod
    def load(cls, args: argparse.Namespace) -> DraObjects:
        """Read the objects from the files, the API server or the mock kubelet that the arguments
        select.

        Raises CommandError for a mistake of the user, OSError for an unreadable file, and
        ClusterError or ApiError for an error of the API server.
        """
        if has_files(args):
            return cls.read(args.paths)
        found = cls()
        for where, value in served_objects(args, SERVED):
            # Already v1: a kubelet stores this version, and objects of an API server are converted
            # when they are read.
            found._add(where, value)
        return found

    @classmethod
    def read(cls, paths: Sequence[str]) -> DraObjects:
        """Read the objects in files and directories; ``-`` is standard input.

        Raises CommandError and OSError.
        """
        found = cls()
        for path, value in located_objects(paths):
            if not isinstance(value.get("kind"), str) or not value["kind"]:
                raise CommandError(f"{path}: not an object of the API: add apiVersion and kind")
            # Files can have older versions, but the allocator knows only v1.
            found._add(path, _as_v1(path, value))
        return found

    def _add(self, path: str, value: Object) -> None:
        from devicemanager.claims.dra import with_defaults

        kind = value["kind"]
        name = (value.get("metadata") or {}).get("name")
        if kind in _KINDS and not name:
            raise CommandError(f"{path}: {kind} without metadata.name: add a name")
        if kind == "ResourceSlice":
            self.slices.append(value)
        elif kind == "DeviceClass":
            # All fields of the spec are optional, so a file can omit the spec. The allocator needs
            # it.
            self.classes.append({"spec": {}, **value})
        elif kind == "Node":
            self.nodes.append(value)
        elif kind == "ResourceClaim":
            self.claims.append(with_defaults(_in_namespace(value)))
        elif kind == "ResourceClaimTemplate":
            self.templates.append(_in_namespace(value))
        elif kind == "Pod":
            self.pods.append(_in_namespace(value))

    def candidates(self) -> list[Object]:
        """Return all claims. For each template, also return a claim with the name and the spec of
        the template."""
        return [*self.claims, *map(_claim_of, self.templates)]

    def pod(self, name: str) -> Object:
        """Return a pod by name, namespace/name or UID. Raises CommandError for an unknown pod."""
        for pod in self.pods:
            metadata = pod["metadata"]
            title = f"{metadata['namespace']}/{metadata['name']}"
            if name in (metadata["name"], title, metadata.get("uid")):
                return pod
        known = ", ".join(each["metadata"]["name"] for each in self.pods) or "none"
        raise CommandError(f"unknown pod {name!r}: the objects have the pods {known}")

    def node(self, name: str | None) -> Node:
        """Return the node with this name. If ``name`` is None, return the only node.

        The nodes are those of the Node objects and of the ResourceSlices. A node without a Node
        object has only a name. Raises CommandError if ``name`` is None and the number of nodes is
        not one.
        """
        from devicemanager.claims.dra import Node

        known = {each["metadata"]["name"]: each for each in self.nodes}
        names = {*known, *(each["spec"]["nodeName"] for each in self.slices if _node(each))}
        if name is None:
            if len(names) != 1:
                found = f"name the nodes {', '.join(sorted(names))}" if names else "name no node"
                raise CommandError(f"the objects {found}: select one with --node")
            (name,) = names
        return Node.of(known[name]) if name in known else Node(name)


def _in_namespace(value: Object) -> Object:
    # As kubectl does for a manifest without a namespace.
    return {**value, "metadata": {"namespace": "default", **value["metadata"]}}


def _claim_of(template: Object) -> Object:
    from devicemanager.claims.dra import with_defaults

    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    spec = (template.get("spec") or {}).get("spec") or {}
    return with_defaults({**claim, "metadata": template["metadata"], "spec": spec})


def _node(slice_: Object) -> str:
    return str((slice_.get("spec") or {}).get("nodeName") or "")


def _as_v1(path: str, value: Object) -> Object:
    from devicemanager.apiserver.conversion import to_stored
    from devicemanager.apiserver.kinds import KINDS, RESOURCE_GROUP

    group, _, version = str(value.get("apiVersion")).partition("/")
    if group != RESOURCE_GROUP:
        return value
    kind = next((each for each in KINDS.values() if each.name == value["kind"]), None)
    if kind is None or version not in ("v1", "v1beta1", "v1beta2"):
        raise CommandError(
            f"{path}: {value['kind']} of {value['apiVersion']} is unknown: use v1, v1beta2 or"
            f" v1beta1 of {RESOURCE_GROUP}"
        )
    return to_stored(kind, str(value["apiVersion"]), value)
