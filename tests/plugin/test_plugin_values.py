"""Values and names: valid ones, invalid ones and the texts of errors."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.plugin import (
    ConfigurationError,
    ContainerSettings,
    Device,
    DeviceSpec,
    Mount,
    PluginSettings,
    wire,
)
from devicemanager.plugin.common.sockets import socket_names
from devicemanager.plugin.names import check_resource_name
from devicemanager.plugin.typed import NetlinkDevice


@pytest.mark.parametrize(
    ("numa", "nodes"), [(None, ()), (-1, ()), (0, (0,)), ([1, -1, 0], (1, 0)), ((), ())]
)
def test_device_accepts_numa_nodes_as_in_sysfs(numa, nodes):
    device = Device("a", numa=numa)
    assert device.numa == nodes
    message = wire.device_message(device)
    # An empty topology would hide the device from PodResources.
    assert message.HasField("topology") == bool(nodes)
    assert tuple(node.ID for node in message.topology.nodes) == nodes


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Device(""), "expected a non-empty string"),
        (lambda: Device(7), "device ID must be text, not 7"),
        (lambda: Device("\udc80"), "device ID is not valid Unicode"),
        (
            lambda: Device("a", healthy="healthy"),
            "invalid health 'healthy': use a bool, 'Healthy' or",
        ),
        (lambda: Device("a", healthy=0), "invalid health 0: use a bool, 'Healthy' or 'Unhealthy'"),
        (lambda: Device("a", healthy=None), "invalid health None"),
        (lambda: Device("a", numa="0"), "invalid numa '0': expected a node number, a list"),
        (lambda: Device("a", numa=["0"]), "invalid numa '0': expected a node number, a list"),
        (lambda: Device("a", numa=True), "invalid numa True: expected a node number, a list"),
        (lambda: Device("a", numa=1.0), "invalid numa 1.0: expected a node number, a list"),
        (lambda: Device("a", numa=1024), "invalid NUMA node 1024: use 0 to 1023"),
        (lambda: Mount(container_path=7, host_path="/a"), "container_path must be text, not 7"),
        (lambda: DeviceSpec(host_path="/dev/\0"), "host_path must not contain a NUL"),
        (lambda: DeviceSpec(host_path="/dev/null", permissions=3), "some of the letters"),
        (lambda: ContainerSettings(envs=["A=1"]), r"invalid envs \['A=1'\]: expected a mapping"),
        (lambda: ContainerSettings(envs={1: "1"}), "name of an environment variable must be"),
        (
            lambda: ContainerSettings(annotations=None),
            "invalid annotations None: expected a mapping",
        ),
        (lambda: ContainerSettings(annotations={"a": 1}), "annotation a must be text, not 1"),
        (lambda: ContainerSettings(annotations={1: ""}), "annotation key must be text"),
        (lambda: ContainerSettings(devices="/dev/x"), "devices must be a list, not '/dev/x'"),
        (lambda: ContainerSettings(devices=[7]), "invalid entry 7 in devices: expected DeviceSpec"),
        (lambda: ContainerSettings(mounts=["/a"]), "invalid entry '/a' in mounts: expected Mount"),
        (lambda: ContainerSettings(cdi_devices="v/c=d"), "cdi_devices must be a list, not 'v/c=d'"),
        (lambda: ContainerSettings(cdi_devices=[7]), "CDI name must be text, not 7"),
        (
            lambda: ContainerSettings(typed_devices=["eth0"]),
            "in typed_devices: expected Filesystem",
        ),
        (lambda: Device("a", numa=-5), "invalid NUMA node -5: use 0 to 1023"),
        (
            lambda: Mount(container_path="data", host_path="/data"),
            "container_path must be an absolute path: 'data'",
        ),
        (
            lambda: Mount(container_path="/data", host_path="data"),
            "host_path must be an absolute path",
        ),
        (lambda: DeviceSpec(host_path="dev/null"), "host_path must be an absolute path"),
        (lambda: DeviceSpec(host_path="/dev/null", permissions=""), "some of the letters"),
        (lambda: DeviceSpec(host_path="/dev/null", permissions="rwx"), "some of the letters"),
        (lambda: DeviceSpec(host_path="/dev/null", permissions="rr"), "some of the letters"),
        (lambda: ContainerSettings(envs={"A=B": "1"}), "invalid name of an environment variable"),
        (lambda: ContainerSettings(envs={"": "1"}), "invalid name of an environment variable"),
        (lambda: ContainerSettings(envs={"A": 1}), "must be text"),
        (lambda: ContainerSettings(envs={"A": "a\0"}), "must not contain a NUL"),
        (lambda: ContainerSettings(annotations={"-a": ""}), "invalid annotation key"),
        (lambda: ContainerSettings(annotations={"A.com/a": ""}), "invalid annotation key"),
        (lambda: ContainerSettings(annotations={"a" * 64: ""}), "invalid annotation key"),
        (
            lambda: ContainerSettings(cdi_devices=["gpu0"]),
            "invalid CDI name 'gpu0': expected vendor/class=name",
        ),
        (
            lambda: ContainerSettings(
                devices=["/dev/a", DeviceSpec(host_path="/dev/b", container_path="/dev/a")]
            ),
            "devices: two host paths for container path /dev/a",
        ),
        (
            lambda: ContainerSettings(
                mounts=[
                    Mount(container_path="/a", host_path="/b"),
                    Mount(container_path="/a", host_path="/c"),
                ]
            ),
            "mounts: two host paths for container path /a",
        ),
    ],
)
def test_invalid_values_raise_value_error(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize(
    ("healthy", "expected"),
    [(True, True), (False, False), ("Healthy", True), ("Unhealthy", False)],
)
def test_health_is_a_bool_or_a_word_of_the_api(healthy, expected):
    device = Device("a", healthy=healthy)
    assert device.healthy is expected
    assert wire.device_message(device).health == ("Healthy" if expected else "Unhealthy")


def test_paths_can_be_path_objects():
    mount = Mount(container_path=Path("/in"), host_path=Path("/out"))
    assert mount == Mount(container_path="/in", host_path="/out")
    assert DeviceSpec(host_path=Path("/dev/x")) == DeviceSpec(host_path="/dev/x")
    (device,) = ContainerSettings(devices=[Path("/dev/x")]).devices
    assert device == DeviceSpec(host_path="/dev/x")


@pytest.mark.parametrize("make", [Mount, DeviceSpec])
def test_paths_are_keyword_arguments(make):
    """The order of two paths would be easy to confuse."""
    with pytest.raises(TypeError, match="positional"):
        make("/in", "/out")


def test_all_settings_of_a_container_reach_the_wire():
    response = wire.container_response(
        ContainerSettings(
            envs={"A": "1"},
            mounts=[Mount(container_path="/in", host_path="/out", read_only=True)],
            devices=[
                "/dev/x",
                DeviceSpec(host_path="/dev/y", container_path="/dev/z", permissions="rwm"),
            ],
            annotations={"vendor.com/a": "b"},
            cdi_devices=["vendor.com/gpu=gpu-0"],
            typed_devices=[NetlinkDevice("eth42")],
        )
    )
    assert dict(response.envs) == {"A": "1"}
    (mount,) = response.mounts
    assert (mount.container_path, mount.host_path, mount.read_only) == ("/in", "/out", True)
    assert [(d.host_path, d.container_path, d.permissions) for d in response.devices] == [
        ("/dev/x", "/dev/x", "rw"),
        ("/dev/y", "/dev/z", "rwm"),
    ]
    assert dict(response.annotations) == {"vendor.com/a": "b"}
    assert [d.name for d in response.cdi_devices] == ["vendor.com/gpu=gpu-0"]
    assert [d.netlink.interface_name for d in response.typed_devices] == ["eth42"]


VALID_NAMES = ["vendor.com/gpu", "a/b", "example.com/a_B.c-9", f"{'a.' * 121}a/{'n' * 63}"]
INVALID_NAMES = {
    "gpu": "it has no domain",
    "": "it has no domain",
    "kubernetes.io/gpu": "reserved for Kubernetes",
    "x.kubernetes.io/gpu": "reserved for Kubernetes",
    "requests.vendor.com/gpu": "it starts with requests.",
    "Vendor.com/gpu": "not a DNS domain",
    "/gpu": "not a DNS domain",
    f"{'a.' * 122}a/n": "not a DNS domain",
    "vendor.com/": "not a name",
    "vendor.com/a/b": "more than one '/'",
    # The kubelet searches for kubernetes.io/ anywhere in the name.
    "mykubernetes.io/gpu": "reserved for Kubernetes",
    "vendor.com/-a": "not a name",
    "vendor.com/\u00e4": "not a name",
    f"vendor.com/{'n' * 64}": "not a name",
}


@pytest.mark.parametrize("name", VALID_NAMES)
def test_valid_resource_names(name):
    check_resource_name(name)


@pytest.mark.parametrize(("name", "reason"), INVALID_NAMES.items())
def test_invalid_resource_names(name, reason):
    with pytest.raises(ConfigurationError, match=reason):
        check_resource_name(name)


@given(
    plain=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
    directory=st.integers(1, 80).map(lambda n: "/" + "d" * n),
    unique=st.booleans(),
)
def test_every_socket_name_fits_and_is_a_file_name(plain, directory, unique):
    names = socket_names(plain, directory, unique=unique)
    first, second, third = (next(names) for _ in range(3))
    assert len({first, second, third}) == 3
    for name in (first, second, third):
        assert "/" not in name
        assert len(f"{directory}/{name}".encode()) <= 107
        assert len(f"/var/lib/kubelet/device-plugins/{name}".encode()) <= 107


@given(st.lists(st.text("ab", min_size=70, max_size=90), min_size=2, max_size=2, unique=True))
def test_shortened_names_stay_different(names):
    first, second = (next(socket_names(name, "/tmp/x", unique=False)) for name in names)
    assert first != second


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"register_backoff": 0}, "register_backoff must be above 0"),
        ({"stop_grace": -1}, "stop_grace must be at least 0, not -1"),
        ({"stream_wait": -1}, "stream_wait must be at least 0, not -1"),
        ({"stream_wait": "20"}, "stream_wait must be a number, not '20'"),
        ({"recheck": "2"}, "recheck must be a number, not '2'"),
        ({"recheck": float("inf")}, "recheck must be a number, not inf"),
        ({"stop_grace": float("nan")}, "stop_grace must be a number, not nan"),
        ({"workers": 2.5}, "workers must be a whole number, not 2.5"),
        ({"start_attempts": True}, "start_attempts must be a whole number, not True"),
        (
            {"workers": 4, "max_streams": 4},
            r"max_streams must be less than workers: each stream uses a worker",
        ),
    ],
)
def test_settings_that_cannot_work_are_rejected(wrong, text):
    with pytest.raises(ValueError, match="^" + text):
        PluginSettings(**wrong)
