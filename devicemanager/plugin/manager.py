"""Runs all resources of a lister until it is stopped."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from devicemanager.core.api.deviceplugin import PLUGIN_DIRECTORY, PLUGINS_REGISTRY_DIRECTORY
from devicemanager.io.watch import Change, ChangeKind, DirectoryWatch
from devicemanager.plugin.author import Lister, Plugin, StaticLister, wrong_type
from devicemanager.plugin.consume import consume
from devicemanager.plugin.errors import ConfigurationError, PluginError
from devicemanager.plugin.hooks import call_hook
from devicemanager.plugin.names import check_namespace, check_resource_name
from devicemanager.plugin.notifier import Notifier
from devicemanager.plugin.resource import Resource, ResourceState, ResourceStatus, ServiceFactory
from devicemanager.plugin.service import Service
from devicemanager.plugin.settings import (
    DIRECTORY_VARIABLE,
    PluginSettings,
)
from devicemanager.plugin.signals import SignalWait
from devicemanager.plugin.sockets import directory_problem, may_be_socket, socket_names

__all__ = ["Manager"]

_log = logging.getLogger(__name__)

_STOP_LIMIT = 8.0
_SOCKET_CHANGES = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)


class Manager:
    """The resources of one lister in one plugin directory.

    ``directory`` is where the kubelet listens; without it ``DEVICE_PLUGIN_DIRECTORY`` of
    the environment, else ``/var/lib/kubelet/device-plugins``, or ``plugins_registry`` with
    ``settings.announce``. It need not be there yet.
    A context manager: entering starts, leaving stops and removes every socket. Raises
    ConfigurationError if no socket could ever be made there.

    It belongs to the process that made it: in a forked child ``stop`` does nothing, and all
    else raises PluginError.
    """

    def __init__(
        self,
        lister: Lister,
        directory: str | os.PathLike[str] | None = None,
        settings: PluginSettings | None = None,
        *,
        socket_name: str | None = None,
        service: ServiceFactory = Service,
    ) -> None:
        if not isinstance(lister, Lister):
            raise TypeError(wrong_type("lister", lister))
        if not isinstance(lister, StaticLister):  # which has checked it
            check_namespace(getattr(lister, "namespace", None))
        self._pid = os.getpid()
        self._settings = settings or PluginSettings()
        default = PLUGINS_REGISTRY_DIRECTORY if self._settings.announce else PLUGIN_DIRECTORY
        chosen = directory or os.environ.get(DIRECTORY_VARIABLE) or default
        self._directory = Path(chosen).absolute()
        next(socket_names("", str(self._directory), unique=True))
        self._lister = lister
        self._socket_name = socket_name
        self._service = service
        self._changed = Notifier()
        self._stopping = lister.stopping
        self._watch = DirectoryWatch(self._directory, self._seen, _SOCKET_CHANGES)
        # Held while a watch begins or ends: none begins once it has ended for good.
        self._watching = threading.Lock()
        self._signals: SignalWait | None = None
        # Guards the two below; not held while waiting for a resource. `_leaving` are those
        # that the list no longer has but that may still hold their sockets.
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._leaving: list[Resource] = []
        self._discovered = False

    @property
    def directory(self) -> Path:
        return self._directory

    def resources(self) -> list[ResourceStatus]:
        """Return the status of each resource, sorted by name."""
        self._check_process()
        with self._lock:
            return [self._resources[name].status for name in sorted(self._resources)]

    def wait_registered(self, timeout: float, *, streaming: bool = False) -> bool:
        """Wait until there are resources and all of them are registered.

        With ``streaming`` also until the kubelet has opened each one's list.
        """

        def ready() -> bool:
            resources = self.resources()
            return bool(resources) and all(
                r.state is ResourceState.REGISTERED and (r.streams or not streaming)
                for r in resources
            )

        return self._changed.wait_for(ready, timeout)

    def start(self) -> None:
        """Serve in the background. Raises ConfigurationError if the directory is none, or
        not ours to write to."""
        self._check_process()
        if problem := directory_problem(self._directory):
            raise ConfigurationError(
                f"plugin directory {self._directory} {problem}: choose the kubelet's, with the "
                f"argument directory or {DIRECTORY_VARIABLE}"
            )
        try:
            # Before the first look at a socket, so that no change is missed in between.
            self._keep_watch()
            if type(self._lister) is StaticLister:
                # Its one list is there: no thread has to wait for it.
                self._apply(self._lister.discover())
                self._all_discovered()
            else:
                threading.Thread(target=self._discover, name="discover", daemon=True).start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Unregister everything and remove our sockets. Returns within some 10 s, whatever
        the authors' hooks do."""
        if os.getpid() != self._pid:
            # The threads and sockets are the parent's.
            return
        # First: from here on no resource is added.
        self._stopping.set()
        self._changed.notify()
        with self._lock:
            resources = [*self._resources.values(), *self._leaving]
        for resource in resources:
            resource.ask_to_stop()
        # While they end: nobody needs to be told that our own sockets go.
        with self._watching:
            self._watch.stop()
        # Do not join the discovering thread: the author's generator may block for ever.
        _join(resources)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def run(self) -> None:
        """Start, and stop at SIGTERM, SIGINT, SIGQUIT or SIGHUP. From the main thread only.

        Raises PluginError if no resource is left that could be served.
        """
        with SignalWait() as signals:
            self.run_until(signals)

    def run_until(self, signals: SignalWait) -> None:
        """As :meth:`run`, for one who takes the signals already."""
        if signals.has_come():
            return
        self._signals = signals
        with self:
            number = signals.wait()
            signals.let_next_end()
            if number is None:
                raise PluginError("none of the resources could be started; see the log")
            _log.info("stopping: %s", number.name)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise PluginError(
                "this plugin belongs to the process that made it: after a fork, make one of "
                "your own in the child"
            )

    def _seen(self, change: Change) -> None:
        # Without a name it is the directory itself.
        names = [name for name in (change.name, change.new_name) if name] or [""]
        if any(may_be_socket(name, self._socket_name) for name in names):
            self._notify_all()

    def _notify_all(self) -> None:
        """Notify every resource and every waiter of a change."""
        with self._lock:
            resources = list(self._resources.values())
        for resource in resources:
            resource.notifier.notify()
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._changed.notify()
        failed = all(r.state is ResourceState.FAILED for r in self.resources())
        if self._signals is not None and self._discovered and failed:
            self._signals.give_up()

    def _keep_watch(self) -> None:
        """Watch the directory that is there now; each resource asks for it before it looks."""
        with self._watching:
            is_new = not self._stopping.is_set() and self._watch.ensure()
        if is_new:
            self._notify_all()

    def _discover(self) -> None:
        what = f"{self._lister.namespace}: discover()"
        backoff = self._settings.list_backoff
        consume(what, self._lister.discover, self._apply, self._stopping, backoff)
        self._all_discovered()

    def _all_discovered(self) -> None:
        self._discovered = True
        self._notify_waiters()

    def _apply(self, last_names: Iterable[str]) -> None:
        """Replace the resources by those of a list."""
        wanted = {f"{self._lister.namespace}/{name}": name for name in self._usable(last_names)}
        with self._lock:
            vanished = [self._resources.pop(name) for name in self._resources.keys() - wanted]
            new = sorted(wanted.keys() - self._resources.keys())
            self._leaving.extend(vanished)
        for resource in vanished:
            resource.ask_to_stop()
        for name in new:
            self._add(name, wanted[name])
        _join(vanished)
        with self._lock:
            self._leaving = [left for left in self._leaving if left not in vanished]
        self._changed.notify()

    def _usable(self, last_names: Iterable[object]) -> Iterator[str]:
        """The last names without those that name no resource, which are logged."""
        for last_name in last_names:
            if not isinstance(last_name, str):
                what = f"{self._lister.namespace}: discover() listed {last_name!r}"
                _log.error("%s, which is no name: it is left out", what)
                continue
            try:
                check_resource_name(f"{self._lister.namespace}/{last_name}")
            except ConfigurationError as error:
                _log.error("%s: it is left out", error)
                continue
            yield last_name

    def _add(self, name: str, last_name: str) -> None:
        try:
            plugin = call_hook(lambda: self._lister.new_plugin(last_name))
        except Exception:
            _log.exception("%s: no plugin, the resource is left out", name)
            return
        if not isinstance(plugin, Plugin):
            what = f"{name}: new_plugin returned {plugin!r}"
            _log.error("%s, which is no Plugin: the resource is left out", what)
            return
        resource = Resource(
            name,
            plugin,
            self._directory,
            self._settings,
            on_change=self._notify_waiters,
            before_look=self._keep_watch,
            socket_name=self._socket_name,
            service=self._service,
        )
        with self._lock:
            # Under the lock: either stop() finds the resource, or it never starts.
            if self._stopping.is_set():
                return
            # Started first: stop() joins the thread of each that it finds.
            resource.start()
            self._resources[name] = resource


def _join(resources: Iterable[Resource]) -> None:
    deadline = time.monotonic() + _STOP_LIMIT
    for resource in resources:
        if not resource.join(max(deadline - time.monotonic(), 0)):
            _log.error("%s: its plugin's hook does not end; left behind", resource.name)
