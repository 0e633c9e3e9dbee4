"""The part of the core/v1 Pod that a mock kubelet knows.

Field numbers are those of Kubernetes. Other fields are skipped when a Pod is read.
"""

# Generated from core_v1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "Container",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "HostIP",
    "ObjectMeta",
    "Pod",
    "PodCondition",
    "PodIP",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSpec",
    "PodStatus",
    "Quantity",
    "ResourceClaim",
    "ResourceHealth",
    "ResourceRequirements",
    "ResourceStatus",
    "Time",
]

DESCRIPTOR = file("core_v1.proto")

Container = message("k8s.io.api.core.v1.Container")
ContainerState = message("k8s.io.api.core.v1.ContainerState")
ContainerStateRunning = message("k8s.io.api.core.v1.ContainerStateRunning")
ContainerStateTerminated = message("k8s.io.api.core.v1.ContainerStateTerminated")
ContainerStateWaiting = message("k8s.io.api.core.v1.ContainerStateWaiting")
ContainerStatus = message("k8s.io.api.core.v1.ContainerStatus")
HostIP = message("k8s.io.api.core.v1.HostIP")
ObjectMeta = message("k8s.io.api.core.v1.ObjectMeta")
Pod = message("k8s.io.api.core.v1.Pod")
PodCondition = message("k8s.io.api.core.v1.PodCondition")
PodIP = message("k8s.io.api.core.v1.PodIP")
PodResourceClaim = message("k8s.io.api.core.v1.PodResourceClaim")
PodResourceClaimStatus = message("k8s.io.api.core.v1.PodResourceClaimStatus")
PodSpec = message("k8s.io.api.core.v1.PodSpec")
PodStatus = message("k8s.io.api.core.v1.PodStatus")
Quantity = message("k8s.io.api.core.v1.Quantity")
ResourceClaim = message("k8s.io.api.core.v1.ResourceClaim")
ResourceHealth = message("k8s.io.api.core.v1.ResourceHealth")
ResourceRequirements = message("k8s.io.api.core.v1.ResourceRequirements")
ResourceStatus = message("k8s.io.api.core.v1.ResourceStatus")
Time = message("k8s.io.api.core.v1.Time")
