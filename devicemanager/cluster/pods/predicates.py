"""Node predicates: properties of the Node that a pod requires (``generalFilter`` and the admit
handler of pkg/kubelet/lifecycle/predicate.go, v1.32).

The scheduler does not bind a pod to a node that lacks these properties, but a user can, with
``spec.nodeName``. As in the kubelet, these checks come after the allocation of devices, CPU and
memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from devicemanager.client.protocol import JsonObject
from devicemanager.core.rejection import Rejected

__all__ = ["node_predicates", "tolerates"]

_OS: Final = "kubernetes.io/os"
_LINUX: Final = "linux"
_FAILED: Final = "Predicate {name} failed: {reason}"


def node_predicates(
    pod: JsonObject, name: str, labels: Mapping[str, str], taints: Iterable[Mapping[str, Any]] = ()
) -> Rejected | None:
    """Return why the node with this name, labels and taints rejects a pod; None if the node accepts
    the pod."""
    spec = pod["spec"]
    # The checks have the order of the kubelet, because the first failed check gives the reason.
    if (pod["metadata"].get("labels") or {}).get(_OS, _LINUX) != _LINUX:
        return Rejected(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if ((spec.get("os") or {}).get("name") or _LINUX) != _LINUX:
        return Rejected(
            "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
        )
    if not _has_affinity(spec, name, labels):
        return _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if not all(_tolerated(each, spec.get("tolerations") or ()) for each in taints):
        return _failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _failed(name: str, reason: str) -> Rejected:
    return Rejected(name, _FAILED.format(name=name, reason=reason))


def _has_affinity(spec: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    # Imported here, because few pods have an affinity.
    from devicemanager.claims.dra.nodes import InvalidSelector, Node, selects

    try:
        return selects(required, Node(name, labels))
    except InvalidSelector:
        return False  # the kubelet ignores the error, and no node matches


def _tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """True if a pod tolerates a taint. The kubelet reads only taints with the effect NoExecute."""
    return taint.get("effect") != "NoExecute" or any(tolerates(each, taint) for each in tolerations)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """True if a toleration matches a taint."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    is_same = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("operator") == "Exists" or (bool(toleration.get("key")) and is_same)
