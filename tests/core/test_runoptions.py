"""Merging the settings of several resources into a container's run options."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.ids import ResourceName
from devicemanager.core.runoptions import (
    Conflict,
    ContainerSettings,
    DeviceSpec,
    Mount,
    NetworkInterface,
    PciDevice,
    RunOptions,
    merge,
)

GPU = ResourceName("vendor.com/gpu")
NIC = ResourceName("vendor.com/nic")

paths = st.sampled_from(["/dev/a", "/dev/b", "/opt/c"])
texts = st.sampled_from(["", "0", "1"])
settings_of_one_resource = st.builds(
    ContainerSettings,
    envs=st.dictionaries(st.sampled_from(["A", "B", "C"]), texts, max_size=3),
    mounts=st.lists(
        st.builds(Mount, container_path=paths, host_path=paths, read_only=st.booleans()), max_size=3
    ).map(tuple),
    devices=st.lists(
        st.builds(
            DeviceSpec,
            container_path=paths,
            host_path=paths,
            permissions=st.sampled_from(["r", "rw", "rwm"]),
        ),
        max_size=3,
    ).map(tuple),
    annotations=st.dictionaries(st.sampled_from(["x", "y"]), texts, max_size=2),
    cdi_devices=st.lists(st.sampled_from(["v.com/a=0", "v.com/a=1"]), max_size=3).map(tuple),
    network_interfaces=st.lists(
        st.builds(
            NetworkInterface,
            st.sampled_from(["eth1", "eth2"]),
            st.sampled_from(["net0", "net1"]),
            st.sampled_from(["", "/run/netns/x"]),
        ),
        max_size=3,
    ).map(tuple),
    pci_devices=st.lists(
        st.builds(
            PciDevice,
            st.just("8086"),
            st.sampled_from(["1572", "1573"]),
            st.lists(st.sampled_from(["0000:00:01.0", "0000:00:02.0"]), max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)
responses = st.dictionaries(
    st.sampled_from([GPU, NIC, ResourceName("a.com/z")]), settings_of_one_resource, max_size=3
)


def test_no_devices_give_no_options() -> None:
    assert merge({}) == RunOptions()


def test_options_of_one_resource() -> None:
    options = merge(
        {
            GPU: ContainerSettings(
                envs={"GPU": "0"},
                mounts=(
                    Mount(container_path="/opt/lib", host_path="/usr/lib/gpu", read_only=True),
                ),
                devices=(
                    DeviceSpec(
                        container_path="/dev/gpu0", host_path="/dev/gpu0", permissions="rwm"
                    ),
                ),
                annotations={"gpu": "zero"},
                cdi_devices=("vendor.com/gpu=0",),
                network_interfaces=(NetworkInterface("eth42", "eth0"),),
                pci_devices=(PciDevice("10de", "20b0"),),
            )
        }
    )
    assert options == RunOptions(
        envs={"GPU": "0"},
        mounts=(Mount(container_path="/opt/lib", host_path="/usr/lib/gpu", read_only=True),),
        devices=(DeviceSpec(container_path="/dev/gpu0", host_path="/dev/gpu0", permissions="rwm"),),
        annotations={"gpu": "zero"},
        cdi_devices=("vendor.com/gpu=0",),
        network_interfaces=(NetworkInterface("eth42", "eth0"),),
        pci_devices=(PciDevice("10de", "20b0"),),
    )


CLASHES = {
    "env": (
        ContainerSettings(envs={"A": "1"}),
        ContainerSettings(envs={"A": "2"}),
        ("env", "A", "1", "2"),
    ),
    "annotation": (
        ContainerSettings(annotations={"a": "1"}),
        ContainerSettings(annotations={"a": "2"}),
        ("annotation", "a", "1", "2"),
    ),
    "mount": (
        ContainerSettings(mounts=(Mount(container_path="/c", host_path="/h1"),)),
        ContainerSettings(mounts=(Mount(container_path="/c", host_path="/h2", read_only=True),)),
        ("mount", "/c", "/h1", "/h2"),
    ),
    "mount access": (
        ContainerSettings(mounts=(Mount(container_path="/c", host_path="/h"),)),
        ContainerSettings(mounts=(Mount(container_path="/c", host_path="/h", read_only=True),)),
        ("mount access", "/c", "read-write", "read-only"),
    ),
    "device": (
        ContainerSettings(
            devices=(DeviceSpec(container_path="/dev/c", host_path="/dev/h1", permissions="r"),)
        ),
        ContainerSettings(
            devices=(DeviceSpec(container_path="/dev/c", host_path="/dev/h2", permissions="rw"),)
        ),
        ("device", "/dev/c", "/dev/h1", "/dev/h2"),
    ),
    "device permissions": (
        ContainerSettings(
            devices=(DeviceSpec(container_path="/dev/c", host_path="/dev/h", permissions="r"),)
        ),
        ContainerSettings(
            devices=(DeviceSpec(container_path="/dev/c", host_path="/dev/h", permissions="rw"),)
        ),
        ("device permissions", "/dev/c", "r", "rw"),
    ),
    "classic and typed device": (
        ContainerSettings(
            devices=(DeviceSpec(container_path="/dev/c", host_path="/dev/h1", permissions="r"),)
        ),
        ContainerSettings(
            filesystem_devices=(
                DeviceSpec(container_path="/dev/c", host_path="/dev/h2", permissions="r"),
            )
        ),
        ("device", "/dev/c", "/dev/h1", "/dev/h2"),
    ),
    "one name for two interfaces": (
        ContainerSettings(network_interfaces=(NetworkInterface("eth1", "net0"),)),
        ContainerSettings(network_interfaces=(NetworkInterface("eth2", "net0"),)),
        ("network interface", "net0", "eth1 as net0", "eth2 as net0"),
    ),
    "one interface under two names": (
        ContainerSettings(network_interfaces=(NetworkInterface("eth1", "net0"),)),
        ContainerSettings(network_interfaces=(NetworkInterface("eth1", "net1"),)),
        ("network interface", "eth1", "eth1 as net0", "eth1 as net1"),
    ),
    "one name from two namespaces": (
        ContainerSettings(network_interfaces=(NetworkInterface("eth1", "net0"),)),
        ContainerSettings(network_interfaces=(NetworkInterface("eth1", "net0", "/run/netns/x"),)),
        (
            "network interface",
            "net0",
            "eth1 as net0 from the host",
            "eth1 as net0 from /run/netns/x",
        ),
    ),
}


@pytest.mark.parametrize(("first", "second", "expected"), CLASHES.values(), ids=CLASHES)
def test_first_resource_wins_and_the_conflict_is_listed(
    first: ContainerSettings, second: ContainerSettings, expected: tuple[str, str, str, str]
) -> None:
    options = merge({NIC: second, GPU: first})
    kind, key, kept, dropped = expected
    assert options.conflicts == (Conflict(kind, key, GPU, kept, NIC, dropped),)
    assert attrs.evolve(options, conflicts=()) == merge({GPU: first})


def test_equal_values_are_listed_once_without_conflict() -> None:
    same = ContainerSettings(
        envs={"A": "1"},
        mounts=(Mount(container_path="/c", host_path="/h"),),
        devices=(DeviceSpec(container_path="/dev/c", host_path="/dev/h"),),
        filesystem_devices=(DeviceSpec(container_path="/dev/c", host_path="/dev/h"),),
        annotations={"a": "1"},
        cdi_devices=("v.com/a=0",),
        network_interfaces=(NetworkInterface("eth1", "net0"),),
    )
    options = merge({GPU: same, NIC: same})
    assert options == merge({GPU: same})
    assert options.conflicts == ()
    assert len(options.devices) == len(options.cdi_devices) == 1


def test_conflict_is_one_line() -> None:
    (conflict,) = merge(
        {GPU: ContainerSettings(envs={"A": "1"}), NIC: ContainerSettings(envs={"A": "2"})}
    ).conflicts
    assert str(conflict) == (
        "env A: '1' from vendor.com/gpu is used, '2' from vendor.com/nic is dropped"
    )


def test_cdi_names_keep_the_plugins_order() -> None:
    options = merge(
        {
            NIC: ContainerSettings(cdi_devices=("v.com/n=0", "v.com/g=1")),
            GPU: ContainerSettings(cdi_devices=("v.com/g=1", "v.com/g=0", "v.com/g=1")),
        }
    )
    assert options.cdi_devices == ("v.com/g=1", "v.com/g=0", "v.com/n=0")


def test_equal_pci_devices_without_addresses_are_separate() -> None:
    unresolved = PciDevice("8086", "1572")
    options = merge({GPU: ContainerSettings(pci_devices=(unresolved, unresolved))})
    assert options.pci_devices == (unresolved, unresolved)


def test_resolved_pci_address_is_listed_once() -> None:
    resolved = PciDevice("8086", "1572", ("0000:00:01.0",))
    options = merge(
        {
            GPU: ContainerSettings(pci_devices=(resolved,)),
            NIC: ContainerSettings(pci_devices=(resolved,)),
        }
    )
    assert options.pci_devices == (resolved,)


@given(responses)
def test_order_of_resources_does_not_matter(
    given_responses: dict[ResourceName, ContainerSettings],
) -> None:
    backwards = dict(reversed(given_responses.items()))
    forward, backward = merge(given_responses), merge(backwards)
    assert forward == backward
    assert list(forward.envs) == list(backward.envs) == sorted(forward.envs)


@given(responses)
def test_keys_are_unique_complete_and_in_order(
    given_responses: dict[ResourceName, ContainerSettings],
) -> None:
    options = merge(given_responses)
    every = given_responses.values()
    assert set(options.envs) == {name for s in every for name in s.envs}
    assert set(options.annotations) == {name for s in every for name in s.annotations}
    # Resources by name, and within a resource the plugin's order.
    ordered = [given_responses[resource] for resource in sorted(given_responses)]
    assert [m.container_path for m in options.mounts] == list(
        dict.fromkeys(m.container_path for s in ordered for m in s.mounts)
    )
    assert [d.container_path for d in options.devices] == list(
        dict.fromkeys(d.container_path for s in ordered for d in s.devices)
    )
    assert options.cdi_devices == tuple(
        dict.fromkeys(name for s in ordered for name in s.cdi_devices)
    )
    hosts = [(i.net_ns, i.host_name) for i in options.network_interfaces]
    names = [i.container_name for i in options.network_interfaces]
    assert len(hosts) == len(set(hosts)) and names == sorted(set(names))


@given(responses)
def test_every_value_is_merged_or_reported_as_conflict(
    given_responses: dict[ResourceName, ContainerSettings],
) -> None:
    options = merge(given_responses)
    listed = {(c.kind, c.key, c.dropped_by) for c in options.conflicts}
    for resource, settings in given_responses.items():
        for name, value in settings.envs.items():
            assert options.envs[name] == value or ("env", name, resource) in listed
        for mount in settings.mounts:
            kinds = {(k, mount.container_path, resource) for k in ("mount", "mount access")}
            assert mount in options.mounts or kinds & listed
        for interface in settings.network_interfaces:
            keys = (interface.container_name, interface.host_name)
            kinds = {("network interface", key, resource) for key in keys}
            assert interface in options.network_interfaces or kinds & listed
