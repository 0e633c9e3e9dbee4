"""Admit pods on a mock kubelet with four virtual GPUs, and print their devices and settings.

python admit_pods.py POD.yaml...
"""

import sys
from pathlib import Path

from devicemanager import MockKubelet
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings

GPUS = SimulationSettings(
    resource_name="vendor.com/gpu",
    number_devices=4,
    device_id_prefix="gpu",
    node_name="node",
    env_prefix="GPU",
    device_file_prefix="gpu",
)


def main(paths):
    with MockKubelet() as kubelet, SimulatedPlugin(GPUS, kubelet.plugin_dir):
        kubelet.wait_for_resource(GPUS.resource_name, GPUS.number_devices)
        for path in paths:
            show(path, kubelet.admit(Path(path)))


def show(path, admission):
    if not admission.admitted:
        print(f"{path}: rejected, {admission.reason}: {admission.message}")
    for name, container in admission.containers.items():
        for resource, ids in container.devices.items():
            print(f"{path}: container {name} has {', '.join(ids)} of {resource}")
        # Print the settings that a container runtime would get from the kubelet.
        for variable, value in sorted(container.run_options.envs.items()):
            print(f"  variable {variable}={value}")
        for device in container.run_options.devices:
            print(f"  device node {device.container_path} ({device.permissions})")


if __name__ == "__main__":
    main(sys.argv[1:])
