"""Create the nodes and pods of a fleet in a test cluster.

The nodes are virtual nodes: Node objects without machines, each with an in-memory kubelet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, Self, cast

import attrs

from devicemanager.apiserver.kinds import KINDS
from devicemanager.client.api import ApiClient
from devicemanager.client.errors import ApiError, Conflict
from devicemanager.cluster.driver_layouts import DriverLayout, recorded
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
    """Specifications of virtual nodes that are copies of a fleet's nodes.

    Each copy has the name, labels, taints, devices and resources of its original.
    """

    nodes: tuple[FleetNode, ...] = ()
    drivers_of: Mapping[str, tuple[DriverLayout, ...]] = attrs.field(factory=dict)
    """Mapping from node names to the simulated DRA drivers of each node."""

    @classmethod
    def of(cls, fleet: Fleet, base: NodeSpecs, changes: Configure) -> Self:
        """Return the specs of virtual nodes that copy the nodes of a fleet.

        ``base`` has the settings that a fleet does not store. ``changes`` has a kubelet version and
        settings of the Topology Manager that replace those of the nodes. At first, all devices are
        free, because the virtual nodes have no pods yet. Simulated drivers publish the
        ResourceSlices of each node. Raises FleetError for a node whose data cannot be used, and
        SnapshotError for an invalid snapshot.
        """
        # One clock for all nodes, because each clock has a thread for its timers.
        clock = SystemClock()
        nodes = [KubeletOfNode.of(node) for node in fleet.nodes]
        drivers = _drivers(fleet)

        def make(index: int) -> NodeKubelet:
            node = nodes[index]
            settings = node.settings(native_amounts(node.fleet_node), changes)
            inventory = node.node.inventory()
            devices = {str(name): tuple(each.values()) for name, each in inventory.items()}
            simulated = {each.driver: each.devices for each in drivers.get(names[index], ())}
            return InMemoryKubelet(settings, devices, clock=clock, drivers=simulated)

        def end(kubelet: NodeKubelet) -> None:
            cast(_Stoppable, kubelet).stop()

        names = [node.name for node in fleet.nodes]
        # Drivers of any node, because they decide which permissions are required.
        options = attrs.evolve(base.options, drivers=next(iter(drivers.values()), ()))
        return cls(names, make, end, options, base.behaviour, nodes=fleet.nodes, drivers_of=drivers)

    def options_of(self, index: int, *, as_nodes: bool, shard: int = 0) -> NodeOptions:
        """Return the options of the virtual node with this index, counted from 0.

        The virtual node gets the labels and taints of the fleet's node, and also the labels and
        taints from the command line. Taints that a control plane derives from the state of a node
        are left out.
        """
        options = super().options_of(index, as_nodes=as_nodes, shard=shard)
        node = self.nodes[index]
        own = [
            each
            for each in node.object["spec"].get("taints") or ()
            if not each["key"].startswith(_STATE)
        ]
        return attrs.evolve(
            options,
            # Labels from the command line replace labels of the fleet's node.
            labels={**(node.object["metadata"].get("labels") or {}), **options.labels},
            taints=(*options.taints, *own),
            drivers=self.drivers_of.get(node.name, ()),
            amounts={
                name: Quantity.parse(str(text)) for name, text in native_amounts(node).items()
            },
        )


def _drivers(fleet: Fleet) -> dict[str, tuple[DriverLayout, ...]]:
    """Return the layouts of the slices of each node, by node name."""
    slices: dict[str, list[Object]] = {}
    for each in fleet.all("resourceslices"):
        if node := each["spec"].get("nodeName"):
            slices.setdefault(node, []).append(each)
    return {node: recorded(each) for node, each in slices.items()}


def create_objects(api: ApiClient, fleet: Fleet, warn: Callable[[str], None]) -> int:
    """Create the running pods of a fleet, and before them the objects that pods use. Return the
    number of created pods.

    The objects are the pods' namespaces, the DeviceClasses, the ResourceSlices without
    ``nodeName``, the ResourceClaimTemplates, and the ResourceClaims that the pods name. Existing
    objects are not changed. Claims are not allocated: the scheduler allocates them again. ``warn``
    is called with one line for each object that the server rejects.
    """
    # A pod that has terminated would run again if it were created.
    pods = [pod for node in fleet.nodes for pod in node.running]
    for name in sorted({pod["metadata"]["namespace"] for pod in pods}):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        _create(api, "/api/v1/namespaces", body, warn)
    for kind, objects in _resources(fleet, pods):
        for each in objects:
            _create_resource(api, kind, each, warn)
    created = 0
    for pod in pods:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        created += _create(api, path, _pod(pod), warn)
    return created


def _resources(fleet: Fleet, pods: Iterable[Object]) -> Iterator[tuple[str, list[Object]]]:
    """Yield the objects of resource.k8s.io that the pods need, by plural name."""
    named = {
        (pod["metadata"]["namespace"], each.get("resourceClaimName"))
        for pod in pods
        for each in pod["spec"].get("resourceClaims") or ()
    }
    claims = fleet.all("resourceclaims")
    yield "deviceclasses", list(fleet.all("deviceclasses"))
    # The nodes publish their own slices.
    shared = [each for each in fleet.all("resourceslices") if not each["spec"].get("nodeName")]
    yield "resourceslices", shared
    yield "resourceclaimtemplates", list(fleet.all("resourceclaimtemplates"))
    # The cluster creates claims from templates again.
    yield "resourceclaims", [each for each in claims if _identity(each) in named]


def _identity(value: Object) -> tuple[str, str]:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def _create_resource(
    api: ApiClient, plural: str, value: Object, warn: Callable[[str], None]
) -> None:
    namespace, name = _identity(value)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = {"kind": KINDS[plural].name, "apiVersion": "resource.k8s.io/v1"}
    where = f"namespaces/{namespace}/{plural}" if namespace else plural
    body = {**kind, "metadata": metadata, "spec": value["spec"]}
    _create(api, f"/apis/resource.k8s.io/v1/{where}", body, warn)


def _create(
    api: ApiClient, path: str, body: Mapping[str, Any], warn: Callable[[str], None]
) -> bool:
    try:
        # Conflict means that the object exists already, such as the namespace ``default``.
        with contextlib.suppress(Conflict):
            api.request("POST", path, dict(body))
            return True
    except ApiError as error:
        warn(str(error))
    return False


def _pod(pod: Object) -> dict[str, Any]:
    # A test cluster does not have the service accounts of the pods.
    spec = {**pod["spec"], "automountServiceAccountToken": False}
    # For an extended resource that DRA provides, the scheduler itself creates the claim.
    if spec.get("resourceClaims") or pod["status"].get("extendedResourceClaimStatus"):
        spec |= _scheduled_to(spec.pop("nodeName"))
    # Without the UID, because the API server gives each new pod its own.
    metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _scheduled_to(node: str) -> dict[str, Any]:
    """Return the fields of a pod that the scheduler must bind to a node.

    Only the scheduler allocates claims, so the pod cannot be created with ``spec.nodeName``. As for
    pods of a DaemonSet, the affinity names the node.
    """
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    # The pod was on the node before, so its taints do not matter.
    return {"affinity": affinity, "tolerations": [{"operator": "Exists"}]}
