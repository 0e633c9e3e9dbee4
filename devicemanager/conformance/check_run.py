"""One check being carried out: the kubelet, the plugin, and what a check may do with them."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.conformance.client import CallFailed, ListStream, PluginClient
from devicemanager.conformance.limits import Limits
from devicemanager.conformance.outcomes import CheckError, Failed, Line, Skipped, Warned
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.core.printable import printable
from devicemanager.events.calls import Call, Mark
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.processes import PluginProcess

if TYPE_CHECKING:
    from devicemanager.conformance.process_checks import Usage
    from protos import deviceplugin_v1beta1 as dp

__all__ = ["EVER", "CheckRun", "Stage", "Stages", "parsed_list"]

EVER = Mark(0, 0)
"""Before everything."""

_POLL_SECONDS = 0.02
_FIRST_LINE, _NEXT_LINE = 3.0, 10.0
"""Seconds of silence before somebody is told of it, and until that is said again."""
_TIMELINE = 200
_CANNOT_START = 127
"""The exit status of a command that is not there, as in a shell."""


class Stage:
    """A kubelet in a directory of its own, and the plugin on it. ``close`` ends both."""

    def __init__(
        self,
        subject: PluginUnderTest,
        limits: Limits,
        settings: Settings,
        on_wait: Callable[[str], object] | None = None,
    ) -> None:
        """``on_wait`` is called with a line now and then while the plugin does not register."""
        self.subject = subject
        self.limits = limits
        self.on_wait = on_wait
        # As every kubelet does: a plugin that has been replaced keeps its stream. One that comes
        # back when its stream ends would take turns with its successor for ever.
        quirks = settings.quirks | {"Q3"}
        self.kubelet = MockKubelet(settings=attrs.evolve(settings, quirks=quirks))
        self.processes: list[PluginProcess] = []
        self._closing = threading.Lock()
        self._closed = False

    @property
    def process(self) -> PluginProcess:
        """The plugin that was started last."""
        return self.processes[-1]

    def values(self, id_: str = "") -> dict[str, str]:
        """What the placeholders of hooks stand for."""
        running = self.processes and self.process.is_running
        return {
            "id": id_,
            "pid": str(self.process.pid) if running else "",
            "plugin_dir": str(self.kubelet.plugin_dir),
            "root": str(self.kubelet.root),
        }

    def launch(self, *before: str, hook: str = "") -> PluginProcess:
        """Start the plugin, without waiting for anything. ``before`` are words that go before
        its command; ``hook`` runs after prepare, whose work it may undo."""
        subject = self.subject
        for each in ("prepare", hook):
            subject.call(each, self.values())
        process = PluginProcess(
            self.kubelet,
            [*before, *subject.command],
            env=subject.env,
            cwd=subject.cwd,
            at_node_paths=subject.at_node_paths,
            restart=subject.restart,
        )
        self.processes.append(process)
        return process.start()

    def close(self) -> None:
        """End the plugin and the kubelet. To do so twice does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        with contextlib.ExitStack() as stack:
            stack.callback(self.kubelet.close)
            for process in self.processes:
                stack.callback(self.subject.call, "cleanup", self.values())
                stack.callback(process.stop)


