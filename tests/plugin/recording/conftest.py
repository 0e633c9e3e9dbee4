"""Fixtures of the tests of recordings: directories, and a plugin with raw bytes."""

import threading
from concurrent import futures

import grpc
import pytest

from devicemanager.plugin.recording import Recorder
from podresources.sockets import target
from protos import deviceplugin_v1beta1 as dp
from tests.plugin.stubkubelet import StubKubelet

GPU = "vendor.com/gpu"
TIMEOUT = 15.0


@pytest.fixture
def plugin_dir(directory):
    path = directory / "p"
    path.mkdir()
    return path


@pytest.fixture
def kubelet(directory):
    with StubKubelet(directory / "k") as stub:
        yield stub


@pytest.fixture
def recorder(directory, plugin_dir, kubelet):
    """A recorder between ``kubelet`` and the plugins that register in ``plugin_dir``."""
    with Recorder(directory / "r.ndjson", kubelet.directory, plugin_dir) as running:
        yield running


class RawPlugin(grpc.GenericRpcHandler):
    """A plugin whose responses are bytes, or functions of request and context that yield bytes.

    ``received`` has the requests.
    """

    def __init__(self, directory, **responses):
        self.directory = directory
        self.received = []
        self.devices = threading.Semaphore(0)
        self.responses = {
            "GetDevicePluginOptions": dp.DevicePluginOptions().SerializeToString(),
            "ListAndWatch": lambda _request, context: hold(context, devices("gpu-0")),
            **responses,
        }
        self._server = None

    def serve(self, name="gpu.sock"):
        (self.directory / name).unlink(missing_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[self])
        self._server.add_insecure_port(target(self.directory / name))
        self._server.start()
        return self

    def register(self, endpoint="gpu.sock", resource=GPU, **fields):
        request = dp.RegisterRequest(
            version="v1beta1", endpoint=endpoint, resource_name=resource, **fields
        )
        return self.register_bytes(request.SerializeToString())

    def register_bytes(self, request):
        with grpc.insecure_channel(
            target(self.directory / "kubelet.sock"),
            options=[("grpc.use_local_subchannel_pool", 1)],
        ) as channel:
            return channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=TIMEOUT)

    def stop(self):
        if self._server is not None:
            self._server.stop(None).wait()

    def service(self, details):
        rpc = details.method.rpartition("/")[2]
        response = self.responses.get(rpc)
        if response is None:
            return None

        def behaviour(request, context):
            self.received.append((rpc, request, dict(context.invocation_metadata())))
            yield from response(request, context) if callable(response) else [response]

        return grpc.unary_stream_rpc_method_handler(behaviour)


def devices(*ids, health="Healthy"):
    rows = [dp.Device(ID=id_, health=health) for id_ in ids]
    return dp.ListAndWatchResponse(devices=rows).SerializeToString()


def hold(context, *lists):
    """Yield lists, then keep the stream open until the other side ends it."""
    yield from lists
    gone = threading.Event()
    if context.add_callback(gone.set):
        gone.wait(TIMEOUT)


@pytest.fixture
def raw_plugin(plugin_dir):
    """Function that serves a plugin in ``plugin_dir``."""
    plugins = []

    def serve(**responses):
        plugins.append(RawPlugin(plugin_dir, **responses).serve())
        return plugins[-1]

    yield serve
    for plugin in plugins:
        plugin.stop()
