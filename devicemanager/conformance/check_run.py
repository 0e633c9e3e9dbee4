"""``CheckRun``: what the function of a check works with.

Theory of operation. A check is one function. It starts and disturbs a kubelet and a plugin,
waits, and compares. It has four parts to do this with, and the actions and waits below:

* ``run.kubelet``, the mock kubelet, with its fault injection;
* ``run.plugin``, the plugin's processes: state, output, resource use (``running_plugin``);
* ``run.observed``, what the kubelet has seen: registrations, device lists (``observations``);
* ``run.client()``, a connection of the suite's own, for calls that a kubelet would not make
  (``client``).

A check ends in one of five ways: it returns, or it raises ``Failed``, ``Warned``, ``Skipped`` or
any other exception, which is an error of the suite. So every action and wait raises ``Failed``
with what was seen instead, and a check only describes the good case. The runner turns the
exception into a verdict and adds the timeline.

``since``: a wait must not be satisfied by what happened before the disturbance. Therefore take a
mark (``kubelet.mark()``) first, then disturb, then wait for what came after the mark. Actions
that restart the kubelet return such a mark.

Waits poll. The kubelet would notify about events, but not about the exit of a process or the use
of memory, and 20 ms is short compared with all limits.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator

from devicemanager.conformance.client import CallFailed, ListStream, PluginClient
from devicemanager.conformance.observations import EVER, Observations, Timeline, parsed_list
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.conformance.stage import Stage
from devicemanager.events.calls import Mark
from devicemanager.testing.processes import PluginProcess
from protos import deviceplugin_v1beta1 as dp

__all__ = ["CheckRun"]

_POLL_SECONDS = 0.02
_FIRST_NOTE_SECONDS, _NEXT_NOTE_SECONDS = 3.0, 10.0
"""Wait before the first progress note, and between two notes."""


class CheckRun:
    """One run of one check on one stage."""

    def __init__(self, stage: Stage, resources: tuple[str, ...], seed: str) -> None:
        self.stage = stage
        self.kubelet = stage.kubelet
        self.plugin = stage.plugin
        self.limits = stage.limits
        self.resources = resources
        """The plugin's resources; empty while the suite discovers them."""
        self.observed = Observations(stage.kubelet)
        self.timeline = Timeline(stage.kubelet, stage.plugin.processes)
        # A generator per check: checks run in parallel, so a shared one would not be repeatable.
        self.rng = random.Random(seed)
        """Source of random inputs; repeatable with the same seed."""

    @property
    def resource(self) -> str:
        """The first of the plugin's resources."""
        return self.resources[0]

    @property
    def process(self) -> PluginProcess:
        """The instance of the plugin that was started last."""
        return self.plugin.process

    def step(self, text: str) -> None:
        """Note what the suite does, for the timeline."""
        self.timeline.step(text)

    # -- actions -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the kubelet and the plugin, and wait for the plugin's registration."""
        self.start_kubelet()
        self.relaunch("its start")

    def relaunch(self, after: str) -> None:
        """Start an instance of the plugin, and wait for its registration."""
        since = self.kubelet.mark()
        self.launch()
        self.wait_registered(since, self.limits.start_seconds, after)

    def launch(self, *before: str, hook: str = "") -> PluginProcess:
        """Start an instance of the plugin and return at once; see ``RunningPlugin.launch``."""
        self.step(f"start the plugin after the hook {hook}" if hook else "start the plugin")
        return self.plugin.launch(*before, hook=hook)

    def hook(self, name: str, id_: str = "") -> None:
        """Run one of the user's hooks."""
        self.step(f"hook {name} {id_}".rstrip())
        self.plugin.call_hook(name, id_)

    def start_kubelet(self) -> None:
        """Start the kubelet."""
        self.step("start the kubelet")
        self.kubelet.start()

    def stop_kubelet(self) -> None:
        """Stop the kubelet. As on a node, sockets and the checkpoint stay."""
        self.step("stop the kubelet")
        self.kubelet.stop()

    def restart_kubelet(self) -> Mark:
        """Restart the kubelet as on a node: connections are closed, the sockets of plugins are
        deleted, kubelet.sock is new. Return the moment before."""
        since = self.kubelet.mark()
        self.step("restart the kubelet")
        self.kubelet.restart()
        return since

    def restart_and_wait(self, number: int) -> tuple[Mark, float]:
        """Restart the kubelet and wait for the plugin's registration. Return the moment before
        the restart, and the seconds since then."""
        since = self.restart_kubelet()
        return since, self.wait_registered(since, self.limits.recover_seconds, f"restart {number}")

    def restart_and_recover(self, after: str = "the restart") -> float:
        """As ``restart_and_wait``, but raise Warned if the plugin took long."""
        return self.wait_recovered(self.restart_kubelet(), after)

    def break_device(self, id_: str, when: str = "") -> float:
        """Run the hook break-device and wait for a device list that shows it. Return the
        seconds."""
        return self._change("break-device", id_, False, when)

    def recover_device(self, id_: str, when: str = "") -> float:
        """As ``break_device``, for recover-device."""
        return self._change("recover-device", id_, True, when)

    def _change(self, hook: str, id_: str, healthy: bool, when: str) -> float:
        since = self.kubelet.mark()
        self.hook(hook, id_)

        def shows_it(devices: list[dp.Device]) -> bool:
            health = {device.ID: device.health for device in devices}.get(id_)
            return (health == "Healthy") == healthy

        state = "healthy" if healthy else "unhealthy or missing"
        what = f"with {id_} {state} after {hook} of {id_}{when}"
        return self.wait_list(since, shows_it, self.limits.refresh_seconds, what)

    def assume_broken(self, id_: str) -> None:
        """Break a device as a precondition. Raises Skipped if no device list shows it."""
        try:
            self.break_device(id_)
        except Failed as failed:
            raise Skipped(f"{failed}: see W07") from None

    def assume_recovered(self, id_: str) -> None:
        """As ``assume_broken``, for recover-device."""
        try:
            self.recover_device(id_)
        except Failed as failed:
            raise Skipped(f"{failed}: see W08") from None

    # -- the plugin, as the kubelet and a client see it -----------------------------------

    def devices(self, resource: str | None = None) -> list[dp.Device]:
        """Return the devices of the newest list, of the first resource by default."""
        return self.observed.devices(resource or self.resource)

    def healthy_ids(self, resource: str | None = None, least: int = 1) -> list[str]:
        """Return the IDs of healthy devices. Raises Skipped if there are fewer than ``least``."""
        # A list may contain an ID twice; W03 reports that.
        devices = self.devices(resource)
        ids = list(dict.fromkeys(each.ID for each in devices if each.health == "Healthy"))
        if len(ids) < least:
            raise Skipped(f"needs {least} healthy devices, the plugin has {len(ids)}")
        return ids

    def every_device(self) -> Iterator[tuple[str, dp.Device]]:
        """Iterate over resource and device of the newest list of each resource."""
        for resource in self.resources:
            for device in self.devices(resource):
                yield resource, device

    def every_list(self) -> Iterator[tuple[str, dp.ListAndWatchResponse]]:
        """Iterate over resource and message of all device lists so far."""
        for resource in self.resources:
            for call in self.observed.lists(resource, EVER):
                yield resource, parsed_list(call)

    @contextlib.contextmanager
    def client(self, resource: str | None = None) -> Iterator[PluginClient]:
        """Open a connection to the plugin's latest socket."""
        socket = self.observed.socket(resource or self.resource)
        with contextlib.closing(PluginClient(socket)) as client:
            yield client

    def clients(self) -> Iterator[tuple[str, PluginClient]]:
        """Iterate over the resources, with an open connection for each."""
        for resource in self.resources:
            with self.client(resource) as client:
                yield resource, client

    def check_alive(self, after: str) -> None:
        """Raise Failed if the plugin has exited or does not answer."""
        if self.plugin.has_exited:
            raise Failed(f"the plugin exited after {after}: {self.plugin.exit_text()}")
        try:
            with self.client() as client:
                client.options(self.limits.allocate_seconds)
        except CallFailed as error:
            raise Failed(f"the plugin does not answer after {after}: {error}") from None

    # -- waits -------------------------------------------------------------------------

    def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        on_wait: Callable[[float], object] | None = None,
    ) -> float | None:
        """Wait for a condition. Return the seconds, or None after the timeout. ``on_wait`` is
        called with the seconds so far from time to time."""
        # By the real clock: the plugin is a process outside, which no virtual clock can control.
        begin, due = time.monotonic(), _FIRST_NOTE_SECONDS
        while not condition():
            passed = time.monotonic() - begin
            if passed > seconds:
                return None
            if on_wait is not None and passed >= due:
                on_wait(passed)
                due += _NEXT_NOTE_SECONDS
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - begin

    def settle(self, seconds: float | None = None) -> None:
        """Wait before a check that something did not happen."""
        seconds = self.limits.settle_seconds if seconds is None else seconds
        self.step(f"wait {seconds:g} s")
        time.sleep(seconds)

    def wait_list(
        self,
        since: Mark,
        is_wanted: Callable[[list[dp.Device]], bool],
        seconds: float,
        what: str,
    ) -> float:
        """Wait for a device list of the first resource. Return the seconds; raises Failed with
        ``what``."""

        def has_come() -> bool:
            # Any list since then, not only the newest: the device may already have changed again.
            lists = self.observed.lists(self.resource, since)
            return any(is_wanted(list(parsed_list(call).devices)) for call in lists)

        took = self.until(has_come, seconds)
        if took is None:
            raise Failed(f"no device list {what} within {seconds:g} s")
        return took

    def wait_registered(self, since: Mark, seconds: float, after: str) -> float:
        """Wait until every resource has registered and sent a device list. Return the seconds."""

        def is_done() -> bool:
            return self.plugin.has_exited or self.observed.is_registered(since, self.resources)

        # An exit ends the wait, so that a crash is reported at once and as a crash.
        took = self.until_registered(is_done, seconds)
        if self.plugin.has_exited:
            raise Failed(f"the plugin exited after {after}: {self.plugin.exit_text()}")
        if took is None:
            missing = (self.observed.missing(since, resource) for resource in self.resources)
            reason = next(filter(None, missing), "not registered")
            raise Failed(f"{reason} {seconds:g} s after {after}{self._instead(since)}")
        self.step(f"registered {took:.2f} s after {after}")
        return took

    def wait_recovered(self, since: Mark, after: str) -> float:
        """As ``wait_registered``, with the limits for recovery. Raises Warned if it took long."""
        took = self.wait_registered(since, self.limits.recover_seconds, after)
        self.warn_if_slow(took, after)
        return took

    def warn_if_slow(self, took: float, after: str) -> None:
        """Raise Warned if a recovery took longer than ``recover_warn_seconds``."""
        if took > self.limits.recover_warn_seconds:
            raise Warned(
                f"registered only {took:.1f} s after {after}, "
                f"more than {self.limits.recover_warn_seconds:g} s"
            )

    def until_registered(self, is_done: Callable[[], bool], seconds: float) -> float | None:
        """As ``until``, with notes for the user that the plugin has not registered yet."""
        has_advised = False

        def note(passed: float) -> None:
            nonlocal has_advised
            if self.stage.on_wait is None:
                return
            # Advice only once, and none for a plugin that is rejected: it has found the kubelet.
            is_known = has_advised or self.observed.has_tried_to_register
            has_advised = True
            self.stage.on_wait(
                f"{passed:.0f} of {seconds:g} s: the plugin has not registered at "
                f"{self.kubelet.plugin_socket}"
                + ("" if is_known else f"; {self.plugin.under_test.advice}")
            )

        return self.until(is_done, seconds, note)

    @property
    def silence(self) -> str:
        """Text for a plugin that has not called Register: where it should, and what to do."""
        return (
            f"nothing called Register at {self.kubelet.plugin_socket}; "
            f"{self.plugin.under_test.advice}"
        )

    def _instead(self, since: Mark) -> str:
        """Return what the plugin has registered instead of its resources, for a message."""
        if not self.observed.has_tried_to_register:
            return f": {self.silence}"
        names = {str(call.resource) for call in self.observed.registrations(since)}
        others = sorted(names - {*self.resources})
        return f"; it registered {', '.join(others)} instead" if others else ""

    # -- calls ---------------------------------------------------------------------------

    def timed(self, call: Callable[[], object], what: str) -> float:
        """Make a call and return the seconds. Raises Failed if the call fails."""
        begin = time.monotonic()
        try:
            call()
        except CallFailed as error:
            raise Failed(f"{what}: {error}") from None
        return time.monotonic() - begin

    def first_list(
        self, stream: ListStream, of: str = "a second stream"
    ) -> dp.ListAndWatchResponse:
        """Return the first device list of a stream. Raises Failed if none comes."""
        try:
            return stream.next(self.limits.start_seconds)
        except CallFailed as error:
            raise Failed(f"the first device list of {of}: {error}") from None