class Stages:
    """The stages of one run, some of which may be open at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[Stage] = weakref.WeakSet()
        self._ended = False

    def open(self, make: Callable[[], Stage]) -> Stage:
        """Another one. Raises CheckError after ``close``."""
        with self._lock:
            if self._ended:
                raise CheckError("the run was ended")
            stage = make()
            self._open.add(stage)
        return stage

    def close(self) -> None:
        """End all of them, from any thread, and whatever they are used for; there will be no
        more."""
        with self._lock:
            self._ended = True
            stages = list(self._open)
        with contextlib.ExitStack() as stack:
            for stage in stages:
                stack.callback(stage.close)


class CheckRun:
    """What a check works with. Waits raise ``Failed`` with what was seen instead."""

    def __init__(self, stage: Stage, resources: tuple[str, ...], seed: str) -> None:
        self.stage = stage
        self.subject = stage.subject
        self.limits = stage.limits
        self.kubelet = stage.kubelet
        self.resources = resources
        """The plugin's resources; empty while they are being found out."""
        self.rng = random.Random(seed)
        self.began = self.kubelet.clock.time()
        self.mark = self.kubelet.mark()
        self._idle_since = self._idle_cpu = 0.0
        self._steps: list[Line] = []
        self._printed = [(process, len(process.output())) for process in stage.processes]

    # -- telling ---------------------------------------------------------------------

    def step(self, text: str) -> None:
        """Note what the suite does, for the timeline."""
        self._steps.append(Line(self.kubelet.clock.time() - self.began, "suite", printable(text)))

    def timeline(self) -> tuple[Line, ...]:
        """Steps, events and calls of this check by time, the latest 200."""
        lines = list(self._steps)
        for event in self.kubelet.events.recent():
            if event.number > self.mark.event:
                lines.append(Line(event.time - self.began, "kubelet", str(event)))
        for call in self.kubelet.calls(since=self.mark):
            lines.append(Line(call.time - self.began, "call", str(call)))
        lines.sort(key=lambda line: line.time)
        return tuple(lines[-_TIMELINE:])

    def output(self) -> tuple[str, ...]:
        """What the plugin has printed during this check, the latest 50 lines."""
        before = dict(self._printed)
        lines = [
            line
            for process in self.stage.processes
            for line in process.output()[before.get(process, 0) :]
        ]
        return tuple(printable(line) for line in lines[-50:])

    # -- the plugin's process ----------------------------------------------------------

    @property
    def process(self) -> PluginProcess:
        """The plugin that was started last."""
        return self.stage.process

    @property
    def resource(self) -> str:
        """The first of the plugin's resources."""
        return self.resources[0]

    def launch(self, *before: str, hook: str = "") -> PluginProcess:
        """Start the plugin, without waiting for anything. ``before`` are words that go before
        its command; ``hook`` runs after prepare, whose work it may undo."""
        self.step(f"start the plugin after the hook {hook}" if hook else "start the plugin")
        return self.stage.launch(*before, hook=hook)

    def start(self) -> None:
        """Start kubelet and plugin, and wait until the plugin is registered."""
        self.start_kubelet()
        self.relaunch("its start")

    def relaunch(self, after: str) -> None:
        """Start the plugin, and wait until it is registered."""
        since = self.kubelet.mark()
        self.launch()
        self.wait_registered(since, self.limits.start_seconds, after)

    def restart_and_wait(self, number: int) -> tuple[Mark, float]:
        """Restart the kubelet and wait until the plugin is registered.
        Returns the moment before, and the seconds that took."""
        since = self.restart_kubelet()
        return since, self.wait_registered(since, self.limits.recover_seconds, f"restart {number}")

    def usage(self) -> Usage:
        """What the plugin uses. Raises Skipped without psutil."""
        found: Usage = _hygiene().usage(self.process.pid)
        return found

    def has_grown(self, before: int, now: int) -> bool:
        """Whether memory has grown by more than the limits allow."""
        share, more = self.limits.extra_memory_share, self.limits.extra_memory_bytes
        return now - before > max(before * share, more)

    def begin_idle(self) -> None:
        """Note what the plugin has used so far, before it is left alone."""
        self._idle_since = time.monotonic()
        with contextlib.suppress(Skipped):
            self._idle_cpu = self.cpu_seconds()

    @property
    def idle_cpu_share(self) -> float:
        """The part of one core that the plugin has used since ``begin_idle``. Raises Skipped
        without psutil."""
        return (self.cpu_seconds() - self._idle_cpu) / (time.monotonic() - self._idle_since)

    def cpu_seconds(self) -> float:
        """Processor time of the plugin so far. Raises Skipped without psutil."""
        return float(_hygiene().cpu_seconds(self.process.pid))

    def listening_ports(self) -> list[str]:
        """TCP addresses that the plugin listens on. Raises Skipped without psutil."""
        return list(_hygiene().listening_ports(self.process.pid))

    def hook(self, name: str, id_: str = "") -> None:
        """Run a hook of the user's."""
        self.step(f"hook {name} {id_}".rstrip())
        self.subject.call(name, self.stage.values(id_))

    # -- the kubelet -------------------------------------------------------------------

    def start_kubelet(self) -> None:
        """Start the kubelet."""
        self.step("start the kubelet")
        self.kubelet.start()

    def stop_kubelet(self) -> None:
        """Stop the kubelet; as on a node, sockets and checkpoint stay where they are."""
        self.step("stop the kubelet")
        self.kubelet.stop()

    def restart_kubelet(self, gap: float = 0.0) -> Mark:
        """Restart it as a node does: connections end, the sockets of plugins are removed,
        kubelet.sock is a new one. ``gap`` is how long nobody serves. Returns the moment
        before."""
        mark = self.kubelet.mark()
        self.step(f"restart the kubelet after {gap:g} s" if gap else "restart the kubelet")
        if gap:
            self.kubelet.stop()
            time.sleep(gap)
            self.kubelet.start()
        else:
            self.kubelet.restart()
        return mark

    # -- what has been seen --------------------------------------------------------------

    def registrations(
        self, since: Mark | None = None, resource: str | None = None, code: str | None = "OK"
    ) -> list[Call]:
        """The calls of Register since a moment, by default since this check's begin."""
        return self.kubelet.calls(
            resource, rpc="Register", code=code, since=self.mark if since is None else since
        )

    def lists(self, resource: str, since: Mark | None = None) -> list[Call]:
        """The lists that came since a moment, over any stream of the kubelet's."""
        found = self.kubelet.calls(
            resource, rpc="ListAndWatch", since=self.mark if since is None else since
        )
        return [call for call in found if call.response_bytes is not None]

    def ended_streams(self, resource: str) -> list[Call]:
        """The ends of list streams since this check's begin that were not the kubelet's."""
        found = self.kubelet.calls(resource, rpc="ListAndWatch", since=self.mark)
        return [call for call in found if call.response_bytes is None and call.code != "Canceled"]

    def devices(self, resource: str | None = None) -> list[dp.Device]:
        """The devices of the newest list. Raises Failed if there was none."""
        resource = resource or self.resource
        lists = self.lists(resource, EVER)
        if not lists:
            raise Failed(f"{resource} has sent no list")
        return list(parsed_list(lists[-1]).devices)

    def healthy_ids(self, resource: str | None = None, least: int = 1) -> list[str]:
        """The ids of the newest list that are healthy. Raises Skipped for fewer than
        ``least``."""
        # An id that is listed twice is one device.
        ids = list(
            dict.fromkeys(each.ID for each in self.devices(resource) if each.health == "Healthy")
        )
        if len(ids) < least:
            raise Skipped(f"needs {least} healthy devices, the plugin has {len(ids)}")
        return ids

    def endpoint(self, resource: str | None = None) -> Path:
        """The socket of the latest registration. Raises Failed if there was none."""
        calls = self.registrations(Mark(0, 0), resource or self.resource)
        if not calls:
            raise Failed(f"{resource or self.resource} was never registered")
        return self.kubelet.plugin_dir / str(calls[-1].request["endpoint"])

    @contextlib.contextmanager
    def client(self, resource: str | None = None) -> Iterator[PluginClient]:
        """A connection of the suite's own to the plugin."""
        with contextlib.closing(PluginClient(self.endpoint(resource))) as client:
            yield client

    def check_alive(self, after: str) -> None:
        """Raise Failed if the plugin has ended, or does not answer any more."""
        if self.has_ended:
            raise Failed(f"the plugin ended after {after}: {self.exit_text()}")
        try:
            with self.client() as client:
                client.options(self.limits.allocate_seconds)
        except CallFailed as error:
            raise Failed(f"the plugin does not answer after {after}: {error}") from None

    def exit_text(self) -> str:
        """How the plugin ended."""
        status = self.process.exit_status
        if status is None:
            return "it runs"
        return f"ended by signal {-status}" if status < 0 else f"exit status {status}"

    @property
    def has_ended(self) -> bool:
        """Whether the plugin has ended, and nobody starts it again, or could."""
        stays = self.subject.restart == "never" or self.could_not_start
        return stays and not self.process.is_running

    @property
    def could_not_start(self) -> bool:
        """Whether the plugin's latest end was that of a command that is not there."""
        return bool(self.stage.processes) and self.process.exit_status == _CANNOT_START

    @property
    def has_stopped(self) -> bool:
        """Whether the plugin has ended since it was started last, even if it runs again."""
        return self.process.starts > 1 or not self.process.is_running

    # -- the machine -----------------------------------------------------------------------

    def numa_nodes(self) -> frozenset[int]:
        """The NUMA nodes of this machine."""
        from devicemanager.kubelet.host.numa import from_host

        return frozenset(from_host().topology.nodes)

    def host_path(self, path: str) -> Path:
        """A path as the plugin sees it: through the root of its own mount namespace, if it has
        one."""
        return Path(f"/proc/{self.process.pid}/root{path}")

    def leave_files(self, directory: Path) -> None:
        """Files and a socket that belong to somebody else."""
        self.step("put a file and a socket of others into the plugin directory")
        (directory / "others.txt").write_text("not yours")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(directory / "others.sock"))

    def files_of_others(self, directory: Path) -> dict[str, tuple[int, int, int]]:
        """Everything there but the plugin's own sockets and the checkpoint, which is written
        with each list: device, inode and size."""
        own = {call.request.get("endpoint") for call in self.registrations(EVER)}
        found = {}
        for path in directory.iterdir():
            if path.name not in own and path != self.kubelet.checkpoint_path:
                status = path.lstat()
                found[path.name] = (status.st_dev, status.st_ino, status.st_size)
        return found

    # -- waiting -------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Let this much time go by, where the time between two acts is the point."""
        time.sleep(seconds)

    def timed(self, call: Callable[[], object], what: str) -> float:
        """Make a call and return the seconds it took. Raises Failed if the plugin does not
        answer."""
        begin = time.monotonic()
        try:
            call()
        except CallFailed as error:
            raise Failed(f"{what}: {error}") from None
        return time.monotonic() - begin

    def first_list(self, stream: ListStream, of: str = "a second stream") -> Any:
        """The first list of a stream of the suite's own. Raises Failed if none comes."""
        try:
            return stream.next(self.limits.start_seconds)
        except CallFailed as error:
            raise Failed(f"the first list of {of}: {error}") from None

    def break_device(self, id_: str, when: str = "") -> float:
        """Run the hook break-device, and wait until the list tells. Returns the seconds that
        took; raises Failed."""
        return self._change("break-device", id_, False, when)

    def mend_device(self, id_: str, when: str = "") -> float:
        """As ``break_device``, for mend-device."""
        return self._change("mend-device", id_, True, when)

    def broken(self, id_: str) -> None:
        """Break a device, for a check of something else. Raises Skipped if the list does not
        tell."""
        try:
            self.break_device(id_)
        except Failed as failed:
            raise Skipped(f"{failed}: see W07") from None

    def mended(self, id_: str) -> None:
        """As ``broken``, for mend-device."""
        try:
            self.mend_device(id_)
        except Failed as failed:
            raise Skipped(f"{failed}: see W08") from None

    def _change(self, hook: str, id_: str, healthy: bool, when: str) -> float:
        since = self.kubelet.mark()
        self.hook(hook, id_)
        return self.wait_health(id_, healthy, since, f"{hook} of {id_}{when}")

    def wait_health(self, id_: str, healthy: bool, since: Mark, after: str) -> float:
        """Wait until the live list has the device as healthy, or as unhealthy or gone. Returns
        the seconds that took; raises Failed."""

        def right(devices: list[dp.Device]) -> bool:
            health = {device.ID: device.health for device in devices}.get(id_)
            return (health == "Healthy") == healthy

        wanted = f"with {id_} {'healthy' if healthy else 'unhealthy or gone'} after {after}"
        return self.wait_list(self.resource, since, right, self.limits.refresh_seconds, wanted)

    def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        on_wait: Callable[[float], object] | None = None,
    ) -> float | None:
        """Wait until it holds. Returns the seconds that took, None if it did not happen.
        ``on_wait`` is called now and then with the seconds so far."""
        begin, due = time.monotonic(), _FIRST_LINE
        while not condition():
            passed = time.monotonic() - begin
            if passed > seconds:
                return None
            if on_wait is not None and passed >= due:
                on_wait(passed)
                due += _NEXT_LINE
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - begin

    def until_registered(self, done: Callable[[], bool], seconds: float) -> float | None:
        """As ``until``, and whoever wants to know is told what is waited for."""

        told = False

        def waits(passed: float) -> None:
            nonlocal told
            if self.stage.on_wait is not None:
                socket = self.kubelet.plugin_socket
                advice = "" if told or self.has_tried else f"; {self.subject.advice}"
                told = True
                self.stage.on_wait(
                    f"{passed:.0f} of {seconds:g} s: the plugin has not registered at {socket}"
                    + advice
                )

        return self.until(done, seconds, waits)

    def settle(self, seconds: float | None = None) -> None:
        """Look on for a while: what is checked next must not have happened."""
        seconds = self.limits.settle_seconds if seconds is None else seconds
        self.step(f"look on for {seconds:g} s")
        time.sleep(seconds)

    @property
    def has_tried(self) -> bool:
        """Whether the plugin has called Register at all, if only in vain so far."""
        calling = any(call.rpc == "Register" for call in self.kubelet.calls.in_progress)
        return calling or bool(self.registrations(EVER, code=None))

    @property
    def silence(self) -> str:
        """That nothing has come, and what to do about it."""
        return f"nothing called Register at {self.kubelet.plugin_socket}; {self.subject.advice}"

    def is_registered(self, since: Mark, resources: Iterable[str]) -> bool:
        """Whether each has been registered and has sent a list since then, and still serves."""
        return all(
            self.registrations(since, resource)
            and self.lists(resource, since)
            and self.is_serving(resource)
            for resource in resources
        )

    def is_serving(self, resource: str) -> bool:
        """Whether the kubelet has an open list stream of the resource."""
        return any(
            call.rpc == "ListAndWatch" and call.resource == resource
            for call in self.kubelet.calls.in_progress
        )

    def wait_registered(self, since: Mark, seconds: float, after: str) -> float:
        """Wait until every resource has been registered and listed anew since then. Returns
        the seconds that took; raises Failed."""

        def done() -> bool:
            return self.has_ended or self.is_registered(since, self.resources)

        took = self.until_registered(done, seconds)
        if self.has_ended:
            raise Failed(f"the plugin ended after {after}: {self.exit_text()}")
        if took is None:
            raise Failed(
                f"{self._missing(since)} {seconds:g} s after {after}{self._instead(since)}"
            )
        self.step(f"registered {took:.2f} s after {after}")
        return took

    def wait_recovered(self, since: Mark, after: str) -> float:
        """As ``wait_registered``, with the limits for recovery. Raises Warned if it took
        long."""
        took = self.wait_registered(since, self.limits.recover_seconds, after)
        if took > self.limits.recover_warn_seconds:
            raise Warned(
                f"registered only {took:.1f} s after {after}, "
                f"more than {self.limits.recover_warn_seconds:g} s"
            )
        return took

    def _missing(self, since: Mark) -> str:
        for resource in self.resources:
            if not self.registrations(since, resource):
                rejected = self.registrations(since, resource, code=None)
                if rejected:
                    return f"{resource} is not registered ({rejected[-1].message})"
                return f"{resource} is not registered"
            if not self.lists(resource, since):
                return f"{resource} is registered, but has sent no list"
            if not self.is_serving(resource):
                return f"{resource} was registered, but its list stream is gone"
        return "not registered"

    def _instead(self, since: Mark) -> str:
        """What came in place of the resources that were waited for, or that nothing did."""
        if not self.has_tried:
            return f": {self.silence}"
        came = {str(call.resource) for call in self.registrations(since)} - {*self.resources}
        return f"; what it registered is {', '.join(sorted(came))}" if came else ""

    def wait_list(
        self,
        resource: str,
        since: Mark,
        wanted: Callable[[list[dp.Device]], bool],
        seconds: float,
        what: str,
    ) -> float:
        """Wait for a list with these devices since then. Returns the seconds that took; raises
        Failed that names ``what``."""

        def done() -> bool:
            return any(
                wanted(list(parsed_list(call).devices)) for call in self.lists(resource, since)
            )

        took = self.until(done, seconds)
        if took is None:
            raise Failed(f"no list {what} within {seconds:g} s")
        return took


def parsed_list(call: Call) -> Any:
    """The message of a list."""
    from protos import deviceplugin_v1beta1 as dp

    return dp.ListAndWatchResponse.FromString(call.response_bytes or b"")


def _hygiene() -> Any:
    try:
        from devicemanager.conformance import process_checks
    except ImportError:
        raise Skipped(
            "psutil is not installed: pip install 'kubelet-devicemanager[conformance]'"
        ) from None
    return process_checks
