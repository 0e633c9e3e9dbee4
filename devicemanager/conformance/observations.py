"""Query what the kubelet has seen of the plugin during a check, and record a timeline for reports.

All data comes from the kubelet's call log and events; the plugin is not called. A *device list* is
the message of one ListAndWatch response. A *mark* stands for a moment: it has the numbers of the
latest event and the latest call at that moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from devicemanager.conformance.crash import without_registers
from devicemanager.conformance.outcomes import Failed, Line
from devicemanager.core.printable import printable
from devicemanager.events.calls import Call, Mark
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing.processes import PluginProcess
from protos import deviceplugin_v1beta1 as dp

__all__ = ["EVER", "Observations", "Timeline", "parsed_list"]

EVER = Mark(0, 0)
"""Mark of the moment before all events and calls. ``since=EVER`` includes all of them."""

_TIMELINE_LINES = 200
_OUTPUT_LINES = 50


class Observations:
    """Queries about the calls between the kubelet and the plugin.

    The argument ``since`` of a query is the beginning of the check by default. If checks share a
    plugin, earlier device lists may matter: pass ``EVER`` to include them.
    """

    def __init__(self, kubelet: MockKubelet) -> None:
        self._kubelet = kubelet
        self.began = kubelet.mark()

    def registrations(
        self, since: Mark | None = None, resource: str | None = None, code: str | None = "OK"
    ) -> list[Call]:
        """Return the Register calls of ``resource``, by default of all resources.

        Only calls that ended with the gRPC status ``code`` are returned, by default successful
        ones. If ``code`` is None, calls with any status are returned.
        """
        return self._kubelet.calls(
            resource, rpc="Register", code=code, since=self.began if since is None else since
        )

    @property
    def has_tried_to_register(self) -> bool:
        """True if the plugin has ever called Register, even if the call failed."""
        # A call in progress is not in the call log yet, but it shows that the plugin has found the
        # kubelet.
        return self.is_registering or bool(self.registrations(EVER, code=None))

    @property
    def is_registering(self) -> bool:
        """True if a Register call is in progress: the kubelet has not responded yet."""
        return any(call.rpc == "Register" for call in self._kubelet.calls.in_progress)

    def sockets(self, since: Mark) -> list[tuple[str, Path]]:
        """Return a pair for each successful Register call after the mark ``since``: the resource
        and the path of the plugin's socket."""
        return [
            (
                str(call.request["resource_name"]),
                self._kubelet.plugin_dir / call.request["endpoint"],
            )
            for call in self.registrations(since)
        ]

    def socket(self, resource: str) -> Path:
        """Return the socket of the latest successful registration of a resource. Raises Failed if
        the resource was never registered."""
        calls = self.registrations(EVER, resource)
        if not calls:
            raise Failed(f"resource {resource} was never registered")
        return self._kubelet.plugin_dir / str(calls[-1].request["endpoint"])

    def lists(self, resource: str, since: Mark | None = None) -> list[Call]:
        """Return the call log entries of a resource's device lists, the oldest first. Each list has
        one entry."""
        calls = self._streams(resource, since)
        # The call log has one entry per list, and one entry without a message for the end of a
        # stream.
        return [call for call in calls if call.response_bytes is not None]

    def ended_streams(self, resource: str) -> list[Call]:
        """Return the call log entries of the ListAndWatch streams that have ended since the check
        began. Streams that the kubelet cancelled are left out."""
        calls = self._streams(resource, None)
        # A kubelet that stops cancels its streams. The plugin has not ended these streams.
        return [call for call in calls if call.response_bytes is None and call.code != "Canceled"]

    def _streams(self, resource: str, since: Mark | None) -> list[Call]:
        return self._kubelet.calls(
            resource, rpc="ListAndWatch", since=self.began if since is None else since
        )

    def devices(self, resource: str) -> list[dp.Device]:
        """Return the devices in the newest device list of a resource. Raises Failed if the plugin
        has sent no list of the resource."""
        lists = self.lists(resource, EVER)
        if not lists:
            raise Failed(f"the plugin has sent no device list of {resource}")
        return list(parsed_list(lists[-1]).devices)

    def is_serving(self, resource: str) -> bool:
        """True if the kubelet has an open ListAndWatch stream of the resource."""
        return any(
            call.rpc == "ListAndWatch" and call.resource == resource
            for call in self._kubelet.calls.in_progress
        )

    def is_registered(self, since: Mark, resources: Iterable[str]) -> bool:
        """True if the plugin has registered and serves all ``resources``.

        For each resource, a registration and a device list have come after the mark ``since``, and
        the ListAndWatch stream is still open.
        """
        return not any(self.missing(since, resource) for resource in resources)

    def missing(self, since: Mark, resource: str) -> str:
        """Return the reason why ``is_registered`` is False for a resource; empty if it is True."""
        if not self.registrations(since, resource):
            rejected = self.registrations(since, resource, code=None)
            return self._why_rejected(rejected[-1]) if rejected else f"{resource} is not registered"
        if not self.lists(resource, since):
            return f"{resource} is registered, but has sent no device list"
        if not self.is_serving(resource):
            return f"{resource} was registered, but its ListAndWatch stream has ended"
        return ""

    def _why_rejected(self, call: Call) -> str:
        """Return the reason of a failed Register call.

        If the plugin's socket does not exist, the text explains why. A kubelet empties the plugin
        directory at its start. A plugin that then only calls Register again has no socket.
        """
        text = f"{call.resource} is not registered: {call.message}"
        path = self._kubelet.plugin_dir / str(call.request["endpoint"])
        if path.exists():
            return text
        return (
            f"the plugin calls Register, but its socket {path.name} does not exist: a kubelet that "
            f"starts empties the plugin directory ({text})"
        )

    def other_files(self) -> dict[str, tuple[int, int, int]]:
        """Return the device, inode and size (``st_dev``, ``st_ino``, ``st_size``) of each file in
        the plugin directory, by file name.

        The plugin's sockets are left out. The checkpoint is left out, too, because the kubelet
        writes it after each device list.
        """
        # Sockets of earlier instances belong to the plugin, too, even if they are stale.
        own = {call.request.get("endpoint") for call in self.registrations(EVER)}
        files = {}
        for path in self._kubelet.plugin_dir.iterdir():
            if path.name not in own and path != self._kubelet.checkpoint_path:
                status = path.lstat()
                files[path.name] = (status.st_dev, status.st_ino, status.st_size)
        return files


