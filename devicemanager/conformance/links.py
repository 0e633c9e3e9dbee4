"""Sources of the checks, in short and in full."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["addresses"]

_REPOSITORIES = {
    "k/k": "kubernetes/kubernetes",
    "nv": "NVIDIA/k8s-device-plugin",
    "intel": "intel/intel-device-plugins-for-kubernetes",
    "rdma": "Mellanox/k8s-rdma-shared-dev-plugin",
    "sriov": "k8snetworkplumbingwg/sriov-network-device-plugin",
    "dpm": "kubevirt/device-plugin-manager",
    "kubevirt": "kubevirt/kubevirt",
    "gdp": "squat/generic-device-plugin",
    "amd": "ROCm/k8s-device-plugin",
    "akri": "project-akri/akri",
    "nfd": "kubernetes-sigs/node-feature-discovery",
    "hami": "Project-HAMi/HAMi",
    "ascend": "Project-HAMi/ascend-device-plugin",
    "gpu-operator": "NVIDIA/gpu-operator",
    "bottlerocket": "bottlerocket-os/bottlerocket",
    "gpushare": "AliyunContainerService/gpushare-scheduler-extender",
    "vgpu": "Project-HAMi/volcano-vgpu-device-plugin",
    "moby": "moby/moby",
}
_ISSUE = re.compile(r"([\w/-]+)#(\d+)")
_RULES = {
    "DOC": "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/",
    "PROTO": "https://github.com/kubernetes/kubelet/blob/master/pkg/apis/deviceplugin/v1beta1/api.proto",
    "DM": "https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/cm/devicemanager",
    "WATCHER": "https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/pluginmanager",
}


def addresses(text: str) -> tuple[str, ...]:
    """``"DOC, k/k#112395"`` as addresses, in that order. Raises ValueError for what is
    neither a rule's name, nor an issue, nor an address."""
    return tuple(_addresses(text))


def _addresses(text: str) -> Iterator[str]:
    for part in filter(None, (part.strip() for part in text.split(","))):
        issue = _ISSUE.fullmatch(part)
        if part in _RULES:
            yield _RULES[part]
        elif part.startswith("https://"):
            yield part
        elif issue is not None and issue[1] in _REPOSITORIES:
            yield f"https://github.com/{_REPOSITORIES[issue[1]]}/issues/{issue[2]}"
        else:
            raise ValueError(f"{part!r} is no source that is known")
