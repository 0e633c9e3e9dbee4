"""Messages of ``protos`` and a user's ``api_pb2`` with the same names in one process."""

import os
import re
import subprocess
import sys

import pytest
from google.protobuf import __version__, descriptor_pool

from protos import deviceplugin_v1beta1 as dp
from tests.paths import ROOT


def python(code):
    """Run a new interpreter on this tree, with warnings as errors."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_our_extension(proto):
    """The API as other kubelets and plugins define it."""
    proto = re.sub(r"\n  repeated TypedDevice typed_devices = 1000;", "", proto)
    ours = r"\nmessage (Typed|Filesystem|Netlink|Pci)Device \{.*?\n\}"
    return re.sub(ours, "", proto, flags=re.S)


@pytest.fixture(scope="module")
def users_stubs(tmp_path_factory):
    """Create a directory with an ``api_pb2`` like that of a plugin author."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: no api_pb2 to make")
    directory = tmp_path_factory.mktemp("user")
    ours = (ROOT / "protos/deviceplugin_v1beta1.proto").read_text()
    (directory / "api.proto").write_text(without_our_extension(ours))
    # The compiler runs with the libraries it was installed with, not those under test.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}"]
    command += [f"--python_out={directory}", "api.proto"]
    subprocess.run(command, env=environment, check=True, timeout=50)
    stubs = directory / "api_pb2.py"
    stubs.write_text(made_for_this_protobuf(stubs.read_text()))
    return directory


def made_for_this_protobuf(stubs):
    """Remove the version check if the compiler is newer than the library under test."""
    made_by = tuple(int(part) for part in re.findall(r"^    (\d+),$", stubs, flags=re.M)[:3])
    assert len(made_by) == 3, "the generated module no longer says which protobuf it is for"
    if tuple(int(part) for part in __version__.split(".")) >= made_by:
        return stubs
    imported = r"^.* as _runtime_version$"
    called = r"^_runtime_version\.Validate(.|\n)*?^\)$"
    return re.sub(f"{imported}|{called}", "", stubs, flags=re.M)


EXCHANGE = """
theirs = api_pb2.ContainerAllocateResponse
ours = dp.ContainerAllocateResponse
assert theirs is not ours
assert theirs.DESCRIPTOR.full_name == ours.DESCRIPTOR.full_name
assert "typed_devices" not in theirs.DESCRIPTOR.fields_by_name

sent = theirs(
    envs={"A": "1"},
    mounts=[api_pb2.Mount(container_path="/c", host_path="/h", read_only=True)],
    cdi_devices=[api_pb2.CDIDevice(name="vendor.com/gpu=0")],
)
got = ours.FromString(sent.SerializeToString())
assert dict(got.envs) == {"A": "1"}
assert (got.mounts[0].container_path, got.mounts[0].read_only) == ("/c", True)
assert got.cdi_devices[0].name == "vendor.com/gpu=0"

got.typed_devices.add().pci.vendor_id = "10de"
relayed = theirs.FromString(got.SerializeToString())
assert relayed.mounts == sent.mounts
back = ours.FromString(relayed.SerializeToString())
assert back.typed_devices[0].pci.vendor_id == "10de"
print("exchanged")
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import api_pb2\nfrom protos import deviceplugin_v1beta1 as dp",
        "from protos import deviceplugin_v1beta1 as dp\nimport api_pb2",
        "from protos import deviceplugin_v1beta1_grpc\nimport api_pb2\n"
        "from protos import deviceplugin_v1beta1 as dp",
    ],
    ids=["theirs first", "ours first", "ours with grpc first"],
)
def test_users_stubs_load_beside_protos_and_exchange_bytes(users_stubs, imports):
    path = f"import sys; sys.path.insert(0, {str(users_stubs)!r})\n"
    assert python(path + imports + EXCHANGE) == "exchanged\n"


def test_messages_are_not_in_the_default_pool():
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("v1beta1.Device")
    assert dp.DESCRIPTOR.pool is not descriptor_pool.Default()


def test_all_apis_share_one_pool():
    from protos import (
        pluginregistration_v1,
        podresources_v1,
        podresources_v1alpha1,
        rawlist_v1beta1,
    )

    modules = [dp, podresources_v1, podresources_v1alpha1, pluginregistration_v1, rawlist_v1beta1]
    pools = {id(module.DESCRIPTOR.pool) for module in modules}
    assert len(pools) == 1


def test_unknown_field_is_kept():
    later = dp.Device(ID="gpu0").SerializeToString() + b"\xa2\x06\x03new"
    device = dp.Device.FromString(later)
    assert device.ID == "gpu0"
    assert device.SerializeToString() == later


def test_typed_device_has_one_kind():
    device = dp.TypedDevice(netlink=dp.NetlinkDevice(interface_name="eth42"))
    assert device.WhichOneof("device") == "netlink"
    device.filesystem.host_path = "/dev/gpu0"
    assert device.WhichOneof("device") == "filesystem"
    assert not device.HasField("netlink")


def test_importing_messages_does_not_import_grpc():
    names = "deviceplugin_v1beta1, pluginregistration_v1, podresources_v1, podresources_v1alpha1"
    code = f"import sys\nfrom protos import {names}\nprint('grpc' in sys.modules)"
    assert python(code) == "False\n"
    assert python(code.replace("_v1,", "_v1_grpc,")) == "True\n"
