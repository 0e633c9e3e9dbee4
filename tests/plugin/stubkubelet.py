"""The kubelet's part as far as a plugin can tell, in a few lines of our own."""

import contextlib
import stat
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc

from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as rpc

PATIENCE = 15.0
CHECKPOINT = "kubelet_internal_checkpoint"


class Connection:
    """One registered plugin: its options, its stub, and every list it has sent."""

    def __init__(self, kubelet, request):
        self.request = request
        self.lists = []
        self.ended = False
        self._kubelet = kubelet
        # Each dial starts anew: grpc would remember a failed one and wait before the next.
        self._channel = grpc.insecure_channel(
            f"unix:{kubelet.directory / request.endpoint}",
            options=[("grpc.use_local_subchannel_pool", 1)],
        )
        self.stub = rpc.DevicePluginStub(self._channel)
        self.options = self.stub.GetDevicePluginOptions(dp.Empty(), timeout=10)
        self._call = self.stub.ListAndWatch(dp.Empty())
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def devices(self):
        """Health by id, of the newest list."""
        return {d.ID: d.health for d in self.lists[-1].devices} if self.lists else None

    def cut(self):
        """End the stream only; the channel stays open, as in the kubelet."""
        self._call.cancel()
        self._reader.join(PATIENCE)

    def close(self):
        self.cut()
        self._channel.close()

    def allocate(self, *containers):
        request = dp.AllocateRequest(
            container_requests=[dp.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        )
        return self.stub.Allocate(request, timeout=PATIENCE)

    def _read(self):
        with contextlib.suppress(grpc.RpcError):
            for message in self._call:
                with self._kubelet.changed:
                    self.lists.append(message)
                    self._kubelet.changed.notify_all()
        with self._kubelet.changed:
            self.ended = True
            self._kubelet.changed.notify_all()


class StubKubelet(rpc.RegistrationServicer):
    """Serves Registration in ``directory`` and follows the list of whoever registers.

    ``reject`` is a text to reject with; ``hold`` an event that each Register waits for
    before it answers.
    """

    def __init__(self, directory, *, consume=True):
        self.directory = Path(directory)
        self.changed = threading.Condition()
        self.requests = []
        self.times = []
        self.connections = []
        self.reject = None
        self.hold = None
        self._follow = consume
        self._server = None

    def start(self):
        """As a kubelet: first everything in the directory goes."""
        self.directory.mkdir(exist_ok=True)
        for entry in self.directory.iterdir():
            # A plugin may remove its own socket meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if entry.name != CHECKPOINT and not stat.S_ISDIR(entry.lstat().st_mode):
                    entry.unlink()
        self.serve()
        return self

    def serve(self, name="kubelet.sock"):
        """Listen, leaving the directory as it is."""
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        rpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.directory}/{name}")
        self._server.start()

    def stop(self):
        server, self._server = self._server, None
        if server is not None:
            server.stop(0).wait()
        for connection in self.connections:
            connection.close()
        self.connections.clear()

    def restart(self):
        self.stop()
        self.start()

    __enter__ = start

    def __exit__(self, *_exc):
        self.stop()

    def Register(self, request, context):
        with self.changed:
            self.requests.append(request)
            self.times.append(time.monotonic())
            self.changed.notify_all()
        if self.reject:
            context.abort(grpc.StatusCode.UNKNOWN, self.reject)
        if self._follow:
            # Inside the call, before the answer, as the kubelet does: the plugin must serve.
            connection = Connection(self, request)
            with self.changed:
                self.connections.append(connection)
                self.changed.notify_all()
        if self.hold is not None:
            self.hold.wait(PATIENCE)
        return dp.Empty()

    def wait(self, condition, what="what the test waits for"):
        with self.changed:
            if not self.changed.wait_for(lambda: condition(self), PATIENCE):
                names = sorted(entry.name for entry in self.directory.iterdir())
                raise AssertionError(f"{what} did not come; {self.requests=} {names=}")

    def wait_for_path(self, path, *, there):
        """Wait until there is a file at ``path``, or none; nobody notifies of that."""
        deadline = time.monotonic() + PATIENCE
        while path.exists() is not there:
            assert time.monotonic() < deadline, f"{path} {'did not come' if there else 'is there'}"
            time.sleep(0.005)

    def plugin(self, resource="vendor.com/gpu"):
        """The newest connection of a resource with an open stream that has sent a list."""

        def live(kubelet):
            return [
                c
                for c in kubelet.connections
                if c.request.resource_name == resource and not c.ended and c.lists
            ]

        self.wait(live, f"the list of {resource}")
        return live(self)[-1]

    def wait_devices(self, expected, resource="vendor.com/gpu"):
        """Wait until the live stream of the resource says just this."""

        def says(kubelet):
            return any(
                c.devices == expected
                for c in kubelet.connections
                if c.request.resource_name == resource and not c.ended
            )

        self.wait(says, f"{expected} of {resource}")
