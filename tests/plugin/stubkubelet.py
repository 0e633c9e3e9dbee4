"""A minimal kubelet for tests of plugins: registration and ListAndWatch streams only."""

import contextlib
import stat
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc

from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as rpc

TIMEOUT = 15.0
CHECKPOINT = "kubelet_internal_checkpoint"


class Connection:
    """A registered plugin: its options, its stub, and the lists that it has sent."""

    def __init__(self, kubelet, request):
        self.request = request
        self.lists = []
        self.ended = False
        self._kubelet = kubelet
        # A new subchannel pool per dial: gRPC would back off after an earlier failed dial.
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
        """Health by ID in the newest list."""
        return {d.ID: d.health for d in self.lists[-1].devices} if self.lists else None

    def cut(self):
        """End the stream only; the channel stays open, as in the kubelet."""
        self._call.cancel()
        self._reader.join(TIMEOUT)

    def close(self):
        self.cut()
        self._channel.close()

    def allocate(self, *containers):
        request = dp.AllocateRequest(
            container_requests=[dp.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        )
        return self.stub.Allocate(request, timeout=TIMEOUT)

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
    """Serves Registration in ``directory`` and reads the lists of plugins that register.

    ``reject``: text to reject registrations with. ``hold``: event that each Register waits for
    before it responds.
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
        """Start as a kubelet does: first remove everything in the directory."""
        self.directory.mkdir(exist_ok=True)
        for entry in self.directory.iterdir():
            # A plugin can remove its socket at the same time.
            with contextlib.suppress(FileNotFoundError):
                if entry.name != CHECKPOINT and not stat.S_ISDIR(entry.lstat().st_mode):
                    entry.unlink()
        self.serve()
        return self

    def serve(self, name="kubelet.sock"):
        """Serve without a change to the directory."""
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
            # Before the response, as the kubelet does: the plugin must already serve.
            connection = Connection(self, request)
            with self.changed:
                self.connections.append(connection)
                self.changed.notify_all()
        if self.hold is not None:
            self.hold.wait(TIMEOUT)
        return dp.Empty()

    def wait(self, condition, what="the condition"):
        with self.changed:
            if not self.changed.wait_for(lambda: condition(self), TIMEOUT):
                names = sorted(entry.name for entry in self.directory.iterdir())
                raise AssertionError(f"timeout: {what}; {self.requests=} {names=}")

    def wait_for_path(self, path, *, there):
        """Poll until the file ``path`` exists, or does not exist."""
        deadline = time.monotonic() + TIMEOUT
        while path.exists() is not there:
            assert time.monotonic() < deadline, f"{path} {'does not exist' if there else 'exists'}"
            time.sleep(0.005)

    def plugin(self, resource="vendor.com/gpu"):
        """Return the newest connection of a resource that has sent a list on an open stream."""

        def live(kubelet):
            return [
                c
                for c in kubelet.connections
                if c.request.resource_name == resource and not c.ended and c.lists
            ]

        self.wait(live, f"the list of {resource}")
        return live(self)[-1]

    def wait_devices(self, expected, resource="vendor.com/gpu"):
        """Wait until an open stream of the resource has sent exactly these devices."""

        def sent(kubelet):
            return any(
                c.devices == expected
                for c in kubelet.connections
                if c.request.resource_name == resource and not c.ended
            )

        self.wait(sent, f"{expected} of {resource}")
