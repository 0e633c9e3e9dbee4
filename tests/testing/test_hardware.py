"""Fake sysfs and /dev trees, read by the modules that read real ones."""

import stat
import sys

import pytest

from devicemanager import NumaTopology, Settings
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider
from devicemanager.kubelet.host.numa import from_host
from devicemanager.kubelet.host.pci import addresses
from devicemanager.testing import FakeDev, FakeSysfs, HardwareError

TWO = NumaTopology.of([0, 2], [[10, 21], [21, 10]])


def test_numa_nodes_cpus_and_memory_are_found(tmp_path):
    FakeSysfs(tmp_path / "sys", TWO, cpus={0: range(4), 2: [8, 4, 5]}, memory={2: 4 << 30})
    found = from_host(tmp_path)
    assert found.topology == TWO
    assert found.cpus == {0: (0, 1, 2, 3), 2: (4, 5, 8)}
    assert found.memory == {"memory": {0: 1 << 30, 2: 4 << 30}}
    system = tmp_path / "sys/devices/system"
    assert (system / "cpu/online").read_text() == "0-5,8\n"
    assert (system / "node/node2/cpu8/topology/physical_package_id").read_text() == "1\n"
    assert (system / "cpu/cpu8/node2/cpulist").read_text() == "4-5,8\n"


def test_tree_for_the_settings_of_a_kubelet(tmp_path):
    settings = Settings(
        numa=TWO,
        providers=(
            CpuProvider.of(TWO, {0: [0, 1], 2: [2, 3]}),
            MemoryProvider.of(TWO, {"memory": {0: 1 << 20, 2: 2 << 20}, "hugepages-2Mi": {0: 1}}),
        ),
    )
    FakeSysfs.of_kubelet(tmp_path / "sys", settings)
    found = from_host(tmp_path)
    assert (found.topology, found.cpus) == (TWO, {0: (0, 1), 2: (2, 3)})
    assert found.memory == {"memory": {0: 1 << 20, 2: 2 << 20}}
    FakeSysfs.of_kubelet(tmp_path / "other/sys", Settings())
    assert from_host(tmp_path / "other").topology.nodes == (0,)


def test_pci_devices_with_numa_node_and_driver(tmp_path):
    sysfs = FakeSysfs(tmp_path, TWO, cpus={0: [0], 2: [1, 2]})
    path = sysfs.add_pci("0000:3b:00.0", "10DE", "0x2330", numa_node=2, driver="nvidia")
    sysfs.add_pci("0000:3b:00.1", "10de", "2330")
    assert addresses("10de", "2330", tmp_path) == ("0000:3b:00.0", "0000:3b:00.1")
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    assert device.resolve() == path.resolve()
    assert (device / "numa_node").read_text() == "2\n"
    assert (device / "local_cpulist").read_text() == "1-2\n"
    assert (device / "driver").resolve().name == "nvidia"
    assert (device / "driver/0000:3b:00.0/vendor").read_text() == "0x10de\n"
    assert "PCI_ID=10DE:2330" in (device / "uevent").read_text().splitlines()
    plain = tmp_path / "bus/pci/devices/0000:3b:00.1"
    assert (plain / "numa_node").read_text() == "-1\n"
    assert (plain / "local_cpulist").read_text() == "0-2\n"
    assert not (plain / "driver").exists()


def test_tree_can_be_moved(tmp_path):
    FakeSysfs(tmp_path / "a").add_pci("0000:01:00.0", "10de", "2330", driver="vfio-pci")
    (tmp_path / "a").rename(tmp_path / "b")
    assert addresses("10de", "2330", tmp_path / "b") == ("0000:01:00.0",)
    assert (tmp_path / "b/bus/pci/devices/0000:01:00.0/driver").is_dir()


def test_device_nodes_can_be_opened_and_removed(tmp_path):
    dev = FakeDev(tmp_path / "dev", ["nvidia0", "infiniband/uverbs0"])
    node = dev.add("nvidia1")
    assert stat.S_ISCHR(node.stat().st_mode)
    with open(node, "wb", buffering=0) as opened:  # noqa: PTH123 - as a plugin does
        assert opened.write(b"x") == 1
    assert dev.add("nvidia1") == node
    assert dev.add("infiniband/uverbs1").is_char_device()
    dev.remove("nvidia1")
    names = sorted(each.name for each in dev.directory.iterdir())
    assert names == ["infiniband", "nvidia0"]


