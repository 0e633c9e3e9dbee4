"""Values and names: what is taken, what is refused, and with which words."""

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
from devicemanager.plugin.names import check_resource_name, socket_names
from devicemanager.plugin.typed import NetlinkDevice


@pytest.mark.parametrize(
    ("numa", "nodes"), [(None, ()), (-1, ()), (0, (0,)), ([1, -1, 0], (1, 0)), ((), ())]
)
def test_a_device_takes_nodes_as_sysfs_has_them(numa, nodes):
    device = Device("a", numa=numa)
    assert device.numa == nodes
    message = wire.device_message(device)
    # An empty topology would hide the device from PodResources.
    assert message.HasField("topology") == bool(nodes)
    assert tuple(node.ID for node in message.topology.nodes) == nodes


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Device(""), "not empty"),
        (lambda: Device(7), "a device id is text"),
        (lambda: Device("a", numa=-5), "NUMA node ids are 0 or more, not -5"),
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
        (lambda: ContainerSettings(envs={"A=B": "1"}), "not a name of an environment variable"),
        (lambda: ContainerSettings(envs={"": "1"}), "not a name of an environment variable"),
        (lambda: ContainerSettings(envs={"A": 1}), "must be text"),
        (lambda: ContainerSettings(envs={"A": "a\0"}), "without NUL"),
        (lambda: ContainerSettings(annotations={"-a": ""}), "not a valid annotation key"),
        (lambda: ContainerSettings(annotations={"A.com/a": ""}), "not a valid annotation key"),
        (lambda: ContainerSettings(annotations={"a" * 64: ""}), "not a valid annotation key"),
        (lambda: ContainerSettings(cdi_devices=["gpu0"]), "vendor/class=name: 'gpu0'"),
        (
            lambda: ContainerSettings(
                devices=["/dev/a", DeviceSpec(host_path="/dev/b", container_path="/dev/a")]
            ),
            "devices: two host paths for /dev/a",
        ),
        (
            lambda: ContainerSettings(
                mounts=[
                    Mount(container_path="/a", host_path="/b"),
                    Mount(container_path="/a", host_path="/c"),
                ]
            ),
            "mounts: two host paths for /a",
        ),
    ],
)
def test_what_a_runtime_would_refuse_is_refused_here(make, text):
    with pytest.raises(ValueError, match=text):
        make()


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


GOOD_NAMES = ["vendor.com/gpu", "a/b", "example.com/a_B.c-9", f"{'a.' * 121}a/{'n' * 63}"]
BAD_NAMES = {
    "gpu": "it has no domain",
    "": "it has no domain",
    "kubernetes.io/gpu": "Kubernetes' own",
    "x.kubernetes.io/gpu": "Kubernetes' own",
    "requests.vendor.com/gpu": "it starts with requests.",
    "Vendor.com/gpu": "not a DNS domain",
    "/gpu": "not a DNS domain",
    f"{'a.' * 122}a/n": "not a DNS domain",
    "vendor.com/": "not a name",
    "vendor.com/a/b": "more than one '/'",
    # The kubelet looks for kubernetes.io/ anywhere in the name.
    "mykubernetes.io/gpu": "Kubernetes' own",
    "vendor.com/-a": "not a name",
    "vendor.com/\u00e4": "not a name",
    f"vendor.com/{'n' * 64}": "not a name",
}


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_names_a_kubelet_takes(name):
    check_resource_name(name)


@pytest.mark.parametrize(("name", "reason"), BAD_NAMES.items())
def test_names_a_kubelet_refuses(name, reason):
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
        ({"stop_grace": -1}, "stop_grace must not be below 0"),
        ({"workers": 4, "max_streams": 4}, "calls need threads too"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong, text):
    with pytest.raises(ValueError, match=text):
        PluginSettings(**wrong)
