"""``NriRuntime``: the pods and containers that NRI plugins know and change."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

import attrs

from devicemanager.core.errors import AllocationError
from devicemanager.core.pods import Container, Pod
from devicemanager.core.printable import printable
from devicemanager.core.runoptions import RunOptions
from devicemanager.kubelet.nri.connection import Disconnected
from devicemanager.kubelet.nri.containers import (
    adjust,
    adjusted_options,
    container_message,
    pod_message,
    resources_shown,
    shown,
)
from devicemanager.kubelet.nri.plugins import NriPlugin, PluginServer
from devicemanager.kubelet.runtime.cdi import Registry, load
from devicemanager.kubelet.runtime.oci import render
from protos import nri_v1alpha1 as nri

__all__ = ["NriContainer", "NriRuntime"]

_RUN, _STOP_POD, _REMOVE_POD = (
    nri.Event.Value(f"{name}_POD_SANDBOX") for name in ("RUN", "STOP", "REMOVE")
)
_CREATE, _CREATED, _START, _STARTED, _STOP, _REMOVE = (
    nri.Event.Value(f"{name}_CONTAINER")
    for name in ("CREATE", "POST_CREATE", "START", "POST_START", "STOP", "REMOVE")
)
_IS_CREATED, _IS_RUNNING, _IS_STOPPED = (
    nri.ContainerState.Value(f"CONTAINER_{name}") for name in ("CREATED", "RUNNING", "STOPPED")
)


_SYNCHRONIZATIONS = 10
"""Number of attempts to synchronize a plugin while containers come and go."""


@attrs.frozen
class NriContainer:
    """A container, with the changes that NRI plugins have made to it."""

    pod: str
    """UID of the pod."""
    name: str
    id: str
    """ID of the container. A plugin's update names the container by this ID."""
    env: tuple[str, ...]
    """Environment variables as NAME=VALUE, including those of CDI devices."""
    cpus: str
    """CPUs that the container may use, such as ``0-3,8``; empty for all."""
    mems: str
    """NUMA nodes whose memory the container may use; empty for all."""
    memory_limit: int | None
    """Memory limit in bytes; None if no plugin sets it."""


@attrs.frozen
class _Sandbox:
    message: nri.PodSandbox
    containers: dict[str, nri.Container] = attrs.field(factory=dict)


