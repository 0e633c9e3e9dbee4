from pathlib import Path

from devicemanager.plugin import ContainerSettings, Device, Lister, Manager, Plugin

ROOT = Path("/sys/class/accel")


class Cards(Plugin):
    def __init__(self, model):
        self.model = model

    def devices(self):
        while not self.stopping.wait(5):
            yield [
                Device(card.name, healthy=not (card / "failed").exists(), numa=numa_node(card))
                for card in sorted(ROOT.glob(f"{self.model}-*"))
            ]

    def allocate(self, device_ids):
        return ContainerSettings(
            envs={"CARDS": ",".join(device_ids)},
            devices=[f"/dev/accel/{card}" for card in device_ids],
        )

    def preferred_allocation(self, available, must_include, size):
        return sorted(available, key=lambda card: numa_node(ROOT / card))[:size]


class Models(Lister):
    namespace = "vendor.com"

    def discover(self):
        while not self.stopping.wait(5):
            yield {card.name.rpartition("-")[0] for card in ROOT.iterdir()}

    def new_plugin(self, last_name):
        return Cards(last_name)


def numa_node(card):
    return int((card / "device/numa_node").read_text())


if __name__ == "__main__":
    Manager(Models()).run()
