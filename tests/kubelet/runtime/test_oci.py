"""Run options to an OCI fragment, with a host that the test defines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.runoptions import (
    Conflict,
    DeviceSpec,
    Mount,
    NetworkInterface,
    PciDevice,
    RunOptions,
)
from devicemanager.kubelet.runtime.cdi import Registry, UnresolvedCdiDevices
from devicemanager.kubelet.runtime.cdi.values import (
    CdiDeviceNode,
    CdiHook,
    CdiMount,
    CdiNetDevice,
    CdiSpec,
    ContainerEdits,
)
from devicemanager.kubelet.runtime.oci import HostNode, OciError, apply, read_nodes, render

HOST: Mapping[str, Mapping[str, HostNode]] = {
    "/dev/gpu0": {"": HostNode("c", 195, 0, 0o660, 0, 44)},
    "/dev/gpu1": {"": HostNode("c", 195, 1)},
    "/dev/disk": {"": HostNode("b", 8, 16, 0o600)},
    "/dev/pipe": {"": HostNode("p")},
    "/dev/bus": {"001/002": HostNode("c", 189, 1), "001/003": HostNode("c", 189, 2)},
    "/sys/class/fpga": {},
}
GPU = "vendor.com/gpu=0"


def host(path: str) -> Mapping[str, HostNode]:
    try:
        return HOST[path]
    except KeyError:
        raise FileNotFoundError(2, "No such file or directory", path) from None


def registry(**edits: ContainerEdits) -> Registry:
    """CDI devices vendor.com/gpu=0, ... from ``d0=...``; ``all=...`` are the file's own edits."""
    devices = {name[1:]: value for name, value in edits.items() if name != "all"}
    spec = CdiSpec(
        Path("gpu.json"), "vendor.com/gpu", "0.6.0", devices, edits.get("all", ContainerEdits())
    )
    return Registry((), {f"vendor.com/gpu={name}": spec for name in devices})


def config(options: RunOptions, cdi: Registry | None = None) -> dict[str, Any]:
    fragment = render(options, cdi, host)
    assert fragment.conflicts == ()
    return dict(fragment.config)


def test_empty_options_make_an_empty_fragment() -> None:
    assert config(RunOptions()) == {}