class Timeline:
    """Record of one check: steps of the suite, events and calls of the kubelet, output of the
    plugin.

    It has only what happened since the check began, because several checks may use the same kubelet
    and plugin.
    """

    def __init__(self, kubelet: MockKubelet, processes: Sequence[PluginProcess]) -> None:
        self._kubelet = kubelet
        self._processes = processes
        # Some checks make thousands of calls.
        self._steps: deque[Line] = deque(maxlen=_TIMELINE_LINES)
        self._mark = kubelet.mark()
        self._began = kubelet.clock.time()
        # The output of a process may begin before this check, so store the number of earlier lines.
        self._old_lines = {process: len(process.output()) for process in processes}

    def step(self, text: str, time: float | None = None) -> None:
        """Add a line about what the suite does or notices. ``time`` is the time of this event on
        the kubelet's clock in seconds; None for now."""
        time = self._kubelet.clock.time() if time is None else time
        self._steps.append(self._line(time, "suite", printable(text)))

    def lines(self) -> tuple[Line, ...]:
        """Return the latest lines about steps, events and calls, sorted by time."""
        lines = list(self._steps)
        for event in self._kubelet.events.recent():
            if event.number > self._mark.event:
                lines.append(self._line(event.time, "kubelet", str(event)))
        for call in self._kubelet.calls(since=self._mark):
            lines.append(self._line(call.time, "call", str(call)))
        for begun in self._kubelet.calls.in_progress:
            # Streams that an earlier check has opened on this stage say nothing about this check.
            if begun.time >= self._began:
                text = f"{begun.rpc} {begun.resource} ({begun.plugin}): in progress"
                lines.append(self._line(begun.time, "call", text))
        lines.sort(key=lambda line: line.time)
        return tuple(lines[-_TIMELINE_LINES:])

    def _line(self, time: float, source: str, text: str) -> Line:
        return Line(time - self._began, source, text)

    def output(self) -> tuple[str, ...]:
        """Return the latest lines that the plugin has printed during the check, at most 50."""
        lines = [
            line
            for process in self._processes
            for line in process.output()[self._old_lines.get(process, 0) :]
        ]
        return tuple(printable(line) for line in without_registers(lines)[-_OUTPUT_LINES:])


def parsed_list(call: Call) -> dp.ListAndWatchResponse:
    """Return the device list in a call log entry for ListAndWatch."""
    message: dp.ListAndWatchResponse = dp.ListAndWatchResponse.FromString(
        call.response_bytes or b""
    )
    return message
