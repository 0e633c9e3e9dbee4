import os
import subprocess
import sys

import pytest
import yaml

from devicemanager import MockKubelet, Settings

# In place of your program, such as ["./my-driver", "-v=4"].
PROGRAM = [
    sys.executable,
    "-c",
    """
from devicemanager.driver import Driver, serve

class Gpus(Driver):
    def resources(self):
        return ["gpu0"]

    def prepare(self, claim):
        return [device.prepared(envs={"GPU": device.device}) for device in claim.devices]

serve(Gpus(), "gpu.vendor.com")
""",
]
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.vendor.com}}
status:
  allocation:
    devices:
      results:
      - {request: gpu, driver: gpu.vendor.com, pool: node-1, device: gpu0}
  reservedFor:
  - {resource: pods, name: train, uid: train}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: train, uid: train}
spec:
  resourceClaims:
  - {name: gpu, resourceClaimName: gpu}
  containers:
  - {name: main, image: app, resources: {claims: [{name: gpu}]}}
"""


@pytest.fixture
def kubelet(api_server, tmp_path):
    api_server.create("nodes", {"metadata": {"name": "node-1"}})
    config = api_server.kubeconfig(tmp_path / "config")
    with MockKubelet(settings=Settings(node_name="node-1", kubeconfig=config)) as kubelet:
        yield kubelet


@pytest.fixture
def driver(kubelet):
    variables = {
        "NODE_NAME": "node-1",
        "KUBECONFIG": str(kubelet.settings.kubeconfig),
        "KUBELET_REGISTRAR_DIRECTORY_PATH": str(kubelet.plugins_registry_dir),
        "KUBELET_PLUGINS_DIRECTORY_PATH": str(kubelet.root / "plugins"),
        "CDI_ROOT": str(kubelet.root / "cdi"),
    }
    with subprocess.Popen(PROGRAM, env={**os.environ, **variables}) as process:
        kubelet.wait_for_event("driver-connected", after=0, timeout=60)
        yield process
        process.terminate()


def test_reboot_prepares_the_claim_again(kubelet, driver, api_server):
    api_server.load(yaml.safe_load(CLAIM))
    before = kubelet.admit(POD).containers["main"].run_options.cdi_devices
    mark = kubelet.mark()
    kubelet.reboot()
    kubelet.wait_for_event("driver-connected", since=mark)
    kubelet.resync("train")
    assert kubelet.start_container("train", "main").cdi_devices == before != ()
    kubelet.terminate("train")
    assert list((kubelet.root / "cdi").iterdir()) == []
