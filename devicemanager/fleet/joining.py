"""Create the nodes of a fleet as virtual nodes in a test cluster, and its pods."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, cast

import attrs

from devicemanager.client.api import ApiClient
from devicemanager.client.errors import ApiError, Conflict
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.node_specs import NodeSpecs
from devicemanager.cluster.options import NodeOptions
from devicemanager.core.quantity import Quantity
from devicemanager.fleet.kubelets import KubeletOfNode, native_amounts
from devicemanager.fleet.model import Fleet, FleetNode, Object
from devicemanager.io.clock import SystemClock
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.rehearsal import Configure

__all__ = ["FleetSpecs", "create_objects"]

# The control plane sets these taints from the state of a node.
_STATE = "node.kubernetes.io/"


class _Stoppable(Protocol):
    def stop(self) -> None: ...


@attrs.frozen
class FleetSpecs(NodeSpecs):
    """Nodes with the names, labels, taints, devices and resources of a fleet's nodes."""

    nodes: tuple[FleetNode, ...] = ()

    @classmethod
    def of(cls, fleet: Fleet, base: NodeSpecs, changes: Configure) -> Self:
        """Return the specs of a fleet's nodes, with all other settings from ``base``.

        ``changes`` has other versions or policies of the kubelets. The devices of each node are
        free: they are allocated again when pods arrive. Raises FleetError, and SnapshotError for an
        invalid snapshot.
        """
        clock = SystemClock()
        nodes = [KubeletOfNode.of(node) for node in fleet.nodes]

        def make(index: int) -> NodeKubelet:
            node = nodes[index]
            settings = node.settings(native_amounts(node.fleet_node), changes)
            inventory = node.node.inventory()
            devices = {str(name): tuple(each.values()) for name, each in inventory.items()}
            return InMemoryKubelet(settings, devices, clock=clock)

        def end(kubelet: NodeKubelet) -> None:
            cast(_Stoppable, kubelet).stop()

        names = [node.name for node in fleet.nodes]
        return cls(names, make, end, base.options, base.behaviour, nodes=fleet.nodes)

    def options_of(self, index: int, *, as_nodes: bool, shard: int = 0) -> NodeOptions:
        """Return the options of a node: its labels and taints, and those of the command line."""
        options = super().options_of(index, as_nodes=as_nodes, shard=shard)
        node = self.nodes[index]
        own = [
            each
            for each in node.object["spec"].get("taints") or ()
            if not each["key"].startswith(_STATE)
        ]
        return attrs.evolve(
            options,
            labels={**(node.object["metadata"].get("labels") or {}), **options.labels},
            taints=(*options.taints, *own),
            amounts={
                name: Quantity.parse(str(text)) for name, text in native_amounts(node).items()
            },
        )


def create_objects(api: ApiClient, fleet: Fleet, warn: Callable[[str], None]) -> int:
    """Create the DeviceClasses, ResourceSlices and running pods of a fleet. Return the number of
    pods.

    Existing objects are not changed. Pods with claims are left out, because virtual nodes have no
    DRA drivers. ``warn`` gets one line for each object that the server rejects.
    """
    resource = "/apis/resource.k8s.io/v1"
    for plural, kind in (("deviceclasses", "DeviceClass"), ("resourceslices", "ResourceSlice")):
        for each in fleet.all(plural):
            body = {**_without_identity(each), "apiVersion": "resource.k8s.io/v1", "kind": kind}
            _create(api, f"{resource}/{plural}", body, warn)
    pods = [pod for node in fleet.nodes for pod in node.running]
    for name in sorted({pod["metadata"]["namespace"] for pod in pods}):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        _create(api, "/api/v1/namespaces", body, warn)
    created = 0
    for pod in pods:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if pod["spec"].get("resourceClaims"):
            warn(f"pod {name} is left out: it has claims")
            continue
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        created += _create(api, path, _pod(pod), warn)
    return created


def _create(
    api: ApiClient, path: str, body: Mapping[str, Any], warn: Callable[[str], None]
) -> bool:
    try:
        with contextlib.suppress(Conflict):
            api.request("POST", path, dict(body))
            return True
    except ApiError as error:
        warn(str(error))
    return False


def _without_identity(value: Object) -> dict[str, Any]:
    metadata = {"name": value["metadata"]["name"]}
    return {"metadata": metadata, "spec": value["spec"]}


def _pod(pod: Object) -> dict[str, Any]:
    # A test cluster does not have the service accounts of the pods.
    spec = {**pod["spec"], "automountServiceAccountToken": False}
    metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
