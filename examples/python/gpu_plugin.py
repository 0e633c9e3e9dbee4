from pathlib import Path

from devicemanager.plugin import ContainerSettings, Plugin, serve


class Gpus(Plugin):
    def devices(self):
        return sorted(path.name for path in Path("/dev").glob("gpu[0-9]*"))

    def allocate(self, device_ids):
        return ContainerSettings(devices=[f"/dev/{name}" for name in device_ids])


serve(Gpus(), "vendor.com/gpu")
