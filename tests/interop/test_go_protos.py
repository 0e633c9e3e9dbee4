"""Messages and stubs of ``protos`` with programs on the published API."""

import base64
import threading
from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest

from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as rpc

GPU = "vendor.com/gpu"
DEADLINE = 15


@contextmanager
def serving(socket, add, servicer):
    with futures.ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        add(servicer, server)
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()


def typed_response():
    """Return an allocation with a typed device, which the published API does not have."""
    return dp.ContainerAllocateResponse(
        envs={"A": "1"},
        mounts=[dp.Mount(container_path="/opt/a", host_path="/usr/share", read_only=True)],
        devices=[dp.DeviceSpec(container_path="/dev/a", host_path="/dev/null", permissions="rw")],
        annotations={"vendor.com/a": "b"},
        cdi_devices=[dp.CDIDevice(name="vendor.com/gpu=a")],
        typed_devices=[
            dp.TypedDevice(netlink=dp.NetlinkDevice(interface_name="eth42")),
        ],
    )


class Plugin(rpc.DevicePluginServicer):
    def __init__(self):
        self.allocated = []
        self.end = threading.Event()

    def GetDevicePluginOptions(self, request, context):
        return dp.DevicePluginOptions(pre_start_required=True)

    def ListAndWatch(self, request, context):
        node = dp.TopologyInfo(nodes=[dp.NUMANode(ID=1)])
        yield dp.ListAndWatchResponse(
            devices=[
                dp.Device(ID="a", health="Healthy", topology=node),
                dp.Device(ID="b", health="Unhealthy"),
                dp.Device(ID="c", health="Healthy", topology=dp.TopologyInfo()),
            ]
        )
        self.end.wait(DEADLINE)

    def Allocate(self, request, context):
        self.allocated += [list(each.devices_ids) for each in request.container_requests]
        return dp.AllocateResponse(container_responses=[typed_response()])

    def PreStartContainer(self, request, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"not ready: {request.devices_ids}")

    def GetPreferredAllocation(self, request, context):
        [container] = request.container_requests
        ids = [*container.must_include_deviceIDs, *container.available_deviceIDs][
            : container.allocation_size
        ]
        reply = dp.ContainerPreferredAllocationResponse(deviceIDs=ids)
        return dp.PreferredAllocationResponse(container_responses=[reply])


@pytest.fixture
def registered(spawn, go_api, plugin_dir):
    """A plugin on the stubs of ``protos``, registered with the kubelet's side in Go."""
    kubelet = spawn(go_api / "kubeletside", "-dir", plugin_dir)
    plugin = Plugin()
    add = rpc.add_DevicePluginServicer_to_server
    # A starting kubelet empties the directory: serve the plugin afterwards.
    generation = kubelet.wait_for("serving")["generation"]
    with (
        serving(plugin_dir / "p.sock", add, plugin),
        grpc.insecure_channel(f"unix:{plugin_dir}/kubelet.sock") as channel,
    ):
        request = dp.RegisterRequest(version="v1beta1", endpoint="p.sock", resource_name=GPU)
        rpc.RegistrationStub(channel).Register(request, timeout=DEADLINE)
        try:
            yield plugin, kubelet, generation
        finally:
            plugin.end.set()


def test_go_kubelet_side_reads_plugin(registered):
    _, kubelet, _ = registered
    assert kubelet.wait_for("options")["options"]["pre_start_required"] is True
    assert kubelet.wait_for("list")["devices"] == [
        {"id": "a", "health": "Healthy", "numa": [1]},
        {"id": "b", "health": "Unhealthy", "numa": None},
        {"id": "c", "health": "Healthy", "numa": []},
    ]
    reply = kubelet.call("prefer", GPU, "a,b", "c", 2, reply="preferred")
    assert reply["containers"] == [["c", "a"]]
    error = kubelet.call("prestart", GPU, "a", reply="rpc-error")
    assert (error["code"], error["message"]) == ("FailedPrecondition", "not ready: ['a']")


def test_kubelet_without_typed_devices_mounts_paths(registered):
    plugin, kubelet, generation = registered
    [allocation] = kubelet.call("allocate", GPU, "a,c", reply="allocated")["containers"]
    assert plugin.allocated == [["a", "c"]]
    stored = dp.ContainerAllocateResponse.FromString(base64.b64decode(allocation.pop("stored")))
    expected = typed_response()
    if generation == "gogo":
        # Kubelets up to 1.34 drop unknown fields; later ones store them.
        expected.ClearField("typed_devices")
    assert stored == expected
    assert allocation == {
        "envs": {"A": "1"},
        "mounts": [{"container_path": "/opt/a", "host_path": "/usr/share", "read_only": True}],
        "devices": [{"container_path": "/dev/a", "host_path": "/dev/null", "permissions": "rw"}],
        "annotations": {"vendor.com/a": "b"},
        "cdi_devices": ["vendor.com/gpu=a"],
    }


class Registration(rpc.RegistrationServicer):
    def __init__(self):
        self.request = futures.Future()

    def Register(self, request, context):
        self.request.set_result(request)
        return dp.Empty()


def test_stubs_read_go_plugin(spawn, go_api, plugin_dir):
    registration = Registration()
    add = rpc.add_RegistrationServicer_to_server
    with serving(plugin_dir / "kubelet.sock", add, registration):
        options = ["-prestart", "-preferred", "lexical", "-numa", "3"]
        go = spawn(go_api / "plugin", "-dir", plugin_dir, *options)
        request = registration.request.result(DEADLINE)
        assert request == dp.RegisterRequest(
            version="v1beta1",
            endpoint="go-plugin.sock",
            resource_name=GPU,
            options=dp.DevicePluginOptions(
                pre_start_required=True, get_preferred_allocation_available=True
            ),
        )
        with grpc.insecure_channel(f"unix:{plugin_dir}/{request.endpoint}") as channel:
            plugin = rpc.DevicePluginStub(channel)
            assert plugin.GetDevicePluginOptions(dp.Empty(), timeout=DEADLINE) == request.options
            stream = plugin.ListAndWatch(dp.Empty(), timeout=DEADLINE)
            topology = dp.TopologyInfo(nodes=[dp.NUMANode(ID=3)])
            assert list(next(stream).devices) == [
                dp.Device(ID=f"gpu-{n}", health="Healthy", topology=topology) for n in (0, 1)
            ]
            request = dp.ContainerAllocateRequest(devices_ids=["gpu-1"])
            reply = plugin.Allocate(
                dp.AllocateRequest(container_requests=[request]), timeout=DEADLINE
            )
            assert reply == dp.AllocateResponse(container_responses=[go_allocation("gpu-1")])
            stream.cancel()
        assert go.wait_for("allocate")["ids"] == ["gpu-1"]


def go_allocation(device):
    return dp.ContainerAllocateResponse(
        envs={"GPU_DEVICES": device},
        mounts=[dp.Mount(container_path="/opt/gpu", host_path="/usr/share", read_only=True)],
        devices=[
            dp.DeviceSpec(container_path=f"/dev/{device}", host_path="/dev/null", permissions="rw")
        ],
        annotations={GPU: device},
        cdi_devices=[dp.CDIDevice(name=f"{GPU}={device}")],
    )
