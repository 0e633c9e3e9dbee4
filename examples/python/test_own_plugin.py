from devicemanager.plugin import ContainerSettings, Manager, Plugin, StaticLister

POD = """
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: default}
spec:
  containers:
  - name: main
    image: train:1
    resources: {limits: {vendor.com/gpu: "2"}}
"""


class Gpus(Plugin):
    def devices(self):
        return ["gpu-0", "gpu-1"]

    def allocate(self, device_ids):
        return ContainerSettings(envs={"GPUS": ",".join(device_ids)})


def test_pod_gets_its_gpus(mock_kubelet):
    with Manager(StaticLister("vendor.com", {"gpu": Gpus()}), mock_kubelet.plugin_dir):
        mock_kubelet.wait_for_resource("vendor.com/gpu", 2)
        assert mock_kubelet.admit(POD).containers["main"].run_options.envs == {
            "GPUS": "gpu-0,gpu-1"
        }
        mock_kubelet.restart()
        mock_kubelet.wait_for_resource("vendor.com/gpu", 2)
