import os
from pathlib import Path

from devicemanager.driver import Device, DeviceHealth, Driver, serve

ROOT = Path(os.environ.get("GPU_DIRECTORY", "/dev"))


class Gpus(Driver):
    def __init__(self):
        self.names = sorted(path.name for path in ROOT.glob("gpu[0-9]*"))

    def resources(self):
        return [
            Device(name, attributes={"model": "v1"}, capacity={"memory": "40Gi"})
            for name in self.names
        ]

    def prepare(self, claim):
        return [device.prepared(devices=[ROOT / device.device]) for device in claim.devices]

    def health(self):
        return [
            DeviceHealth(name, "Healthy" if (ROOT / name).exists() else "Unhealthy")
            for name in self.names
        ]


serve(Gpus(), "gpu.vendor.com")
