"""One recorded driver: two sockets of the recorder that forward to the driver's sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc

from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.common.served import ServedSocket, replace
from devicemanager.plugin.recording.calls import EndedBy
from devicemanager.plugin.recording.proxy import (
    CHANNEL_OPTIONS,
    SERVER_OPTIONS,
    AnyMethodHandler,
    Begin,
    PluginProxy,
    forward,
)
from podresources.sockets import is_alive, target
from protos import pluginregistration_v1 as pr

__all__ = ["RecordedDriver", "restore_after_crash"]

# Kubelets ignore names that start with a dot.
_ASIDE_PREFIX, _ASIDE_SUFFIX = ".", ".recorded"
_WORKERS = 8
_GRACE = 0.2
_SERVED_SECONDS = 5.0


class RecordedDriver:
    """Proxies of one driver: for its registration socket and for its service socket.

    They serve from construction until ``close``.
    """

    def __init__(self, path: Path, info: pr.PluginInfo, begin: Begin) -> None:
        """Create the recorder's sockets, which forward calls to the driver's sockets.

        ``path`` is the path of the driver's registration socket. The recorder renames this socket
        and serves its own socket at ``path``. ``info`` is the driver's response to GetInfo.

        Raises OSError if a socket cannot be created.
        """
        self.name = info.name
        self._path = path
        self._aside = path.with_name(f"{_ASIDE_PREFIX}{path.name}{_ASIDE_SUFFIX}")
        self._begin = begin
        self._aside.unlink(missing_ok=True)
        # A link instead of a rename: the recorder's socket then replaces the driver's socket in one
        # step, and ``path`` always has a socket.
        self._aside.hardlink_to(path)
        # An empty endpoint means that the registration socket also serves the claims.
        endpoint = Path(info.endpoint) if info.endpoint else self._aside
        self._proxy = PluginProxy(endpoint, endpoint.with_name(f"recorded-{endpoint.name}"), begin)
        self._channel = grpc.insecure_channel(target(self._aside), options=CHANNEL_OPTIONS)
        try:
            self._proxy.open()
            # The kubelet calls the proxy right after GetInfo.
            self._proxy.opened.wait(_SERVED_SECONDS)
            self._registration = self._serve()
        except BaseException:
            self._end()
            raise

    def _serve(self) -> ServedSocket:
        """Serve the Registration service in place of the driver's socket."""
        pool = DaemonThreadPoolExecutor(_WORKERS, f"registration of {self.name}")
        handler = AnyMethodHandler(self._respond)
        server = grpc.server(pool.for_grpc(), handlers=[handler], options=SERVER_OPTIONS)
        return ServedSocket(server, self._path.parent, replace(self._path))

    def _respond(
        self, method: str, request: bytes, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        rpc = method.rpartition("/")[2]
        call = self._begin(rpc, request)
        for response in forward(
            self._channel,
            method,
            request,
            context,
            call,
            lambda: EndedBy.PLUGIN,
            EndedBy.KUBELET,
        ):
            yield self._with_proxy(response) if rpc == "GetInfo" else response

    def _with_proxy(self, response: bytes) -> bytes:
        info = pr.PluginInfo.FromString(response)
        info.endpoint = str(self._proxy.path)
        return info.SerializeToString()

    def is_gone(self) -> bool:
        """True if the driver has stopped, or has replaced the recorder's socket."""
        return not (self._registration.is_reachable() and is_alive(self._aside))

    def close(self) -> None:
        """Close the proxies. If the driver still runs, first rename its socket back."""
        # If the driver has stopped or has created a new socket, the old socket must not replace it.
        if self._registration.is_reachable() and is_alive(self._aside):
            self._aside.replace(self._path)
        else:
            self._registration.hide()
        self._registration.close(_GRACE).wait()
        self._end()

    def _end(self) -> None:
        self._aside.unlink(missing_ok=True)
        self._channel.close()
        self._proxy.close()


def restore_after_crash(directory: Path) -> None:
    """Rename the sockets of drivers back if an earlier recorder was killed."""
    for aside in directory.glob(f"{_ASIDE_PREFIX}*{_ASIDE_SUFFIX}"):
        path = aside.with_name(aside.name.removeprefix(_ASIDE_PREFIX).removesuffix(_ASIDE_SUFFIX))
        # If both sockets are alive, another recorder is running or the driver has a new socket.
        # Then nothing is changed.
        if is_alive(aside) and not is_alive(path):
            aside.replace(path)
        elif not is_alive(aside):
            aside.unlink(missing_ok=True)