def test_directory_of_device_nodes_can_contain_dots(tmp_path):
    (tmp_path / "to/here").mkdir(parents=True)
    (tmp_path / "link").symlink_to("to/here")
    dev = FakeDev(tmp_path / "link/../dev", ["a/b"])
    assert (tmp_path / "to/dev/a/b").is_symlink()
    dev.remove("x/../a/b")
    assert not list((tmp_path / "to/dev/a").iterdir())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda s, d: s.add_pci("3b:00.0", "10de", "2330"), "invalid PCI address '3b:00.0': use"),
        (
            lambda s, d: s.add_pci("0000:3b:00.0", "nvidia", "2330"),
            "invalid vendor or device ID 'nvid",
        ),
        (
            lambda s, d: s.add_pci("0000:3b:00.0", "10de", "1", numa_node=7),
            r"0000:3b:00\.0: unknown NUMA node 7",
        ),
        (lambda s, d: FakeSysfs(s.directory, cpus={3: [1]}), "unknown NUMA node 3"),
        (lambda s, d: d.add("../null"), "invalid name '../null': expected a path below "),
        (lambda s, d: d.add("/dev/null"), "invalid name '/dev/null': expected a path below "),
        (lambda s, d: d.add("a/.."), r"invalid name 'a/\.\.': expected a path below "),
        (lambda s, d: d.remove("../sys"), r"invalid name '\.\./sys': expected a path below "),
    ],
)
def test_invalid_hardware_is_rejected(tmp_path, make, text):
    with pytest.raises(HardwareError, match="^" + text):
        make(FakeSysfs(tmp_path / "sys"), FakeDev(tmp_path / "dev"))


def test_process_finds_the_trees_at_sys_and_dev(plugin_process, tmp_path):
    """As a plugin with hard-coded paths finds them."""
    FakeSysfs(tmp_path / "sys").add_pci("0000:3b:00.0", "10de", "2330", numa_node=0)
    FakeDev(tmp_path / "dev", ["nvidia0"])
    program = (
        "import os, stat; print(os.listdir('/sys/bus/pci/devices'), "
        "stat.S_ISCHR(os.stat('/dev/nvidia0').st_mode))"
    )
    process = plugin_process(
        [sys.executable, "-c", program],
        at_node_paths=True,
        sys=tmp_path / "sys",
        dev=tmp_path / "dev",
    )
    assert process.wait() == 0
    assert process.output() == ["['0000:3b:00.0'] True"]


