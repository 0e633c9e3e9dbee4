"""Typed devices on the plugin's side: both forms, and invalid values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.plugin.typed import (
    ApiType,
    FilesystemDevice,
    FlatDevice,
    NetlinkDevice,
    PciDevice,
    TypedDevice,
    add_typed_devices,
)
from protos import deviceplugin_v1beta1 as dp


def test_flat_path_becomes_a_filesystem_device() -> None:
    flat = FlatDevice(
        identifier_container="/dev/gpu0",
        identifier_host="/dev/nvidia7",
        api_type=ApiType.PATH,
        permissions="rwm",
    )
    assert flat.typed() == FilesystemDevice(
        host_path="/dev/nvidia7", container_path="/dev/gpu0", permissions="rwm"
    )
    assert FlatDevice(
        identifier_container="/dev/gpu0", identifier_host="/dev/gpu0"
    ).typed() == FilesystemDevice(host_path="/dev/gpu0")


def test_flat_interface_becomes_a_netlink_device() -> None:
    assert FlatDevice(
        identifier_container="net0", identifier_host="eth42", api_type="NETLINK"
    ).typed() == NetlinkDevice("eth42", "net0")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *((ApiType.PATH, ApiType.PATH), ("PATH", ApiType.PATH), ("path", ApiType.PATH)),
        *((1, ApiType.PATH), (2, ApiType.NETLINK), ("NetLink", ApiType.NETLINK)),
    ],
)
def test_api_type_by_value_name_or_number(given: object, expected: ApiType) -> None:
    name = "/dev/x" if expected is ApiType.PATH else "eth0"
    device = FlatDevice(identifier_container=name, identifier_host=name, api_type=given)
    assert device.api_type is expected


@pytest.mark.parametrize("given", ["", "pat", 0, 3, -1, True, None, 0.0])
def test_unknown_api_type_is_an_error(given: object) -> None:
    with pytest.raises(
        ValueError, match=r"^unknown API type .*: use one of PATH \(1\), NETLINK \(2\)$"
    ):
        FlatDevice(identifier_container="/x", identifier_host="/x", api_type=given)


def test_flat_device_is_checked_at_creation() -> None:
    with pytest.raises(ValueError, match=r"^host_path must be an absolute path"):
        FlatDevice(identifier_container="/dev/x", identifier_host="dev/x")
    with pytest.raises(ValueError, match=r"^invalid interface_name 'a/b'"):
        FlatDevice(identifier_container="x", identifier_host="a/b", api_type="netlink")


def test_interface_has_no_permissions() -> None:
    with pytest.raises(ValueError, match=r"^permissions are for PATH devices only"):
        FlatDevice(
            identifier_container="eth42",
            identifier_host="eth42",
            api_type=ApiType.NETLINK,
            permissions="rw",
        ).typed()


@given(st.text("rwmx", max_size=5))
def test_permissions_are_distinct_letters_of_r_w_m(text: str) -> None:
    valid = bool(text) and set(text) <= set("rwm") and len(text) == len(set(text))
    try:
        device = FilesystemDevice(host_path="/dev/x", permissions=text)
    except ValueError as error:
        assert not valid and repr(text) in str(error)
    else:
        assert valid and device.permissions == text


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\tb", "a:b", "a\0b", "x" * 16])
def test_invalid_interface_name_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid interface_name "):
        NetlinkDevice(name)
    with pytest.raises(ValueError, match=r"^invalid container_name "):
        NetlinkDevice("x" * 15, name)


@pytest.mark.parametrize("text", ["", "808", "80861", "0x80g6", "8086\n", "x8086"])
def test_invalid_pci_id_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        PciDevice(text, "1572")


def test_pci_ids_are_normalized() -> None:
    assert PciDevice("0x8086", "15AF") == PciDevice("8086", "15af")


@pytest.mark.parametrize(
    "make",
    [
        lambda: FilesystemDevice(host_path="dev/x"),
        lambda: FilesystemDevice(host_path="/dev/x", container_path="x"),
        lambda: NetlinkDevice("eth0", net_ns="run/netns/x"),
    ],
)
def test_paths_are_absolute(make: object) -> None:
    with pytest.raises(ValueError, match="must be an absolute path"):
        make()  # type: ignore[operator]


def test_all_types_are_sent_and_paths_also_in_the_standard_list() -> None:
    response = dp.ContainerAllocateResponse(envs={"A": "1"})
    add_typed_devices(
        response,
        [
            FlatDevice(
                identifier_container="/dev/gpu0",
                identifier_host="/dev/nvidia7",
                api_type=ApiType.PATH,
                permissions="rw",
            ),
            NetlinkDevice("eth42", "net0", "/run/netns/pool"),
            PciDevice("8086", "1572"),
        ],
    )
    path = {"container_path": "/dev/gpu0", "host_path": "/dev/nvidia7", "permissions": "rw"}
    assert response == dp.ContainerAllocateResponse(
        envs={"A": "1"},
        devices=[dp.DeviceSpec(**path)],
        typed_devices=[
            dp.TypedDevice(filesystem=dp.FilesystemDevice(**path)),
            dp.TypedDevice(
                netlink=dp.NetlinkDevice(
                    net_ns="/run/netns/pool", interface_name="eth42", container_name="net0"
                )
            ),
            dp.TypedDevice(pci=dp.PciDevice(vendor_id="8086", product_id="1572")),
        ],
    )


def test_path_in_the_standard_list_is_not_added_twice() -> None:
    response = dp.ContainerAllocateResponse()
    response.devices.add(container_path="/dev/a", host_path="/dev/a", permissions="r")
    add_typed_devices(
        response, [FilesystemDevice(host_path="/dev/a"), FilesystemDevice(host_path="/dev/a")]
    )
    assert len(response.devices) == 1


@pytest.mark.parametrize(
    "devices",
    [
        [FilesystemDevice(host_path="/dev/b", container_path="/dev/a")],
        [
            FilesystemDevice(host_path="/dev/b", container_path="/dev/z"),
            FilesystemDevice(host_path="/dev/c", container_path="/dev/z"),
        ],
    ],
    ids=["path in the standard list", "path of a typed device"],
)
def test_two_host_paths_for_one_container_path_change_nothing(devices: list[TypedDevice]) -> None:
    response = dp.ContainerAllocateResponse()
    response.devices.add(container_path="/dev/a", host_path="/dev/a", permissions="r")
    before = response.SerializeToString()
    with pytest.raises(ValueError, match=r"^two host paths for"):
        add_typed_devices(response, devices)
    assert response.SerializeToString() == before
