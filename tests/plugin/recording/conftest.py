"""What the tests of recordings share: directories, and a plugin of raw bytes."""

import threading
import time
from concurrent import futures

import grpc
import pytest

from devicemanager.plugin.recording import Recorder
from podresources.sockets import target
from protos import deviceplugin_v1beta1 as dp
from tests.plugin.stubkubelet import StubKubelet

GPU = "vendor.com/gpu"
PATIENCE = 15.0


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
    """Between ``kubelet`` and whoever registers in ``plugin_dir``."""
    with Recorder(directory / "r.ndjson", kubelet.directory, plugin_dir) as running:
        yield running


class RawPlugin(grpc.GenericRpcHandler):
    """Answers with the bytes, or by the function (request, context), of ``answers``.

    A function may yield: then it is a stream. What was asked is in ``asked``.
    """

    def __init__(self, directory, **answers):
        self.directory = directory
        self.asked = []
        self.devices = threading.Semaphore(0)
        self.answers = {
            "GetDevicePluginOptions": dp.DevicePluginOptions().SerializeToString(),
            "ListAndWatch": lambda _request, context: hold(context, devices("gpu-0")),
            **answers,
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
            return channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=PATIENCE)

    def stop(self):
        if self._server is not None:
            self._server.stop(None).wait()

    def service(self, details):
        rpc = details.method.rpartition("/")[2]
        answer = self.answers.get(rpc)
        if answer is None:
            return None

        def behaviour(request, context):
            self.asked.append((rpc, request, dict(context.invocation_metadata())))
            yield from answer(request, context) if callable(answer) else [answer]

        return grpc.unary_stream_rpc_method_handler(behaviour)


def devices(*ids, health="Healthy"):
    rows = [dp.Device(ID=id_, health=health) for id_ in ids]
    return dp.ListAndWatchResponse(devices=rows).SerializeToString()


def hold(context, *lists):
    """A stream of these lists that stays open until the other side ends it."""
    yield from lists
    gone = threading.Event()
    if context.add_callback(gone.set):
        gone.wait(PATIENCE)


@pytest.fixture
def raw_plugin(plugin_dir):
    """Makes a served plugin in ``plugin_dir``."""
    made = []

    def make(**answers):
        made.append(RawPlugin(plugin_dir, **answers).serve())
        return made[-1]

    yield make
    for plugin in made:
        plugin.stop()


def wait_until(condition):
    """For what nobody notifies of."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
