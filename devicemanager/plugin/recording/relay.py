"""One plugin's place in the kubelet's directory: what the kubelet asks there, it is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from devicemanager.plugin.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.recording.calls import EndedBy, is_stream
from devicemanager.plugin.recording.forwarding import (
    CHANNEL_OPTIONS,
    SERVER_OPTIONS,
    Handlers,
    forward,
)
from devicemanager.plugin.recording.writer import CallInProgress
from podresources import sockets
from podresources.errors import PodResourcesError
from podresources.sockets import FileIdentity

__all__ = ["Relay"]

_DIAL_SECONDS = 10.0
"""How long a kubelet waits for a plugin that has registered to be served."""
_PAUSE, _PATIENCE = 0.02, 1.0
"""Seconds between two attempts to reach it, and how long each waits for a greeting."""
_WORKERS = 32
_GRACE = 0.2

Begin = Callable[[str, bytes], CallInProgress | None]
"""Called with a method's name and a request when a call begins; None: it is not recorded."""


class Relay:
    """Serves ``front``, from ``open`` until ``close``, and passes all on to ``plugin``.

    ``front`` appears once the plugin's socket is served, so that a kubelet that dials waits
    as long as it would have.
    """

    def __init__(self, plugin: Path, front: Path, begin: Begin) -> None:
        self.plugin = plugin
        self.front = front
        self._begin = begin
        self._channel = grpc.insecure_channel(sockets.target(plugin), options=CHANNEL_OPTIONS)
        self._pool = DaemonThreadPoolExecutor(_WORKERS, f"relay of {plugin.name}")
        self._server = grpc.server(
            self._pool.for_grpc(), handlers=[Handlers(self._answer)], options=SERVER_OPTIONS
        )
        self.opened = threading.Event()
        """Set when the front is there, or will not be."""
        self.error = ""
        self.kubelet_has_left = False
        """Set when the kubelet goes that this plugin was registered with."""
        self._closing = threading.Event()
        # Guards all below.
        self._lock = threading.Lock()
        self._closed = False
        self._calls = 0
        self._front_identity: FileIdentity | None = None
        self._plugin_identity = FileIdentity.of(plugin)

    def open(self) -> None:
        """Wait for the plugin in the background, and serve it."""
        threading.Thread(target=self._open, name=f"dial {self.plugin.name}", daemon=True).start()

    def _open(self) -> None:
        try:
            if not self._is_served():
                self.error = f"nobody has answered on {self.plugin}"
                return
            with self._lock:
                if not self._closed:
                    self._publish()
        except (PodResourcesError, OSError, RuntimeError, ValueError) as error:
            self.error = str(error)
        finally:
            self.opened.set()

    def _is_served(self) -> bool:
        end = time.monotonic() + _DIAL_SECONDS
        while time.monotonic() < end:
            if sockets.greets(self.plugin, _PATIENCE):
                return True
            if self._closing.wait(_PAUSE):
                break
        return False

    def _publish(self) -> None:
        sockets.prepare(self.front)
        with sockets.published(self.front) as private:
            self._server.add_insecure_port(sockets.target(private))
            self._server.start()
        self._front_identity = FileIdentity.of(self.front)
        self._plugin_identity = FileIdentity.of(self.plugin)

    @property
    def front_was_removed(self) -> bool:
        """Whether somebody took the front away, as a starting kubelet does."""
        with self._lock:
            known = self._front_identity
        return known is not None and FileIdentity.of(self.front) != known

    @property
    def plugin_was_removed(self) -> bool:
        """Whether the plugin's socket is gone, or another one."""
        return FileIdentity.of(self.plugin) != self._plugin_identity

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        with self._lock:
            return not self._calls

    def remove_front(self) -> None:
        """Nobody can dial it any more; calls under way go on."""
        sockets.remove_if_same(self.front, self._front_identity)

    def remove_plugin(self) -> None:
        """Take the plugin's socket away, as the kubelet has taken the front."""
        sockets.remove_if_same(self.plugin, self._plugin_identity)

    def close(self) -> None:
        """End every call and remove the front. Closing twice does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._closing.set()
        self.remove_front()
        self._server.stop(_GRACE).wait()
        self._channel.close()
        self._pool.close()

    def _answer(
        self, method: str, request: bytes, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        rpc = method.rpartition("/")[2]
        call = self._begin(rpc, request)
        with self._lock:
            self._calls += 1
        try:
            yield from forward(
                self._channel,
                method,
                request,
                context,
                call,
                lambda: self._answerer(rpc),
                EndedBy.KUBELET,
            )
        finally:
            with self._lock:
                self._calls -= 1

    def _answerer(self, rpc: str) -> EndedBy:
        # A plugin that ends its streams because the kubelet goes would not have done so.
        because = self.kubelet_has_left and is_stream(rpc)
        return EndedBy.KUBELET if because else EndedBy.PLUGIN
