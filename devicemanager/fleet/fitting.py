"""How many copies of a pod fit on each node.

A node must match the pod's node selector and required node affinity, and the pod must tolerate the
taints of the node. Then copies of the pod are tried, one after another. For each copy, an in-memory
kubelet with all pods of the node must admit the copy. Then the ResourceClaims of the copy are
allocated by the rules of the scheduler. The count ends at the first copy that is rejected or whose
claims cannot be allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter

import attrs

from devicemanager.apiserver.scheduler import tolerates
from devicemanager.claims.dra import Allocator, InUse, Node, with_defaults
from devicemanager.claims.dra.errors import AllocationError
from devicemanager.claims.dra.nodes import selects
from devicemanager.claims.dra.pods import claim_from_template, missing_templates
from devicemanager.claims.errors import TryAgain
from devicemanager.core.ids import PodUid
from devicemanager.core.pods import Pod, pod_requests
from devicemanager.core.quantity import NANOS, NANOS_PER_MILLI, parse_quantity
from devicemanager.fleet.kubelets import KubeletOfNode
from devicemanager.fleet.model import Fleet, FleetError, FleetNode, Object
from devicemanager.fleet.parallel import in_processes
from devicemanager.objects.manifests import ManifestError, parse

__all__ = ["Candidate", "NodeFit", "fit", "quota"]


@attrs.frozen(slots=False)
class Candidate:
    """A pod that may fit on nodes, with the objects that are necessary to allocate its claims."""

    object: Object
    """Pod manifest, with ``metadata.namespace``."""
    claims: tuple[Object, ...] = ()
    """ResourceClaims of the pod, created from the templates that the pod names."""
    slices: tuple[Object, ...] = ()
    classes: tuple[Object, ...] = ()
    allocated: tuple[Object, ...] = ()
    """All claims in the cluster. The devices allocated to them are in use."""

    @classmethod
    def of(cls, fleet: Fleet, pod: Object, templates: Iterable[Object] = ()) -> Candidate:
        """Create the candidate for a pod. ``templates`` are ResourceClaimTemplates in addition to
        those of the cluster.

        Raises FleetError for an invalid pod, for an unknown template, and for a claim that is not
        from a template.
        """
        # A manifest in a file can lack both fields: the API server sets them at creation.
        metadata = {"namespace": "default", "uid": "fits", **(pod.get("metadata") or {})}
        pod = {**pod, "metadata": metadata}
        try:
            parse(pod)
        except ManifestError as error:
            raise FleetError(str(error)) from None
        # The given templates come last, because they replace templates of the same name.
        known = {_key(each): each for each in (*fleet.all("resourceclaimtemplates"), *templates)}
        return cls(
            pod,
            tuple(_claims(pod, known)),
            fleet.all("resourceslices"),
            fleet.all("deviceclasses"),
            fleet.all("resourceclaims"),
        )

    @cached_property
    def pod(self) -> Pod:
        """The pod without its claims, because the in-memory kubelet cannot prepare claims."""
        pod = parse(self.object)
        strip = partial(attrs.evolve, claims=(), claim_requests=())
        return attrs.evolve(
            pod,
            resource_claims={},
            containers=tuple(map(strip, pod.containers)),
            init_containers=tuple(map(strip, pod.init_containers)),
        )

    def copy(self, number: int) -> Pod:
        """Return a copy of the pod. ``number`` makes the name and the UID of the copy unique."""
        name = f"{self.pod.name}-{number}"
        return attrs.evolve(self.pod, name=name, uid=PodUid(f"fits-{name}"))


@attrs.frozen
class NodeFit:
    """One node of a fleet, and how many copies of a ``Candidate`` pod fit on it."""

    node: str
    pods: int
    reason: str
    """Reason why no more copies fit; empty if all copies that were tried fit."""


def fit(
    fleet: Fleet, candidate: Candidate, replicas: int, processes: int | None = None
) -> Iterable[NodeFit]:
    """Return how many copies of a pod fit on each node: one ``NodeFit`` per node, sorted by name.

    ``replicas`` is the number of copies to try on each node. Each node is counted alone, so the sum
    over all nodes can exceed ``replicas``. Raises FleetError for a node whose data cannot be used,
    and SnapshotError for an invalid snapshot.
    """
    work = partial(_fit_on, candidate=candidate, replicas=replicas)
    return in_processes(work, fleet.nodes, processes)


def _fit_on(node: FleetNode, *, candidate: Candidate, replicas: int) -> NodeFit:
    if reason := _excluded(node.object, candidate.object):
        return NodeFit(node.name, 0, reason)
    # After the checks above, because a kubelet with all pods takes much longer to create.
    kubelet = KubeletOfNode.of(node).kubelet_with_pods()
    claims = _Claims(candidate, Node.of(node.object))
    for number in range(replicas):
        # Admission alone allocates the devices, so the containers need not start.
        admission = kubelet.admit(candidate.copy(number), start=False)
        if not admission.admitted:
            info = kubelet.pod(candidate.copy(number).uid)
            return NodeFit(node.name, number, f"{info.reason}: {info.message}")
        if reason := claims.allocate():
            return NodeFit(node.name, number, reason)
    return NodeFit(node.name, replicas, "")


def _excluded(node: Object, pod: Object) -> str:
    """Return why the scheduler does not consider a node; empty if it does."""
    spec, labels = node["spec"], node["metadata"].get("labels") or {}
    if spec.get("unschedulable"):
        return "the node is unschedulable"
    if not tolerates(pod, spec.get("taints") or ()):
        return "the pod does not tolerate a taint of the node"
    selector = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return "the node does not match the pod's node selector"
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not selects(required, Node.of(node)):
        return "the node does not match the pod's required node affinity"
    return ""


class _Claims:
    """Claims of copies of a pod on one node."""

    def __init__(self, candidate: Candidate, node: Node) -> None:
        self._candidate = candidate
        self._node = node
        self._given: list[Object] = []

    def allocate(self) -> str:
        """Allocate the claims of one more copy. Return the reason if they do not fit; empty if they
        fit."""
        wanted = self._candidate.claims
        if not wanted:
            return ""
        # Earlier copies on this node hold their devices. Copies on other nodes do not count.
        in_use = InUse.of((*self._candidate.allocated, *self._given))
        try:
            results = self._allocator.allocate(wanted, self._node, in_use)
        except (AllocationError, TryAgain) as error:
            return str(error)
        if results is None:
            return "not enough devices for the pod's claims"
        self._given += [{"status": {"allocation": result}} for result in results]
        return ""

    @cached_property
    def _allocator(self) -> Allocator:
        return Allocator(self._candidate.slices, self._candidate.classes)


def _claims(pod: Object, templates: Mapping[tuple[str, str], Object]) -> Iterator[Object]:
    namespace = pod["metadata"]["namespace"]
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            raise FleetError(
                f"the pod uses ResourceClaim {entry['resourceClaimName']}, which its copies would "
                "share: use resourceClaimTemplateName"
            )
    for entry, name in missing_templates(pod):
        template = templates.get((namespace, name))
        if template is None:
            raise FleetError(
                f"unknown ResourceClaimTemplate {namespace}/{name}: add it to the file of the pod"
            )
        claim = claim_from_template(pod, entry, template)
        metadata = {**claim["metadata"], "name": f"{pod['metadata'].get('name', 'pod')}-{entry}"}
        yield with_defaults({**claim, "metadata": metadata})


def _key(value: Object) -> tuple[str, str]:
    metadata = value["metadata"]
    return metadata.get("namespace", "default"), metadata["name"]


# -- quotas ------------------------------------------------------------------------------


def quota(fleet: Fleet, candidate: Candidate) -> Iterator[tuple[str, str, int]]:
    """Yield how many copies of the pod each ResourceQuota in the pod's namespace still allows.

    Each item has the name of the quota, a resource that the quota limits and the pod uses, and the
    number of copies. Quotas with ``spec.scopes`` or ``spec.scopeSelector`` are left out. Raises
    FleetError for an invalid quantity.
    """
    pod = candidate.pod
    for each in fleet.all("resourcequotas"):
        spec, metadata = each["spec"], each["metadata"]
        if metadata.get("namespace") != pod.namespace:
            continue
        # A quota with scopes may not count this pod, and the scopes are not evaluated here.
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        used = each["status"].get("used") or {}
        for key, hard in (spec.get("hard") or {}).items():
            if wanted := _wanted(pod, key):
                # Negative if the quota was lowered after the pods were created.
                left = _nanos(hard) - _nanos(used.get(key, "0"))
                yield metadata["name"], key, max(left // wanted, 0)


def _wanted(pod: Pod, key: str) -> int:
    """Return how much of a quota's resource a pod uses, in nano-units."""
    if key in ("pods", "count/pods"):
        return NANOS
    kind, dot, name = key.partition(".")
    if not dot or kind not in ("requests", "limits"):
        # A key without a prefix, such as ``cpu``, limits the requests.
        kind, name = "requests", key
    amount = {str(k): v for k, v in pod_requests(pod, attrgetter(kind)).items()}.get(name, 0)
    # A pod's CPU is in millicores; all other amounts are in whole units.
    return amount * (NANOS_PER_MILLI if name == "cpu" else NANOS)


def _nanos(quantity: object) -> int:
    try:
        return parse_quantity(str(quantity))
    except ValueError as error:
        raise FleetError(f"invalid quantity {quantity!r} in a ResourceQuota: {error}") from None


def reasons(fits: Sequence[NodeFit]) -> dict[str, int]:
    """Count the nodes on which no copy of the pod fits.

    Returns a mapping from each reason to its number of nodes. The most frequent reason is first.
    """
    found: dict[str, int] = {}
    for each in fits:
        if not each.pods:
            found[each.reason] = found.get(each.reason, 0) + 1
    # The sort is stable: equally frequent reasons keep the order of the nodes.
    return dict(sorted(found.items(), key=lambda item: -item[1]))
