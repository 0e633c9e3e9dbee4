"""Pod objects, as far as a kubelet here knows what was in their manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.core.ids import ResourceName
from devicemanager.core.pods import Container, Pod

__all__ = ["pod_list", "pod_object"]

Object = dict[str, Any]

_CPU = "cpu"


def pod_object(
    pod: Pod, status: Object, *, node: str, deletion_grace: float | None = None
) -> Object:
    """A pod on a node. Without what nothing here looks at: labels, annotations, commands and
    variables of its manifest."""
    metadata: Object = {"name": pod.name, "namespace": pod.namespace, "uid": str(pod.uid)}
    if deletion_grace is not None:
        metadata["deletionGracePeriodSeconds"] = int(deletion_grace)
    spec: Object = {
        "containers": [_container(each) for each in pod.containers],
        "nodeName": node,
        "restartPolicy": str(pod.restart_policy),
        "terminationGracePeriodSeconds": pod.termination_grace_period,
    }
    if pod.init_containers:
        spec["initContainers"] = [_container(each) for each in pod.init_containers]
    if pod.resource_claims:
        spec["resourceClaims"] = [
            {"name": name} | ({} if claim is None else {"resourceClaimName": claim})
            for name, claim in pod.resource_claims.items()
        ]
    return {"metadata": metadata, "spec": spec, "status": status}


def pod_list(pods: Iterable[Object]) -> Object:
    """A v1 PodList. As the API has it, its items do not say what they are."""
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(pods)}


def _container(container: Container) -> Object:
    made: Object = {"name": str(container.name), "image": container.image}
    resources: Object = {
        name: _quantities(amounts)
        for name, amounts in (("limits", container.limits), ("requests", container.requests))
        if amounts
    }
    if container.claims:
        resources["claims"] = [{"name": name} for name in container.claims]
    made["resources"] = resources
    if container.restartable:
        made["restartPolicy"] = "Always"
    return made


def _quantities(amounts: Mapping[ResourceName, int]) -> dict[str, str]:
    return {str(name): _quantity(name, amount) for name, amount in amounts.items()}


def _quantity(name: ResourceName, amount: int) -> str:
    """CPUs are counted in thousandths."""
    if name != _CPU:
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)
