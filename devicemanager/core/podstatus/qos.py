"""``status.qosClass`` of a pod."""

from __future__ import annotations

from enum import StrEnum

from devicemanager.core.ids import ResourceName
from devicemanager.core.pods import Pod

__all__ = ["QosClass", "qos_class"]

_COUNTED = (ResourceName("cpu"), ResourceName("memory"))


class QosClass(StrEnum):
    """How well a pod is served when the node gets short of something."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def qos_class(pod: Pod) -> QosClass:
    """By the containers' CPU and memory (``ComputePodQOS``, pkg/apis/core/v1/helper/qos, v1.32,
    without resources of the pod as a whole)."""
    requests = dict.fromkeys(_COUNTED, 0)
    limits = dict.fromkeys(_COUNTED, 0)
    all_limited = True
    for container, _ in pod.all_containers():
        for name in _COUNTED:
            requests[name] += container.requests.get(name, 0)
            limits[name] += container.limits.get(name, 0)
            all_limited &= container.limits.get(name, 0) > 0
    if not any(requests.values()) and not any(limits.values()):
        return QosClass.BEST_EFFORT
    guaranteed = all_limited and requests == limits
    return QosClass.GUARANTEED if guaranteed else QosClass.BURSTABLE