def test_every_run_option_is_rendered() -> None:
    options = RunOptions(
        envs={"A": "1", "EMPTY": ""},
        mounts=(
            Mount(container_path="/a/b", host_path="/h/b"),
            Mount(container_path="/z", host_path="/h/z", read_only=True),
        ),
        devices=(
            DeviceSpec(container_path="/dev/g", host_path="/dev/gpu0", permissions="rw"),
            DeviceSpec(container_path="/dev/d", host_path="/dev/disk", permissions="r"),
        ),
        annotations={"a": ""},
        network_interfaces=(NetworkInterface("eth42", "net0"),),
        pci_devices=(
            PciDevice("8086", "1572", ("0000:01:00.0",)),
            PciDevice("8086", "1572", ("0000:02:00.0",)),
        ),
    )
    assert config(options) == {
        "process": {"env": ["A=1", "EMPTY="]},
        "mounts": [
            {
                "destination": "/z",
                "type": "bind",
                "source": "/h/z",
                "options": ["rbind", "rprivate", "ro"],
            },
            {
                "destination": "/a/b",
                "type": "bind",
                "source": "/h/b",
                "options": ["rbind", "rprivate", "rw"],
            },
        ],
        "annotations": {"a": "", "pci.devicemanager/8086.1572": "0000:01:00.0,0000:02:00.0"},
        "linux": {
            "devices": [
                {
                    "path": "/dev/g",
                    "type": "c",
                    "major": 195,
                    "minor": 0,
                    "fileMode": 0o660,
                    "uid": 0,
                    "gid": 44,
                },
                {
                    "path": "/dev/d",
                    "type": "b",
                    "major": 8,
                    "minor": 16,
                    "fileMode": 0o600,
                    "uid": 0,
                    "gid": 0,
                },
            ],
            "resources": {
                "devices": [
                    {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"},
                    {"allow": True, "type": "b", "major": 8, "minor": 16, "access": "r"},
                ]
            },
            "netDevices": {"eth42": {"name": "net0"}},
        },
    }


def test_directory_is_rendered_as_the_nodes_below_it() -> None:
    linux = config(
        RunOptions(
            devices=(
                DeviceSpec(container_path="/dev/usb", host_path="/dev/bus", permissions="rwm"),
            )
        )
    )["linux"]
    assert [(d["path"], d["minor"]) for d in linux["devices"]] == [
        ("/dev/usb/001/002", 1),
        ("/dev/usb/001/003", 2),
    ]
    assert len(linux["resources"]["devices"]) == 2


@pytest.mark.parametrize(("permissions", "access"), [("r", "ro"), ("rw", "rw")])
def test_path_without_nodes_is_mounted(permissions: str, access: str) -> None:
    device = DeviceSpec(
        container_path="/sys/class/fpga", host_path="/sys/class/fpga", permissions=permissions
    )
    (mount,) = config(RunOptions(devices=(device,)))["mounts"]
    assert mount["source"] == "/sys/class/fpga" and mount["options"][-1] == access


def test_fifo_has_no_numbers_and_no_rule() -> None:
    linux = config(
        RunOptions(
            devices=(DeviceSpec(container_path="/dev/p", host_path="/dev/pipe", permissions="rw"),)
        )
    )["linux"]
    assert linux == {
        "devices": [{"path": "/dev/p", "type": "p", "fileMode": 0o666, "uid": 0, "gid": 0}]
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            RunOptions(devices=(DeviceSpec(container_path="/dev/c", host_path="/dev/none"),)),
            "device /dev/c: /dev/none on the host: No such file or directory",
        ),
        (
            RunOptions(
                devices=(
                    DeviceSpec(container_path="/dev/c", host_path="/dev/gpu0", permissions="rwx"),
                )
            ),
            "device /dev/c: invalid permissions 'rwx': use some of r, w and m",
        ),
        (
            RunOptions(
                devices=(
                    DeviceSpec(container_path="/dev/c", host_path="/dev/gpu0", permissions=""),
                )
            ),
            "device /dev/c: invalid permissions '': use some of r, w and m",
        ),
        (
            RunOptions(network_interfaces=(NetworkInterface("eth42", "net0", "/run/netns/x"),)),
            "network interface eth42 is in network namespace /run/netns/x: "
            "expected the host's namespace, because a runtime cannot move other interfaces",
        ),
        (
            RunOptions(envs={"A=B": "1"}),
            "device plugins: invalid environment variable name 'A=B': "
            "expected printable characters without =",
        ),
        (
            RunOptions(envs={"A\nB": "1"}),
            "device plugins: invalid environment variable name 'A B': "
            "expected printable characters without =",
        ),
        (
            RunOptions(envs={"": "1"}),
            "device plugins: invalid environment variable name '': "
            "expected printable characters without =",
        ),
        (
            RunOptions(envs={"A": "a\0b"}),
            "device plugins: invalid value of environment variable A: it contains a NUL character",
        ),
        (
            RunOptions(annotations={"": "x"}),
            "device plugins: an annotation has an empty key: expected a name",
        ),
        (
            RunOptions(mounts=(Mount(container_path="m", host_path="/h"),)),
            "device plugins: the container path of a mount must be an absolute path, not 'm'",
        ),
        (
            RunOptions(mounts=(Mount(container_path="/m", host_path=""),)),
            "device plugins: the host path of a mount must be an absolute path, not ''",
        ),
        (
            RunOptions(devices=(DeviceSpec(container_path="/d\0", host_path="/dev/gpu0"),)),
            "device plugins: the container path of a device must be an absolute path, "
            "not '/d\\x00'",
        ),
        (
            RunOptions(devices=(DeviceSpec(container_path="/d", host_path="dev/gpu0"),)),
            "device plugins: the host path of a device must be an absolute path, not 'dev/gpu0'",
        ),
        (
            RunOptions(network_interfaces=(NetworkInterface("eth42", "a/b"),)),
            "device plugins: network interface 'a/b': "
            "use 1 to 15 bytes without blanks, '/' and ':'",
        ),
        (
            RunOptions(pci_devices=(PciDevice("80\n", "\x1b[2J"),)),
            r"PCI device 80 :\x1b[2J has no address: "
            "set PciDevice.addresses, or use the run options of an admitted pod",
        ),
        (
            RunOptions(pci_devices=(PciDevice("8086", "1572"),)),
            "PCI device 8086:1572 has no address: "
            "set PciDevice.addresses, or use the run options of an admitted pod",
        ),
    ],
)
def test_invalid_setting_is_named(options: RunOptions, text: str) -> None:
    with pytest.raises(OciError) as error:
        render(options, nodes=host)
    assert str(error.value) == text


