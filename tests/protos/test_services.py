"""Stubs and servicers over unix sockets, and the versions of their libraries."""

import os
import re
import shutil
import tempfile
from concurrent import futures
from pathlib import Path

import google.protobuf
import grpc
import pytest

from protos import (
    deviceplugin_v1beta1,
    deviceplugin_v1beta1_grpc,
    pluginregistration_v1,
    pluginregistration_v1_grpc,
    podresources_v1,
    podresources_v1_grpc,
    podresources_v1alpha1,
    podresources_v1alpha1_grpc,
)
from tests.paths import ROOT

DEADLINE = 20.0

SERVICES = [
    (deviceplugin_v1beta1, deviceplugin_v1beta1_grpc, "Registration"),
    (deviceplugin_v1beta1, deviceplugin_v1beta1_grpc, "DevicePlugin"),
    (podresources_v1, podresources_v1_grpc, "PodResourcesLister"),
    (podresources_v1alpha1, podresources_v1alpha1_grpc, "PodResourcesLister"),
    (pluginregistration_v1, pluginregistration_v1_grpc, "Registration"),
]


@pytest.fixture
def serve():
    """Serve what the function adds to a server, and return a channel to it."""
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    with futures.ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        channels = []

        def start(add):
            add(server)
            server.add_insecure_port(f"unix:{directory}/s")
            server.start()
            channels.append(grpc.insecure_channel(f"unix:{directory}/s"))
            return channels[0]

        yield start
        for channel in channels:
            channel.close()
        server.stop(None).wait(DEADLINE)
    shutil.rmtree(directory)


class Plugin(deviceplugin_v1beta1_grpc.DevicePluginServicer):
    def ListAndWatch(self, request, context):
        for health in ("Healthy", "Unhealthy"):
            device = deviceplugin_v1beta1.Device(ID="gpu0", health=health)
            yield deviceplugin_v1beta1.ListAndWatchResponse(devices=[device])

    def Allocate(self, request, context):
        answer = deviceplugin_v1beta1.AllocateResponse()
        for asked in request.container_requests:
            answer.container_responses.add().envs["IDS"] = ",".join(asked.devices_ids)
        return answer


def add_plugin(server):
    deviceplugin_v1beta1_grpc.add_DevicePluginServicer_to_server(Plugin(), server)


def allocate_request(*ids):
    asked = deviceplugin_v1beta1.ContainerAllocateRequest(devices_ids=ids)
    return deviceplugin_v1beta1.AllocateRequest(container_requests=[asked])


def test_call_reaches_the_method_and_returns_its_response(serve):
    stub = deviceplugin_v1beta1_grpc.DevicePluginStub(serve(add_plugin))
    answer = stub.Allocate(allocate_request("a", "b"), timeout=DEADLINE)
    assert answer.container_responses[0].envs["IDS"] == "a,b"


def test_stream_returns_each_message(serve):
    stub = deviceplugin_v1beta1_grpc.DevicePluginStub(serve(add_plugin))
    lists = stub.ListAndWatch(deviceplugin_v1beta1.Empty(), timeout=DEADLINE)
    assert [answer.devices[0].health for answer in lists] == ["Healthy", "Unhealthy"]


def test_path_constant_can_be_called_with_bytes(serve):
    call = serve(add_plugin).unary_unary(deviceplugin_v1beta1_grpc.ALLOCATE)
    data = call(allocate_request("a").SerializeToString(), timeout=DEADLINE)
    answer = deviceplugin_v1beta1.AllocateResponse.FromString(data)
    assert answer.container_responses[0].envs["IDS"] == "a"


@pytest.mark.parametrize(("messages", "services", "name"), SERVICES)
def test_missing_method_is_unimplemented(serve, messages, services, name):
    servicer = getattr(services, f"{name}Servicer")()
    add = getattr(services, f"add_{name}Servicer_to_server")
    stub = getattr(services, f"{name}Stub")(serve(lambda server: add(servicer, server)))
    for method in messages.DESCRIPTOR.services_by_name[name].methods:
        request = getattr(messages, method.input_type.name)()
        with pytest.raises(grpc.RpcError) as failed:
            answer = getattr(stub, method.name)(request, timeout=DEADLINE)
            list(answer if method.server_streaming else [])
        assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert failed.value.details() == "Method not implemented!"


@pytest.mark.parametrize(("messages", "services", "name"), SERVICES)
def test_services_have_the_names_of_grpcs_generator(messages, services, name):
    made = [f"{name}Stub", f"{name}Servicer", f"add_{name}Servicer_to_server"]
    assert set(made) <= set(services.__all__)
    for exported in made[:2]:
        assert getattr(services, exported).__module__ == services.__name__


def test_libraries_are_those_pinned_for_the_line():
    line = os.environ.get("WIRE_LINE")
    if line is None:
        pytest.skip("WIRE_LINE is not set: this environment claims no line")
    pins = ROOT.joinpath("constraints", f"{line}.txt").read_text()
    wanted = dict(re.findall(r"^(grpcio|protobuf)==(\S+)$", pins, flags=re.M))
    assert wanted == {"grpcio": grpc.__version__, "protobuf": google.protobuf.__version__}
