"""The versions of kubelets to test on."""

from devicemanager.core.versions.version import ANCHORS as KUBELET_VERSIONS

__all__ = ["KUBELET_VERSIONS"]
