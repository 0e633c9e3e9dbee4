"""Run the plugin of each resource in a ``Lister``. Each plugin has its own thread."""

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
from devicemanager.plugin.common.consume import consume
from devicemanager.plugin.common.hooks import call_hook
from devicemanager.plugin.common.notifier import Notifier
from devicemanager.plugin.common.signals import SignalWait
from devicemanager.plugin.common.sockets import directory_problem, may_be_socket, socket_names
from devicemanager.plugin.errors import ConfigurationError, PluginError
from devicemanager.plugin.names import check_namespace, check_resource_name
from devicemanager.plugin.resource import Resource, ResourceState, ResourceStatus, ServiceFactory
from devicemanager.plugin.service import Service
from devicemanager.plugin.settings import DIRECTORY_VARIABLE, PluginSettings

__all__ = ["ManagedPlugin", "Manager"]

_log = logging.getLogger(__name__)

_STOP_LIMIT = 8.0
_SOCKET_CHANGES = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)


class Manager:
    """Manager that serves the resources of one ``Lister`` in one plugin directory.

    ``directory`` is the kubelet's plugin directory, which need not exist yet. The default is the
    value of the environment variable ``DEVICE_PLUGIN_DIRECTORY``. If this variable is not set, it
    is ``/var/lib/kubelet/device-plugins``, or ``/var/lib/kubelet/plugins_registry`` with
    ``settings.announce``.

    A context manager: entering it starts serving, leaving it stops serving and removes every
    socket. The constructor raises ConfigurationError if the directory's path is too long for a
    socket.

    A manager works only in the process that created it. In a forked child process, ``stop`` does
    nothing, and all other methods raise PluginError.
    """

    def __init__(
        self,
        lister: Lister,
        directory: str | os.PathLike[str] | None = None,
        settings: PluginSettings | None = None,
        *,
        socket_name: str | None = None,
        _service: ServiceFactory = Service,
    ) -> None:
        if not isinstance(lister, Lister):
            raise TypeError(wrong_type("lister", lister))
        if not isinstance(lister, StaticLister):  # StaticLister has already checked it
            check_namespace(getattr(lister, "namespace", None))
        self._pid = os.getpid()
        self._settings = settings or PluginSettings()
        default = PLUGINS_REGISTRY_DIRECTORY if self._settings.announce else PLUGIN_DIRECTORY
        chosen = directory or os.environ.get(DIRECTORY_VARIABLE) or default
        self._directory = Path(chosen).absolute()
        # If no socket name fits, raise ConfigurationError now, not when the first kubelet starts.
        next(socket_names("", str(self._directory), unique=True))
        self._lister = lister
        self._socket_name = socket_name
        self._service = _service
        self._changed = Notifier()
        # Created here, on one thread, because it is a cached property of the author's object.
        self._stopping = lister.stopping
        self._watch = DirectoryWatch(self._directory, self._file_changed, _SOCKET_CHANGES)
        # Held while a watch starts or stops, so that no watch can start after the final stop.
        self._watching = threading.Lock()
        self._signals: SignalWait | None = None
        # Guards the two fields below; not held while waiting for a resource. `_leaving` has the
        # resources that are no longer listed and may still have sockets.
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
        """Wait until there is at least one resource and all resources are registered.

        With ``streaming``, also wait until the kubelet has opened every ListAndWatch stream.
        Return False after ``timeout`` seconds.
        """

        def ready() -> bool:
            resources = self.resources()
            return bool(resources) and all(
                r.state is ResourceState.REGISTERED and (r.streams or not streaming)
                for r in resources
            )

        return self._changed.wait_for(ready, timeout)

    def start(self) -> None:
        """Start to serve all resources on background threads.

        Raises ConfigurationError if the plugin directory is not a directory or not writable.
        """
        self._check_process()
        if problem := directory_problem(self._directory):
            raise ConfigurationError(
                f"plugin directory {self._directory} {problem}: set the kubelet's plugin directory "
                f"with the argument `directory` or the environment variable {DIRECTORY_VARIABLE}"
            )
        try:
            # Start the watch before a socket is checked, so that no change is missed in between.
            self._ensure_watch()
            if type(self._lister) is StaticLister:
                # The list of a StaticLister never changes, so no thread is needed.
                self._apply(self._lister.discover())
                self._all_discovered()
            else:
                threading.Thread(target=self._discover, name="discover", daemon=True).start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all resources and remove their sockets; wait at most 8 s for plugins that hang."""
        if os.getpid() != self._pid:
            # The threads and sockets belong to the parent.
            return
        # Set first, so that no further resource is added.
        self._stopping.set()
        self._changed.notify()
        with self._lock:
            resources = [*self._resources.values(), *self._leaving]
        for resource in resources:
            resource.ask_to_stop()
        # Stop the watch while resources stop: the removal of their sockets needs no reaction.
        with self._watching:
            self._watch.stop()
        # Do not join the discovering thread: the author's generator can block forever.
        _join(resources)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT, SIGQUIT or SIGHUP. Call this in the main thread.

        Raises PluginError if no resource could be started.
        """
        with SignalWait() as signals:
            self._run_until(signals)

    def _run_until(self, signals: SignalWait) -> None:
        """Serve until a signal, like :meth:`run`, with signal handlers that the caller set."""
        if signals.is_pending():
            return
        self._signals = signals
        with self:
            number = signals.wait()
            signals.let_next_signal_kill()
            if number is None:
                raise PluginError("no resource could be started: see the log")
            _log.info("stopping: %s", number.name)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise PluginError(
                "this plugin belongs to the process that created it: after a fork, create another "
                "one in the child"
            )

    def _file_changed(self, change: Change) -> None:
        # A change without a name is a change of the directory itself.
        names = [name for name in (change.name, change.new_name) if name] or [""]
        if any(may_be_socket(name, self._socket_name) for name in names):
            self._notify_all()

    def _notify_all(self) -> None:
        """Wake the threads of all resources, and all callers of ``wait_registered``."""
        # Notify outside the lock, because the woken threads can need it.
        with self._lock:
            resources = list(self._resources.values())
        for resource in resources:
            resource.notifier.notify()
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._changed.notify()
        # `serve` must not wait forever for a signal if no resource can ever be served.
        failed = all(r.state is ResourceState.FAILED for r in self.resources())
        if self._signals is not None and self._discovered and failed:
            self._signals.give_up()

    def _ensure_watch(self) -> None:
        """Start or replace the watch of the plugin directory if necessary.

        Resources call this before each observation.
        """
        # `ensure` is cheap if the watch still works. It also replaces the watch of a directory
        # that was recreated, because the old inotify watch would report no changes.
        with self._watching:
            is_new = not self._stopping.is_set() and self._watch.ensure()
        if is_new:
            self._notify_all()

    def _discover(self) -> None:
        name = f"{self._lister.namespace}: discover()"
        backoff = self._settings.list_backoff
        consume(name, self._lister.discover, self._apply, self._stopping, backoff)
        self._all_discovered()

    def _all_discovered(self) -> None:
        self._discovered = True
        self._notify_waiters()

    def _apply(self, last_names: Iterable[str]) -> None:
        """Start resources for new last names, and stop resources that are no longer listed."""
        wanted = {f"{self._lister.namespace}/{name}": name for name in self._usable(last_names)}
        with self._lock:
            vanished = [self._resources.pop(name) for name in self._resources.keys() - wanted]
            new = sorted(wanted.keys() - self._resources.keys())
            self._leaving.extend(vanished)
        # Ask all resources to stop before joining one, so that they stop in parallel.
        for resource in vanished:
            resource.ask_to_stop()
        for name in new:
            self._add(name, wanted[name])
        # Join after the new resources have started, so that a hanging `stop` does not delay them.
        _join(vanished)
        with self._lock:
            self._leaving = [left for left in self._leaving if left not in vanished]
        self._changed.notify()

    def _usable(self, last_names: Iterable[object]) -> Iterator[str]:
        """Yield the valid last names; log the invalid ones."""
        for last_name in last_names:
            if not isinstance(last_name, str):
                _log.error(
                    "%s: discover() listed %r, which is not a string: skipped",
                    self._lister.namespace,
                    last_name,
                )
                continue
            try:
                check_resource_name(f"{self._lister.namespace}/{last_name}")
            except ConfigurationError as error:
                _log.error("%s: skipped", error)
                continue
            yield last_name

    def _add(self, name: str, last_name: str) -> None:
        try:
            plugin = call_hook(lambda: self._lister.new_plugin(last_name))
        except Exception:
            _log.exception("%s: new_plugin() failed: resource skipped", name)
            return
        if not isinstance(plugin, Plugin):
            _log.error(
                "%s: new_plugin() returned %r, which is not a Plugin: resource skipped",
                name,
                plugin,
            )
            return
        resource = Resource(
            name,
            plugin,
            self._directory,
            self._settings,
            on_change=self._notify_waiters,
            before_observation=self._ensure_watch,
            socket_name=self._socket_name,
            service=self._service,
        )
        with self._lock:
            # With the lock held, either stop() finds the resource, or the resource never starts.
            if self._stopping.is_set():
                return
            # Start the resource before adding it: stop() joins the threads of all added resources.
            resource.start()
            self._resources[name] = resource