class NriRuntime:
    """A minimal NRI runtime on a socket. Use it as a context manager. Thread-safe.

    ``cdi_dirs`` are the CDI directories, by default those of the host. ``report`` is called with
    one line of text, on any thread, each time a plugin connects, disconnects, fails, or changes a
    container.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        cdi_dirs: Iterable[str | os.PathLike[str]] | None = None,
        *,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.path = Path(path)
        """The socket of the runtime, ``nri.sock``."""
        self._cdi_dirs = None if cdi_dirs is None else [Path(each) for each in cdi_dirs]

        def say(line: str) -> None:
            # A line contains texts of plugins.
            if report is not None:
                report(printable(line))

        self._report = say
        self._server = PluginServer(
            self.path, self._synchronize, self._update_containers, self._report
        )
        # Held during an event, so that all plugins see the events in the same order.
        self._serial = threading.Lock()
        # Guards the sandboxes. Not the lock above: plugins may update containers during an event.
        self._lock = threading.Lock()
        self._sandboxes: dict[str, _Sandbox] = {}

    # -- life --------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen on the socket. Raises StartError if that fails."""
        self._server.start()
        return self

    def close(self) -> None:
        """Disconnect all plugins, and remove the socket. Idempotent."""
        self._server.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def reboot(self) -> None:
        """Forget all pods, and disconnect all plugins. The plugins may connect again."""
        with self._serial:
            with self._lock:
                self._sandboxes.clear()
            self._server.disconnect()

    # -- plugins -----------------------------------------------------------------------

    def plugins(self) -> tuple[str, ...]:
        """Return the names of the plugins, such as ``00-dra.cpu``, in the order of their calls."""
        return self._server.names()

    def wait_plugin(self, name: str, timeout: float = 10.0) -> bool:
        """Wait until the plugin ``name`` is connected. Return False after ``timeout`` seconds.

        ``name`` is the name without the index, such as ``dra.cpu``.
        """
        return self._server.wait(name, timeout)

    def _synchronize(self, plugin: NriPlugin) -> None:
        """Send all containers to a new plugin. Raises CallFailed and Disconnected."""
        # Called without the lock: a plugin that does not respond must not delay events.
        for _ in range(_SYNCHRONIZATIONS):
            with self._serial:
                sent = self._all()
            updates = plugin.call("Synchronize", sent).update
            with self._serial:
                # No event may come between the list of containers and the plugin's first event.
                if _ids(self._all()) == _ids(sent):
                    self._apply(updates)
                    self._server.add(plugin)
                    return
        raise Disconnected(
            f"containers changed during each of {_SYNCHRONIZATIONS} calls of Synchronize"
        )

    def _all(self) -> nri.SynchronizeRequest:
        with self._lock:
            found = list(self._sandboxes.values())
            return nri.SynchronizeRequest(
                pods=[each.message for each in found],
                containers=[each for box in found for each in box.containers.values()],
            )

    # -- containers --------------------------------------------------------------------

    def container(self, pod: str, name: str) -> NriContainer:
        """Return the running container ``name`` of a pod. ``pod`` is the UID of the pod.

        Raises KeyError if the container is not running.
        """
        with self._lock:
            found = self._sandboxes[pod].containers[name]
            cpu, memory = found.linux.resources.cpu, found.linux.resources.memory
            return NriContainer(
                pod=pod,
                name=name,
                id=found.id,
                env=tuple(found.env),
                cpus=cpu.cpus,
                mems=cpu.mems,
                memory_limit=memory.limit.value if memory.HasField("limit") else None,
            )

    def _update_containers(
        self, request: nri.UpdateContainersRequest
    ) -> nri.UpdateContainersResponse:
        return nri.UpdateContainersResponse(failed=self._apply(request.update))

    def _apply(self, updates: Iterable[nri.ContainerUpdate]) -> list[nri.ContainerUpdate]:
        """Apply updates of containers, and return the updates that name unknown containers."""
        # An update can have a million entries, so they are merged before the lock is taken.
        given, changes = list(updates), dict[str, nri.LinuxResources]()
        for each in given:
            merged = changes.setdefault(each.container_id, nri.LinuxResources())
            merged.MergeFrom(each.linux.resources)
        changed = dict[str, str]()
        with self._lock:
            for box in self._sandboxes.values():
                for container in box.containers.values():
                    if (change := changes.get(container.id)) is None:
                        continue
                    # Merging appends unknown fields, so they would grow with each update.
                    change.DiscardUnknownFields()
                    container.linux.resources.MergeFrom(change)
                    changed[container.id] = container.name
        for number, name in changed.items():
            shown_changes = ", ".join(resources_shown(changes[number]))
            self._report(f"container {name} was updated by an NRI plugin: {shown_changes}")
        return [each for each in given if each.container_id not in changed]

    # -- the kubelet's calls -----------------------------------------------------------

    def create(self, pod: Pod, container: Container, options: RunOptions) -> RunOptions:
        """Create and start a container, in a new sandbox if the pod has no sandbox. Return the
        settings of the container with the adjustments of plugins.

        Raises AllocationError for an error of a plugin. Raises CdiError and OciError for settings
        that a container runtime cannot apply.
        """
        with self._serial:
            config = render(options, self._cdi(options)).config
            sandbox = self._sandbox(pod)
            # A container can be started again while it runs (``restart_container``). Plugins must
            # see the end of the earlier container before the new one.
            self._end(sandbox, container.name)
            message = container_message(
                container.name, secrets.token_hex(32), sandbox.message.id, config
            )
            options = self._adjusted(sandbox, message, options)
            message.state = _IS_CREATED
            self._notify(_CREATED, sandbox, message)
            self._change(_START, sandbox, message)
            message.state = _IS_RUNNING
            # Stored after the calls that can fail: a container that did not start is never listed.
            with self._lock:
                sandbox.containers[container.name] = message
            self._notify(_STARTED, sandbox, message)
        return options

    def _cdi(self, options: RunOptions) -> Registry | None:
        if not options.cdi_devices:
            return None
        return load() if self._cdi_dirs is None else load(self._cdi_dirs)

    def _sandbox(self, pod: Pod) -> _Sandbox:
        if (found := self._known(pod)) is None:
            found = _Sandbox(pod_message(pod, secrets.token_hex(32)))
            self._change(_RUN, found)
            # Stored after RunPodSandbox: if a plugin fails it, the next start sends it again.
            with self._lock:
                self._sandboxes[pod.uid] = found
        return found

    def _known(self, pod: Pod) -> _Sandbox | None:
        with self._lock:
            return self._sandboxes.get(pod.uid)

    def _adjusted(
        self, sandbox: _Sandbox, message: nri.Container, options: RunOptions
    ) -> RunOptions:
        """Let the plugins adjust a new container, and return its settings."""
        request = nri.CreateContainerRequest(pod=sandbox.message)
        for plugin in self._server.subscribers(_CREATE):
            # Copied for each plugin: it sees the adjustments of the plugins before it.
            request.container.CopyFrom(message)
            response = self._server.call(plugin, "CreateContainer", request)
            if response is None:
                continue
            adjust(message, response.adjust)
            options = adjusted_options(options, response.adjust)
            self._apply(response.update)
            if changes := shown(response.adjust):
                self._report(
                    f"pod {sandbox.message.namespace}/{sandbox.message.name} container "
                    f"{message.name} was adjusted by NRI plugin {plugin.name}: {changes}"
                )
        return options

    def stop(self, pod: Pod, name: str) -> None:
        """Report to the plugins that a container has exited. Idempotent.

        Errors of plugins have no effect.
        """
        with self._serial:
            if (sandbox := self._known(pod)) is not None:
                self._end(sandbox, name)

    def remove(self, pod: Pod) -> None:
        """Stop all containers of a pod, and remove its sandbox. Idempotent."""
        with self._serial:
            if (sandbox := self._known(pod)) is None:
                return
            for name in list(sandbox.containers):
                self._end(sandbox, name)
            self._notify(_STOP_POD, sandbox)
            self._notify(_REMOVE_POD, sandbox)
            with self._lock:
                self._sandboxes.pop(pod.uid, None)

    def _end(self, sandbox: _Sandbox, name: str) -> None:
        """Stop and remove a container, if it runs."""
        if (message := sandbox.containers.get(name)) is None:
            return
        message.state = _IS_STOPPED
        request = nri.StopContainerRequest(pod=sandbox.message, container=message)
        for plugin in self._server.subscribers(_STOP):
            with self._reported():
                response = self._server.call(plugin, "StopContainer", request)
                self._apply([] if response is None else response.update)
        self._notify(_REMOVE, sandbox, message)
        with self._lock:
            del sandbox.containers[name]

    # -- events ------------------------------------------------------------------------

    def _change(
        self, event: int, sandbox: _Sandbox, container: nri.Container | None = None
    ) -> None:
        """Send an event. Raises AllocationError for an error of a plugin."""
        change = nri.StateChangeEvent(event=event, pod=sandbox.message, container=container)
        for plugin in self._server.subscribers(event):
            self._server.call(plugin, "StateChange", change)

    def _notify(
        self, event: int, sandbox: _Sandbox, container: nri.Container | None = None
    ) -> None:
        """Send an event. Errors of plugins have no effect."""
        change = nri.StateChangeEvent(event=event, pod=sandbox.message, container=container)
        for plugin in self._server.subscribers(event):
            with self._reported():
                self._server.call(plugin, "StateChange", change)

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except AllocationError as error:
            self._report(str(error))


def _ids(request: nri.SynchronizeRequest) -> list[str]:
    return [*(each.id for each in request.pods), *(each.id for each in request.containers)]
