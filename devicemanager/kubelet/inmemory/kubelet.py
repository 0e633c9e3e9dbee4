"""InMemoryKubelet: the kubelet's decisions about one node, and nothing else of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from checkpoint import Checkpoint
from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.devices import Device
from devicemanager.core.errors import RequestError, RpcError
from devicemanager.core.ids import ResourceName
from devicemanager.core.node import NodeStatus
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.inmemory.devices import Simulated, simulated_devices
from devicemanager.kubelet.inmemory.plugin import InMemoryPlugin
from devicemanager.kubelet.inmemory.process import InMemoryProcess, LightLife, SharedStore
from devicemanager.kubelet.manager.plugin_handler import ClientHandler
from devicemanager.kubelet.nodepods import NodePods
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.settings import Settings

__all__ = ["InMemoryKubelet"]

_EVENTS_KEPT = 8


class InMemoryKubelet(NodePods):
    """Manager, pods and plugins of one node, all in memory: no socket, no file, no thread.

    It decides as ``MockKubelet`` does, and has its methods for pods and devices; thousands of
    them fit into one process. It serves from the beginning; ``stop`` and ``start`` are there
    for a node that goes down. Everything may be called from any thread.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        simulate: Simulated | None = None,
        *,
        clock: Clock | None = None,
        saved: Checkpoint | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """``simulate`` has the devices by resource: a number, a text such as ``8@0,1`` or the
        devices themselves. ``saved`` holds what pods have already; all that it names are taken
        to be there. ``names`` are those of its pods, by UID.

        Raises ValueError for what says no devices, TopologyConfigError for topology settings
        that the kubelet would reject.
        """
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = EventStream(self.clock, keep=_EVENTS_KEPT)
        self._pods = PodStore(names)
        self._claims = LazyClaims(
            self.events, self.settings.node_name, self.settings.claims_admin_namespaces
        )
        self._lock = threading.Lock()
        # Guards _plugins and what the plugins list, and starts and stops. Event callbacks run
        # under it, on the thread that has it: they must not wait for another.
        self._turn = threading.RLock()
        self._node_status = NodeStatus()
        self._store = SharedStore()
        self._latest: InMemoryProcess | None = None
        self._life: LightLife = LightLife()
        devices = simulated_devices(simulate or {})
        self._plugins = {name: InMemoryPlugin(name, each) for name, each in devices.items()}
        self._serve(saved)
        if saved is not None:
            self.manager.sources_ready(self.manager.pods())
        self._register_all()

    # -- life ------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """Whether the kubelet runs."""
        return self._life.process is not None

    def start(self) -> Self:
        """Serve again after ``stop``; pods that are known are admitted again. Raises
        RequestError if it serves already."""
        with self._turn:
            if self.is_serving:
                raise RequestError("the light kubelet runs already: stop it first")
            self._resume()
        return self

    def stop(self) -> None:
        """Stop serving. Pods and their containers stay as they are. Stopping twice does
        nothing."""
        with self._turn:
            process, self._life.process = self._life.process, None
            if process is None:
                return
            process.stop()
            for plugin in self._plugins.values():
                plugin.was_dropped()
        self.events.publish(EventKind.STOPPED, "kubelet stopped")

    def close(self) -> None:
        """As ``stop``."""
        self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def restart(self) -> None:
        """The kubelet's process starts anew: containers keep running, the plugins register
        again once it knows its pods."""
        with self._turn:
            self.stop()
            self._resume()

    def reboot(self) -> None:
        """The node starts anew: no container runs, and every pod is admitted again. The plugins
        come back after that, so what holds devices is rejected, unless
        ``Settings.wait_for_plugin`` makes the kubelet wait for them (Q6)."""
        with self._turn:
            self.stop()
            self._pods.containers_stop()
            self._resume()

    def _resume(self) -> None:
        process = self._serve(self._store.load())
        if self.settings.wait_for_plugin:
            self._register_all()
        process.workers.readmit()
        process.workers.sources_ready()
        self._register_all()

    def _serve(self, saved: Checkpoint | None) -> InMemoryProcess:
        providers = None if self._latest is None else self._latest.manager.providers()
        process = InMemoryProcess(
            self.settings,
            self._store,
            self.clock,
            self.events,
            self._pods,
            self._claims,
            providers,
        )
        if saved is not None:
            process.manager.restore(saved)
        self._latest = self._life.process = process
        self.events.publish(EventKind.STARTED, "light kubelet serves")
        return process

    def _register_all(self) -> None:
        for plugin in self._plugins.values():
            if not plugin.is_connected:
                plugin.register(self.manager.plugins)

    def sources_ready(self) -> None:
        """All pods of the node are known now: devices of others are freed."""
        self._life.serving().workers.sources_ready()

    def self_check(self) -> None:
        """Count anew who holds what, and raise an error if that is not what is kept."""
        self.manager.self_check()

    # -- what goes wrong with devices -------------------------------------------------

    def fail_device(self, resource: str, device: str) -> None:
        """The device becomes unhealthy. Raises RequestError for one that is not there."""
        with self._plugin(resource) as (plugin, handler):
            plugin.set_health(device, False, handler)

    def recover_device(self, resource: str, device: str) -> None:
        """The device becomes healthy. Raises RequestError for one that is not there."""
        with self._plugin(resource) as (plugin, handler):
            plugin.set_health(device, True, handler)

    def lose_device(self, resource: str, device: str) -> None:
        """The device is not listed any more. Raises RequestError for one that is not there."""
        with self._plugin(resource) as (plugin, handler):
            plugin.lose(device, handler)

    def return_device(self, resource: str, device: str) -> None:
        """A device that was lost is listed again; nothing happens if it is."""
        with self._plugin(resource) as (plugin, handler):
            plugin.find(device, handler)

    def lose_all(self, resource: str) -> None:
        """The plugin lists nothing: the node's capacity of the resource is 0."""
        with self._plugin(resource) as (plugin, handler):
            plugin.lose_all(handler)

    def return_all(self, resource: str) -> None:
        """Everything that was lost is listed again."""
        with self._plugin(resource) as (plugin, handler):
            plugin.find(None, handler)

    def set_devices(self, resource: str, devices: int | str | Iterable[Device]) -> None:
        """The plugin lists these from now on, none at all for 0; a resource that the node does
        not have gets a plugin. Raises ValueError for what says no devices."""
        ((name, listed),) = simulated_devices({resource: devices}).items()
        with self._turn:
            plugin = self._plugins.get(name)
            if plugin is None:
                plugin = self._plugins[name] = InMemoryPlugin(name, listed)
                plugin.register(self.manager.plugins)
            else:
                plugin.replace(listed, self.manager.plugins)

    def stop_plugin(self, resource: str) -> None:
        """The plugin ends: its devices are unhealthy, and after the grace period there are
        none. Raises RequestError for a resource that the node does not have."""
        with self._plugin(resource) as (plugin, handler):
            plugin.leave(handler)

    def start_plugin(self, resource: str) -> None:
        """The plugin that ended registers again. Raises RequestError for a resource that the
        node does not have."""
        with self._plugin(resource) as (plugin, handler):
            if not plugin.is_connected:
                plugin.register(handler)

    def fail_allocate(self, resource: str, error: RpcError | None) -> None:
        """Every Allocate of the resource is answered with this error; None: it succeeds again.
        Raises RequestError for a resource that the node does not have."""
        with self._plugin(resource) as (plugin, _):
            plugin.fails = None if error is None else _always(error)

    def simulated(self) -> Mapping[str, tuple[Device, ...]]:
        """What the plugins list, or will when they come back."""
        with self._turn:
            return {str(name): plugin.devices for name, plugin in self._plugins.items()}

    @contextmanager
    def _plugin(self, resource: str) -> Iterator[tuple[InMemoryPlugin, ClientHandler]]:
        with self._turn:
            plugin = self._plugins.get(ResourceName(resource))
            if plugin is None:
                there = ", ".join(self._plugins) or "none"
                raise RequestError(f"the node has no plugin of {resource}: it has {there}")
            yield plugin, self.manager.plugins


def _always(error: RpcError) -> Callable[[], RpcError]:
    return lambda: error