class ManagedPlugin:
    """Base class of plugins that serve one resource with their own :class:`Manager`. Thread-safe.

    A context manager: entering it starts serving, leaving it stops.
    """

    manager: Manager

    def start(self) -> Self:
        """Start to serve on background threads, and return this plugin.

        Raises ConfigurationError if the plugin directory is not a directory or not writable.
        """
        self.manager.start()
        return self

    def stop(self) -> None:
        """Stop serving and remove the socket. Idempotent."""
        self.manager.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def status(self) -> ResourceStatus | None:
        """Status of the resource: state, socket and registrations; None before the start."""
        return next(iter(self.manager.resources()), None)

    def wait_registered(self, timeout: float = 10.0, *, streaming: bool = True) -> bool:
        """Wait until the plugin is registered and, with ``streaming``, has a ListAndWatch stream.

        Return False after ``timeout`` seconds.
        """
        return self.manager.wait_registered(timeout, streaming=streaming)


def _join(resources: Iterable[Resource]) -> None:
    # One deadline for all resources: a container must stop within its termination grace period.
    deadline = time.monotonic() + _STOP_LIMIT
    for resource in resources:
        if not resource.join(max(deadline - time.monotonic(), 0)):
            _log.error("%s: not stopped, because a method of its plugin hangs", resource.name)