def test_conflicts_of_the_run_options_are_listed() -> None:
    conflict = Conflict("device", "/dev/c", "a.com/a", "/dev/1", "a.com/b", "/dev/2")
    assert render(RunOptions(conflicts=(conflict,)), nodes=host).conflicts == (conflict,)


def test_cdi_edits_are_rendered() -> None:
    cdi = registry(
        all=ContainerEdits(
            env=("ALL=yes",),
            mounts=(
                CdiMount(host_path="tmpfs", container_path="/scratch", options=(), type="tmpfs"),
            ),
            additional_gids=(44, 45),
            intel_rdt={"closID": "gold"},
        ),
        d0=ContainerEdits(
            env=("GPU=0=0",),
            device_nodes=(
                CdiDeviceNode(path="/dev/g", host_path="/dev/gpu0"),
                CdiDeviceNode(
                    path="/dev/x",
                    host_path="/dev/absent",
                    type="u",
                    major=9,
                    minor=0,
                    file_mode=0o600,
                    permissions="r",
                    uid=1,
                    gid=2,
                ),
                CdiDeviceNode(path="/dev/y", host_path="/dev/absent", type="p"),
            ),
            hooks=(
                CdiHook("createContainer", "/bin/hook", ("hook",), ("A=1",), 5),
                CdiHook("createContainer", "/bin/plain"),
            ),
            net_devices=(CdiNetDevice("eth1", "net1"),),
            additional_gids=(44,),
        ),
    )
    assert config(RunOptions(cdi_devices=(GPU,)), cdi) == {
        "process": {"env": ["ALL=yes", "GPU=0=0"], "user": {"additionalGids": [44, 45]}},
        "mounts": [{"destination": "/scratch", "type": "tmpfs", "source": "tmpfs"}],
        "hooks": {
            "createContainer": [
                {"path": "/bin/hook", "args": ["hook"], "env": ["A=1"], "timeout": 5},
                {"path": "/bin/plain"},
            ]
        },
        "linux": {
            "devices": [
                {"path": "/dev/g", "type": "c", "major": 195, "minor": 0},
                {
                    "path": "/dev/x",
                    "type": "u",
                    "major": 9,
                    "minor": 0,
                    "fileMode": 0o600,
                    "uid": 1,
                    "gid": 2,
                },
                {"path": "/dev/y", "type": "p"},
            ],
            "resources": {
                "devices": [
                    {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rwm"},
                    {"allow": True, "type": "c", "major": 9, "minor": 0, "access": "r"},
                ]
            },
            "netDevices": {"eth1": {"name": "net1"}},
            "intelRdt": {"closID": "gold"},
        },
    }


def test_unresolvable_cdi_name_is_named() -> None:
    with pytest.raises(UnresolvedCdiDevices, match=GPU):
        render(RunOptions(cdi_devices=(GPU,)), nodes=host)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (
            CdiDeviceNode(path="/dev/g", host_path="/dev/none"),
            "device /dev/g of vendor.com/gpu=0: /dev/none on",
        ),
        (
            CdiDeviceNode(path="/dev/g", host_path="/dev/gpu0", type="b"),
            "/dev/gpu0 on the host is not a device node of type b",
        ),
        (
            CdiDeviceNode(path="/dev/g", host_path="/dev/bus"),
            "/dev/bus on the host is not a device node",
        ),
    ],
)
def test_cdi_device_missing_on_the_host_is_named(node: CdiDeviceNode, text: str) -> None:
    cdi = registry(d0=ContainerEdits(device_nodes=(node,)))
    with pytest.raises(OciError, match=text):
        render(RunOptions(cdi_devices=(GPU,)), cdi, host)


OPTIONS = RunOptions(
    envs={"A": "1"},
    mounts=(Mount(container_path="/m", host_path="/h1"),),
    devices=(DeviceSpec(container_path="/dev/g", host_path="/dev/gpu0", permissions="rw"),),
    network_interfaces=(NetworkInterface("eth1", "net0"),),
    cdi_devices=(GPU,),
)


