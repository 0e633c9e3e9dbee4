"""What a kubelet loads to answer its first List: a client waits for that."""

import json
import subprocess
import sys

import pytest

_ASKED = """
import json, sys
import grpc
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing import pod_manifest

with MockKubelet() as kubelet, grpc.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as to:
    loaded = []

    def ask():
        before = set(sys.modules)
        to.unary_unary("/v1.PodResourcesLister/List")(b"", timeout=20)
        loaded.append(sorted(set(sys.modules) - before))

    ask()
    kubelet.admit(pod_manifest("a", {}))
    ask()
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded():
    command = [sys.executable, "-c", _ASKED]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    return json.loads(done.stdout)


def test_a_node_without_pods_loads_nothing(loaded):
    assert loaded[0] == []


def test_pods_load_what_they_are_told_in_and_nothing_of_memory_and_claims(loaded):
    assert loaded[1] == ["podresources.values"]
