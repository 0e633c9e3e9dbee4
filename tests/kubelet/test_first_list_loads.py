"""Modules that a kubelet imports for its first List, while a client waits."""

import json
import subprocess
import sys

import pytest

_LISTS = """
import json, sys
import grpc
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing import pod_manifest

with MockKubelet() as kubelet, grpc.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as to:
    loaded = []

    def list_pods():
        before = set(sys.modules)
        to.unary_unary("/v1.PodResourcesLister/List")(b"", timeout=20)
        loaded.append(sorted(set(sys.modules) - before))

    list_pods()
    kubelet.admit(pod_manifest("a", {}))
    list_pods()
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded():
    command = [sys.executable, "-c", _LISTS]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    return json.loads(done.stdout)


def test_list_without_pods_imports_nothing(loaded):
    assert loaded[0] == []


def test_list_with_pods_imports_only_their_values(loaded):
    assert loaded[1] == ["podresources.values"]