@pytest.mark.parametrize(
    ("edits", "kind", "key", "kept_value", "dropped_value"),
    [
        (ContainerEdits(env=("A=2",)), "env", "A", "2", "1"),
        (
            ContainerEdits(mounts=(CdiMount(host_path="/h2", container_path="/m"),)),
            "mount",
            "/m",
            "/h2",
            "/h1",
        ),
        (
            ContainerEdits(device_nodes=(CdiDeviceNode(path="/dev/g", host_path="/dev/gpu1"),)),
            *("device", "/dev/g", "/dev/gpu1", "/dev/gpu0"),
        ),
        (
            ContainerEdits(net_devices=(CdiNetDevice("eth1", "net9"),)),
            *("network interface", "eth1", "net9", "net0"),
        ),
        (
            ContainerEdits(net_devices=(CdiNetDevice("eth2", "net0"),)),
            *("network interface", "net0", "eth2", "eth1"),
        ),
        (
            ContainerEdits(mounts=(CdiMount(host_path="/h2", container_path="/dev/g"),)),
            *("device", "/dev/g", "/h2", "/dev/gpu0"),
        ),
    ],
    ids=["env", "mount", "device", "interface", "interface name", "mount over device"],
)
def test_later_edit_wins_and_the_conflict_is_listed(
    edits: ContainerEdits, kind: str, key: str, kept_value: str, dropped_value: str
) -> None:
    fragment = render(OPTIONS, registry(d0=edits), host)
    assert fragment.conflicts == (
        Conflict(kind, key, GPU, kept_value, "device plugins", dropped_value),
    )
    linux = fragment.config["linux"]
    assert len(fragment.config["process"]["env"]) == 1
    assert len(linux["netDevices"]) == 1
    assert len(linux.get("devices", [])) + len(fragment.config["mounts"]) == 2


def test_equal_edits_do_not_conflict() -> None:
    edits = ContainerEdits(
        env=("A=1",),
        mounts=(CdiMount(host_path="/h1", container_path="/m"),),
        device_nodes=(CdiDeviceNode(path="/dev/g", host_path="/dev/gpu0"),),
        net_devices=(CdiNetDevice("eth1", "net0"),),
    )
    assert render(OPTIONS, registry(d0=edits), host).conflicts == ()


def test_mounted_device_node_keeps_its_access_rule() -> None:
    options = RunOptions(
        devices=(DeviceSpec(container_path="/dev/g", host_path="/dev/gpu0", permissions="rw"),),
        mounts=(Mount(container_path="/dev/g", host_path="/dev/gpu0"),),
    )
    rule = {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}
    assert config(options)["linux"] == {"resources": {"devices": [rule]}}


def test_read_nodes_reads_the_host(tmp_path: Path) -> None:
    null = read_nodes("/dev/null")[""]
    assert (null.type, null.major, null.minor) == ("c", 1, 3)
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "file").write_text("")
    assert read_nodes(str(tmp_path / "link")) == {"": null}
    assert read_nodes(str(tmp_path / "file")) == {}
    # Links below a directory are not followed: they can lead anywhere.
    assert read_nodes(str(tmp_path)) == {}
    with pytest.raises(FileNotFoundError):
        read_nodes(str(tmp_path / "absent"))


def test_apply_replaces_equal_entries_and_adds_others() -> None:
    base = {
        "ociVersion": "1.0.2",
        "process": {"env": ["A=old", "B=2"], "args": ["sh"], "user": {"additionalGids": [44]}},
        "mounts": [{"destination": "/m", "source": "/old"}, {"destination": "/proc"}],
        "linux": {
            "devices": [{"path": "/dev/g", "minor": 9}],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": "pid"}],
        },
    }
    part = {
        "process": {"env": ["A=new"], "user": {"additionalGids": [44, 45]}},
        "mounts": [{"destination": "/m", "source": "/new"}],
        "annotations": {"a": "b"},
        "hooks": {"poststop": [{"path": "/bin/x"}]},
        "linux": {
            "devices": [{"path": "/dev/g", "minor": 1}],
            "resources": {"devices": [{"allow": True}]},
        },
    }
    before = repr((base, part))
    assert apply(base, part) == {
        "ociVersion": "1.0.2",
        "process": {"env": ["B=2", "A=new"], "args": ["sh"], "user": {"additionalGids": [44, 45]}},
        "mounts": [{"destination": "/proc"}, {"destination": "/m", "source": "/new"}],
        "annotations": {"a": "b"},
        "hooks": {"poststop": [{"path": "/bin/x"}]},
        "linux": {
            "devices": [{"path": "/dev/g", "minor": 1}],
            "resources": {"devices": [{"allow": False, "access": "rwm"}, {"allow": True}]},
            "namespaces": [{"type": "pid"}],
        },
    }
    assert repr((base, part)) == before