def tree(directory):
    """Return the files and links below a directory, by their paths."""
    return {
        str(path.relative_to(directory)): (
            f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        )
        for path in sorted(directory.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_tree_has_these_files(tmp_path):
    """The paths, formats and links of a real /sys (Documentation/ABI in the kernel's sources)."""
    sysfs = FakeSysfs(tmp_path / "s", TWO, cpus={0: [1], 2: [3]}, memory={0: 4096})
    assert (sysfs.directory, sysfs.topology) == (tmp_path / "s", TWO)
    system, cpus = "devices/system", {1: (0, 0), 3: (1, 2)}
    expected = {
        f"{system}/node/online": "0,2\n",
        f"{system}/node/possible": "0,2\n",
        f"{system}/node/node0/distance": "10 21\n",
        f"{system}/node/node2/distance": "21 10\n",
        f"{system}/node/node0/cpulist": "1\n",
        f"{system}/node/node2/cpulist": "3\n",
        f"{system}/node/node0/meminfo": "Node 0 MemTotal:       4 kB\n",
        f"{system}/node/node2/meminfo": "Node 2 MemTotal:       1048576 kB\n",
    }
    expected |= {f"{system}/cpu/{name}": "1,3\n" for name in ("online", "present", "possible")}
    for cpu, (package, node) in cpus.items():
        expected |= {
            f"{system}/cpu/cpu{cpu}/topology/physical_package_id": f"{package}\n",
            f"{system}/cpu/cpu{cpu}/topology/core_id": f"{cpu}\n",
            f"{system}/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu}\n",
            f"{system}/cpu/cpu{cpu}/node{node}": f"-> ../../node/node{node}",
            f"{system}/node/node{node}/cpu{cpu}": f"-> ../../cpu/cpu{cpu}",
        }
    assert tree(sysfs.directory) == expected
    bus, name = "devices/pci0000:3b", "0000:3b:00.0"
    path = sysfs.add_pci(name, "10DE", "0x233F", numa_node=2, driver="nvidia")
    assert path == sysfs.directory / bus / name
    expected |= {
        f"{bus}/{name}/vendor": "0x10de\n",
        f"{bus}/{name}/device": "0x233f\n",
        f"{bus}/{name}/class": "0x030200\n",
        f"{bus}/{name}/numa_node": "2\n",
        f"{bus}/{name}/local_cpulist": "3\n",
        f"{bus}/{name}/uevent": f"DRIVER=nvidia\nPCI_ID=10DE:233F\nPCI_SLOT_NAME={name}\n",
        f"{bus}/{name}/subsystem": "-> ../../../bus/pci",
        f"{bus}/{name}/driver": "-> ../../../bus/pci/drivers/nvidia",
        f"bus/pci/devices/{name}": f"-> ../../../{bus}/{name}",
        f"bus/pci/drivers/nvidia/{name}": f"-> ../../../../{bus}/{name}",
    }
    assert tree(sysfs.directory) == expected
    # Existing files and links are overwritten.
    sysfs.add_pci(name, "10de", "233f", pci_class="0x020000")
    found = tree(sysfs.directory)
    changed = {
        f"{bus}/{name}/class": "0x020000\n",
        f"{bus}/{name}/numa_node": "-1\n",
        f"{bus}/{name}/local_cpulist": "1,3\n",
        f"{bus}/{name}/uevent": f"PCI_ID=10DE:233F\nPCI_SLOT_NAME={name}\n",
    }
    assert found == expected | changed


def test_errors_name_the_nodes_and_leave_no_tree(tmp_path):
    words = "unknown NUMA node 1: use one of 0,2"
    for wrong in ({"cpus": {1: [0]}}, {"memory": {1: 4096}}):
        with pytest.raises(HardwareError, match=f"^{words}$"):
            FakeSysfs(tmp_path / "s", TWO, **wrong)
    assert not (tmp_path / "s").exists()
    sysfs = FakeSysfs(tmp_path / "s", TWO)
    for node in (-1, 1, 3):
        with pytest.raises(HardwareError) as raised:
            sysfs.add_pci("0000:3b:00.0", "10de", "2330", numa_node=node)
        words = f"0000:3b:00.0: unknown NUMA node {node}: use one of 0,2"
        assert str(raised.value) == words
    for address in ("0000:3b:00.8", "0000:3b:20.0", "0000:3B:00.0", "0:3b:00.0", "x0000:3b:00.0"):
        with pytest.raises(HardwareError) as raised:
            sysfs.add_pci(address, "10de", "2330")
        assert str(raised.value) == (
            f"invalid PCI address {address!r}: use a form such as 0000:3b:00.0"
        )
    for vendor, device in (("10d", "2330"), ("10de", "23300"), ("10de", "0X2330"), ("", "2330")):
        wrong = device if vendor == "10de" else vendor
        with pytest.raises(HardwareError) as raised:
            sysfs.add_pci("0000:3b:00.0", vendor, device)
        assert str(raised.value) == (
            f"invalid vendor or device ID {wrong!r}: use four hexadecimal digits"
        )
    assert sysfs.add_pci("ffff:ff:1f.7", "0xFFFF", "0000").name == "ffff:ff:1f.7"


def test_device_nodes_are_below_the_directory(tmp_path):
    dev = FakeDev(tmp_path / "a/dev", ["x"])
    assert dev.directory == tmp_path / "a/dev"
    assert dev.add("y/../z").name == "z"
    assert tree(dev.directory) == {"x": "-> /dev/null", "z": "-> /dev/null"}
    for name in ("", ".", "..", "y/..", "../dev"):
        with pytest.raises(HardwareError) as raised:
            dev.add(name)
        assert str(raised.value) == (
            f"invalid name {name!r}: expected a path below {dev.directory}"
        )
    with pytest.raises(FileNotFoundError):
        dev.remove("y")
    FakeDev(tmp_path / "a/dev", ["x"]).remove("x")  # the directory exists
    assert tree(dev.directory) == {"z": "-> /dev/null"}
