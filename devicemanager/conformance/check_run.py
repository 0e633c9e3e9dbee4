"""Actions, waits and observations that the functions of checks use: the class ``CheckRun``.

Theory of operation. A check is one function. It starts and disturbs a kubelet and a plugin, waits,
and compares what happens with what must happen. Its argument ``run`` has actions, waits, and:

* ``run.kubelet``, the mock kubelet, with its fault injection;
* ``run.plugin``, the plugin's processes: state, output, resource use (``running_plugin``);
* ``run.observed``, what the kubelet has seen: registrations, device lists (``observations``);
* ``run.client()``, a separate connection to the plugin, for calls that a kubelet would not make
  (``client``).

A check ends in one of five ways: it returns, or it raises ``Failed``, ``Warned``, ``Skipped`` or
any other exception, which is an error of the suite. If an action or wait does not succeed, it
raises ``Failed`` with what was seen instead, so a check describes only the good case. The runner
converts the exception to a verdict and adds the timeline.

Arguments named ``since``: a wait must ignore what happened before the disturbance. Therefore a
check takes a mark (``kubelet.mark()``) before the disturbance, and waits only for events after the
mark. Actions that restart the kubelet return such a mark.

Waits poll every 20 ms, which is short compared with all limits. The kubelet could notify about its
events, but not about the exit of a process or its use of memory.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator

from devicemanager.conformance.client import CallFailed, ListStream, PluginClient
from devicemanager.conformance.observations import EVER, Observations, Timeline, parsed_list
from devicemanager.conformance.outcomes import Failed, Lost, Skipped, Warned
from devicemanager.conformance.stage import Stage
from devicemanager.events.calls import Mark
from devicemanager.testing.processes import PluginProcess
from protos import deviceplugin_v1beta1 as dp

__all__ = ["CheckRun"]

_POLL_SECONDS = 0.02
_FIRST_NOTE_SECONDS, _NEXT_NOTE_SECONDS = 3.0, 10.0
"""Seconds before the first progress note of a wait, and between two notes."""


class CheckRun:
    """One run of one check on one stage (a mock kubelet with the plugin)."""

    _registered_before = False
    """True if the plugin has registered since its start."""
    subject: str | None = None
    """Resource that ``resource`` returns; None for the plugin's first one."""

    def __init__(self, stage: Stage, resources: tuple[str, ...], seed: str) -> None:
        self.stage = stage
        self.kubelet = stage.kubelet
        self.plugin = stage.plugin
        self.limits = stage.limits
        self.resources = resources
        """Resources of the plugin, those with devices first; empty while the suite still discovers
        them."""
        self.observed = Observations(stage.kubelet)
        self.timeline = Timeline(stage.kubelet, stage.plugin.processes)
        # Each check has its own generator: with a shared one, parallel checks would not be
        # repeatable.
        self.rng = random.Random(seed)
        """Random number generator for inputs. The same seed leads to the same inputs."""

    @property
    def resource(self) -> str:
        """Name of the resource that the check is about, by default the plugin's first one."""
        return self.subject or self.resources[0]

    @property
    def process(self) -> PluginProcess:
        """Process of the plugin instance that was started last."""
        return self.plugin.process

    def step(self, text: str) -> None:
        """Add a line to the timeline about what the suite does."""
        self.timeline.step(text)

    # -- actions -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the kubelet and the plugin, and wait for the plugin's registration."""
        self.start_kubelet()
        self.relaunch("its start")

    def relaunch(self, after: str) -> None:
        """Start an instance of the plugin and wait for its registration. ``after`` is the name of
        this start in errors, such as "the plugin's restart"."""
        since = self.kubelet.mark()
        self.launch()
        self.wait_registered(since, self.limits.start_seconds, after)
        self.wait_devices()

    def launch(self, *before: str, hook: str = "") -> PluginProcess:
        """Start an instance of the plugin and return without waiting. ``before`` are words to put
        before its command. ``hook`` is the name of a hook to run first."""
        self._registered_before = False
        self.step(f"start the plugin after the hook {hook}" if hook else "start the plugin")
        return self.plugin.launch(*before, hook=hook)

    def hook(self, name: str, id_: str = "") -> None:
        """Run the user's hook ``name``, for the device ``id_`` if it is given."""
        self.step(f"hook {name} {id_}".rstrip())
        self.plugin.call_hook(name, id_)

    def start_kubelet(self) -> None:
        """Start the kubelet."""
        self.step("start the kubelet")
        self.kubelet.start()

    def stop_kubelet(self) -> None:
        """Stop the kubelet. As on a node, its sockets and the checkpoint remain."""
        self.step("stop the kubelet")
        self.kubelet.stop()

    def restart_kubelet(self) -> Mark:
        """Restart the kubelet as on a node: close connections, delete the sockets of plugins, and
        create a new kubelet.sock. Return a mark for the moment before the restart."""
        since = self.kubelet.mark()
        self.step("restart the kubelet")
        self.kubelet.restart()
        return since

    def restart_and_wait(self, number: int) -> tuple[Mark, float]:
        """Restart the kubelet and wait for the plugin's registration. ``number`` is the number of
        the restart in errors.

        Return a mark for the moment before the restart, and the seconds until the registration.
        Raises Failed.
        """
        since = self.restart_kubelet()
        return since, self.wait_registered(since, self.limits.recover_seconds, f"restart {number}")

    def restart_and_recover(self, after: str = "the restart") -> float:
        """Restart the kubelet and wait for the plugin's registration; return the seconds.

        Raises Failed if the plugin does not register, and Warned if it takes longer than
        ``recover_warn_seconds``.
        """
        return self.wait_recovered(self.restart_kubelet(), after)

    def break_device(self, id_: str, when: str = "") -> float:
        """Run the hook break-device and wait for a device list without a healthy device ``id_``.
        Return the seconds. Raises Failed after ``refresh_seconds``."""
        return self._change("break-device", id_, False, when)

    def recover_device(self, id_: str, when: str = "") -> float:
        """Run the hook recover-device and wait for a device list with a healthy device ``id_``.
        Return the seconds. Raises Failed after ``refresh_seconds``."""
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
        """Break a device as a precondition of a check. Raises Skipped if no device list shows the
        change."""
        try:
            self.break_device(id_)
        except Failed as failed:
            raise Skipped(f"{failed}: see check W07") from None

    def assume_recovered(self, id_: str) -> None:
        """Recover a device as a precondition of a check. Raises Skipped if no device list shows the
        change."""
        try:
            self.recover_device(id_)
        except Failed as failed:
            raise Skipped(f"{failed}: see check W08") from None

    # -- the plugin, as the kubelet and a client see it -----------------------------------

    def devices(self, resource: str | None = None) -> list[dp.Device]:
        """Return the devices in the newest device list of a resource, by default of the first
        one."""
        return self.observed.devices(resource or self.resource)

    def healthy_ids(self, resource: str | None = None, least: int = 1) -> list[str]:
        """Return the IDs of the healthy devices of a resource, by default of the first one.

        Raises Skipped if there are fewer than ``least``.
        """
        # A device list may contain an ID twice; check W03 reports that.
        devices = self.devices(resource)
        ids = list(dict.fromkeys(each.ID for each in devices if each.health == "Healthy"))
        if len(ids) < least:
            raise Skipped(f"needs {least} healthy devices, the plugin has {len(ids)}")
        return ids

    def every_device(self) -> Iterator[tuple[str, dp.Device]]:
        """Iterate over the devices in the newest device list of each resource, as pairs of resource
        and device."""
        for resource in self.resources:
            for device in self.devices(resource):
                yield resource, device

    def every_list(self) -> Iterator[tuple[str, dp.ListAndWatchResponse]]:
        """Iterate over all device lists so far, as pairs of resource and message."""
        for resource in self.resources:
            for call in self.observed.lists(resource, EVER):
                yield resource, parsed_list(call)

    @contextlib.contextmanager
    def client(self, resource: str | None = None) -> Iterator[PluginClient]:
        """Open a connection to the socket that the plugin registered last for a resource, by
        default for the first one."""
        socket = self.observed.socket(resource or self.resource)
        with contextlib.closing(PluginClient(socket)) as client:
            yield client

    def clients_with_devices(self) -> Iterator[tuple[str, PluginClient]]:
        """Iterate like ``clients`` over the resources that have healthy devices.

        Raises Skipped if there are none.
        """
        if not any(device.health == "Healthy" for _, device in self.every_device()):
            raise Skipped("needs 1 healthy device, the plugin has none")
        for resource, client in self.clients():
            if any(device.health == "Healthy" for device in self.devices(resource)):
                yield resource, client

    def clients(self) -> Iterator[tuple[str, PluginClient]]:
        """Iterate over the resources, as pairs of resource and an open connection to its socket."""
        for resource in self.resources:
            with self.client(resource) as client:
                yield resource, client

    def check_alive(self, after: str) -> None:
        """Raise Failed if the plugin has exited or does not respond. ``after`` names the cause in
        errors."""
        if self.plugin.has_exited:
            raise Failed(f"the plugin exited after {after}: {self.plugin.exit_text()}")
        try:
            with self.client() as client:
                client.options(self.limits.allocate_seconds)
        except CallFailed as error:
            raise Failed(f"the plugin does not respond after {after}: {error}") from None

    # -- waits -------------------------------------------------------------------------

    def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        on_wait: Callable[[float], object] | None = None,
    ) -> float | None:
        """Wait until ``condition`` is true. Return the seconds that this took, or None after
        ``seconds``.

        ``on_wait`` is called every few seconds with the seconds so far.
        """
        # Measured with the real clock: the plugin is a separate process, which no virtual clock can
        # control.
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

    def series(self, count: int) -> Iterator[int]:
        """Iterate over ``range(count)``, but not longer than ``series_seconds``. At least one
        number is returned."""
        begin = time.monotonic()
        for number in range(count):
            if number and time.monotonic() - begin > self.limits.series_seconds:
                return
            yield number

    def settle(self, seconds: float | None = None) -> None:
        """Wait for ``seconds``, by default ``Limits.settle_seconds``.

        A check calls this before it verifies that something, such as a second registration, has not
        happened.
        """
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
        """Wait for a device list of the first resource for which ``is_wanted`` is true. Return the
        seconds.

        After the timeout, raises Failed; ``what`` describes the list in the error.
        """

        def has_come() -> bool:
            # Check all lists since the mark, not only the newest: the device may already have
            # changed again.
            lists = self.observed.lists(self.resource, since)
            return any(is_wanted(list(parsed_list(call).devices)) for call in lists)

        took = self.until(has_come, seconds)
        if took is None:
            raise Failed(f"no device list {what} within {seconds:g} s")
        return took

    def wait_registered(self, since: Mark, seconds: float, after: str) -> float:
        """Wait until every resource has registered and sent a device list. Return the seconds.

        Raises Failed after the timeout or if the plugin exits; ``after`` names the cause in the
        error.
        """

        def is_done() -> bool:
            return self.plugin.has_exited or self.observed.is_registered(since, self.resources)

        # Stop waiting if the plugin exits, to report the crash immediately.
        took = self.until_registered(is_done, seconds)
        if self.plugin.has_exited:
            raise Lost(f"the plugin exited after {after}: {self.plugin.exit_text()}")
        if took is None:
            raise Lost(self._why_lost(since, seconds, after))
        self._registered_before = True
        # Restarts of a kubelet are far apart, so a supervisor has forgotten earlier exits.
        self.plugin.forget_exits()
        self.step(f"registered {took:.2f} s after {after}")
        return took

    def _why_lost(self, since: Mark, seconds: float, after: str) -> str:
        """Return the reason why the plugin has not registered, as the first line of a failure."""
        has_tried = bool(self.observed.registrations(since, code=None))
        if self._registered_before and not has_tried:
            return f"the plugin did not notice {after}: no Register call within {seconds:g} s"
        missing = (self.observed.missing(since, resource) for resource in self.resources)
        reason = next(filter(None, missing), "not registered")
        return f"{reason}, {seconds:g} s after {after}{self._instead(since)}"

    def wait_devices(self) -> None:
        """Wait until the device lists are complete: the first one may be empty or have only some
        devices.

        They are complete if they have as many devices as on an earlier stage. If that number is not
        known, wait until they have devices and have not changed for ``settle_seconds``. After
        ``refresh_seconds``, return in any case.
        """
        counts = self.stage.device_counts

        def are_complete() -> bool:
            if counts:
                return all(len(self.devices(name)) >= counts[name] for name in counts)
            devices = [self.devices(name) for name in self.resources]  # Failed without a list
            if not any(devices):
                return False
            newest = max(self.observed.lists(name, EVER)[-1].time for name in self.resources)
            return self.kubelet.clock.time() - newest >= self.limits.settle_seconds

        self.until(are_complete, self.limits.refresh_seconds)

    def wait_recovered(self, since: Mark, after: str) -> float:
        """Wait like ``wait_registered``, up to ``recover_seconds``. Return the seconds.

        Raises Failed, or Warned if this took longer than ``recover_warn_seconds``.
        """
        took = self.wait_registered(since, self.limits.recover_seconds, after)
        self.warn_if_slow(took, after)
        return took

    def warn_if_slow(self, took: float, after: str) -> None:
        """Raise Warned if a recovery of ``took`` seconds was longer than
        ``recover_warn_seconds``."""
        if took > self.limits.recover_warn_seconds:
            raise Warned(
                f"registered only {took:.1f} s after {after}, "
                f"more than {self.limits.recover_warn_seconds:g} s"
            )

    def until_registered(self, is_done: Callable[[], bool], seconds: float) -> float | None:
        """Wait like ``until``. Every few seconds, notify the user that the plugin has not
        registered yet."""
        has_advised = False

        def note(passed: float) -> None:
            nonlocal has_advised
            if self.stage.on_wait is None:
                return
            # Give advice only once, and not if the plugin has called Register: then it has found
            # the kubelet.
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
        """Text for a plugin that has not called Register: the socket to call, and how to configure
        it."""
        return (
            f"nothing called Register at {self.kubelet.plugin_socket}; "
            f"{self.plugin.under_test.advice}"
        )

    def _instead(self, since: Mark) -> str:
        """Return the end of an error text: which other resources the plugin has registered. Empty
        if there are none."""
        if not self.observed.has_tried_to_register:
            return f": {self.silence}"
        names = {str(call.resource) for call in self.observed.registrations(since)}
        others = sorted(names - {*self.resources})
        return f"; it registered {', '.join(others)} instead" if others else ""

    # -- calls ---------------------------------------------------------------------------

    def timed(self, call: Callable[[], object], what: str) -> float:
        """Make a call and return the seconds it took. Raises Failed if the call fails; ``what``
        names it."""
        begin = time.monotonic()
        try:
            call()
        except CallFailed as error:
            raise Failed(f"{what}: {error}") from None
        return time.monotonic() - begin

    def first_list(
        self, stream: ListStream, of: str = "a second stream"
    ) -> dp.ListAndWatchResponse:
        """Return the first device list of a stream. Raises Failed if none comes. ``of`` names the
        stream in the error."""
        try:
            return stream.next(self.limits.start_seconds)
        except CallFailed as error:
            raise Failed(f"the first device list of {of}: {error}") from None

    def new_list(
        self, resource: str | None = None, of: str = "a second stream"
    ) -> dp.ListAndWatchResponse:
        """Open a stream on a new connection, and return its first device list.

        A plugin may restart its server and register again whenever one of its streams ends. A
        stream that it ends for this is opened again. Raises Failed if no list comes.
        """
        deadline = time.monotonic() + self.limits.recover_seconds
        while True:
            since = self.kubelet.mark()
            try:
                with self.client(resource) as client, client.watch() as stream:
                    return self.first_list(stream, of)
            except Failed:
                if time.monotonic() > deadline or not self.registers_again(since):
                    raise

    def registers_again(self, since: Mark) -> bool:
        """True if the plugin registers after the mark. Then wait until it registers no more, up to
        ``refresh_seconds``."""
        deadline, known = time.monotonic() + self.limits.refresh_seconds, 0

        def has_news() -> bool:
            return len(self.observed.registrations(since)) > known

        if self.until(has_news, self.limits.refresh_seconds) is None:
            return False
        while self.until(has_news, self.limits.settle_seconds) is not None:
            if time.monotonic() > deadline:
                break
            known = len(self.observed.registrations(since))
        return True