paths = st.sampled_from(["/a", "/a/b", "/a/b/c", "/d"])


@given(
    st.dictionaries(paths, st.sampled_from(["/dev/gpu0", "/dev/disk", "/sys/class/fpga"])),
    st.dictionaries(paths, st.sampled_from(["/h1", "/h2"])),
    st.dictionaries(paths, st.sampled_from(["/h1", "/dev/gpu1"])),
)
def test_each_path_has_one_mount_parents_first(
    devices: dict[str, str], mounts: dict[str, str], cdi_mounts: dict[str, str]
) -> None:
    """A container path shows one host path; every other host path for it is a conflict."""
    options = RunOptions(
        devices=tuple(
            DeviceSpec(container_path=path, host_path=source)
            for path, source in sorted(devices.items())
        ),
        mounts=tuple(
            Mount(container_path=path, host_path=source) for path, source in sorted(mounts.items())
        ),
        cdi_devices=(GPU,),
    )
    edits = ContainerEdits(
        mounts=tuple(CdiMount(host_path=s, container_path=path) for path, s in cdi_mounts.items())
    )
    fragment = render(options, registry(d0=edits), host)
    shown = {mount["destination"]: mount["source"] for mount in fragment.config.get("mounts", ())}
    order = list(shown)
    assert order == sorted(order, key=lambda path: path.count("/"))
    nodes = [device["path"] for device in fragment.config.get("linux", {}).get("devices", ())]
    assert not set(nodes) & set(shown) and len(nodes) == len(set(nodes))
    listed = {(conflict.key, conflict.dropped_value) for conflict in fragment.conflicts}
    for sources in (devices, mounts, cdi_mounts):
        for path, source in sources.items():
            assert path in nodes or shown[path] == source or (path, source) in listed


def test_paths_are_normalized_before_they_are_compared() -> None:
    """A runtime resolves paths, so they are compared in the resolved form."""
    options = RunOptions(
        mounts=(
            Mount(container_path="/a/../../m", host_path="/h1"),
            Mount(container_path="//m/.", host_path="/h2"),
        ),
        devices=(DeviceSpec(container_path="/dev/../x/./gpu", host_path="/dev/gpu0"),),
    )
    fragment = render(options, nodes=host)
    assert [mount["destination"] for mount in fragment.config["mounts"]] == ["/m"]
    assert [device["path"] for device in fragment.config["linux"]["devices"]] == ["/x/gpu"]
    assert fragment.conflicts == (
        Conflict("mount", "/m", "device plugins", "/h2", "device plugins", "/h1"),
    )


def test_directory_with_too_many_files_is_rejected() -> None:
    """A plugin can name the root of the host."""
    with pytest.raises(
        OciError, match="/ on the host: not a device directory: more than 10000 files"
    ):
        render(RunOptions(devices=(DeviceSpec(container_path="/dev/p", host_path="/"),)))


@pytest.mark.parametrize("count", [20_000])
def test_many_settings_are_rendered_in_linear_time(count: int) -> None:
    numbers = range(count)
    options = RunOptions(
        envs={f"E{n}": "1" for n in numbers},
        mounts=tuple(Mount(container_path=f"/m/{n}", host_path="/h") for n in numbers),
        network_interfaces=tuple(NetworkInterface(f"e{n}", f"n{n}") for n in numbers),
        annotations={f"a{n}": "1" for n in numbers},
    )
    config = render(options, nodes=host).config
    assert len(config["mounts"]) == len(config["process"]["env"]) == count
    assert len(config["linux"]["netDevices"]) == len(config["annotations"]) == count
