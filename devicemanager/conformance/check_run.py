"""Actions, waits and observations that the functions of checks use: the class ``CheckRun``.

Theory of operation. A check is one function. It starts and disturbs a kubelet and a plugin, waits,
and compares what happens with what must happen. Its argument ``run`` has actions, waits, and:

* ``run.kubelet``, the mock kubelet, with its fault injection;
* ``run.plugin``, the plugin's processes: state, output, resource use (``running_plugin``);
* ``run.observed``, what the kubelet has seen: registrations, device lists (``observations``);
* ``run.client()``, a separate connection to the plugin, for calls that a kubelet would not make
  (``client``).

A check returns, or raises ``Failed``, ``Warned`` or ``Skipped``. Any other exception is an error
of the suite. An action or wait that does not succeed raises ``Failed`` with what was seen instead.
So a check describes only the good case. The runner converts the exception to a verdict and adds the
timeline.

The actions and waits that checks of DRA drivers also have are in ``suite_run``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from devicemanager.conformance.client import CallFailed, ListStream, PluginClient
from devicemanager.conformance.observations import EVER, Observations, parsed_list
from devicemanager.conformance.outcomes import Failed, Lost, Skipped
from devicemanager.conformance.stage import Stage
from devicemanager.conformance.suite_run import SuiteRun
from devicemanager.core.printable import counted
from devicemanager.events.calls import Mark
from protos import deviceplugin_v1beta1 as dp

__all__ = ["CheckRun"]

_SET_UP_SECONDS = 0.5
"""Time that a plugin has after its registration to set up its watches and signal handlers."""


class CheckRun(SuiteRun):
    """One run of one check of a device plugin, on one stage: a mock kubelet with the plugin."""

    _set_up_at = 0.0
    """Monotonic time until which ``wait_set_up`` waits: ``_SET_UP_SECONDS`` after the registration
    at the plugin's start."""

    def __init__(self, stage: Stage, resources: tuple[str, ...], seed: str) -> None:
        super().__init__(stage, resources, seed)
        self.observed = Observations(stage.kubelet)

    # -- actions -----------------------------------------------------------------------

    def wait_set_up(self) -> None:
        """Wait until the plugin has had time to set up its watches and signal handlers.

        Many plugins do so only after their registration. A check calls this method before it
        disturbs the plugin. Otherwise the verdict would depend on a race that does not occur on
        nodes.
        """
        time.sleep(max(0.0, self._set_up_at - time.monotonic()))

    def begin_set_up(self) -> None:
        """Start the plugin's setup time: ``wait_set_up`` waits until 0.5 s after this call.

        The suite calls this method when the plugin has registered after a start.
        """
        self._set_up_at = time.monotonic() + _SET_UP_SECONDS

    def hook(self, name: str, id_: str = "") -> None:
        """Wait until the plugin is set up (``wait_set_up``), then run the user's command for the
        hook ``name``, such as ``break-device``. See ``SuiteRun.hook``."""
        self.wait_set_up()
        super().hook(name, id_)

    def stop_kubelet(self) -> None:
        """Wait until the plugin is set up (``wait_set_up``), then stop the kubelet."""
        self.wait_set_up()
        super().stop_kubelet()

    def restart_kubelet(self) -> Mark:
        """Wait until the plugin is set up (``wait_set_up``), then restart the kubelet.

        Return a mark for the moment before the restart. Methods with the argument ``since`` find
        only what happened after a mark.
        """
        self.wait_set_up()
        return super().restart_kubelet()

    def break_device(self, id_: str, when: str = "") -> float:
        """Run the hook break-device, and wait for a device list in which ``id_`` is not healthy.

        Return the seconds until this list. Raises Failed after ``refresh_seconds``. The error text
        has the device's name, followed by the text ``when``, such as " for the second time".
        """
        return self._change("break-device", id_, False, when)

    def recover_device(self, id_: str, when: str = "") -> float:
        """Run the hook recover-device, and wait for a device list in which ``id_`` is healthy.

        Return the seconds until this list. Raises Failed after ``refresh_seconds``. The error text
        has the device's name, followed by the text ``when``, such as " for the second time".
        """
        return self._change("recover-device", id_, True, when)

    def _change(self, hook: str, id_: str, healthy: bool, when: str) -> float:
        # Before the hook, because a plugin can report the change while the hook still runs.
        since = self.kubelet.mark()
        self.hook(hook, id_)

        def shows_it(devices: list[dp.Device]) -> bool:
            health = {device.ID: device.health for device in devices}.get(id_)
            return (health == "Healthy") == healthy

        state = "healthy" if healthy else "unhealthy or missing"
        after = f"{hook} of {id_}{when}"
        what = f"with {id_} {state} after {after}"
        try:
            return self.wait_list(since, shows_it, self.limits.refresh_seconds, what)
        except Failed as failed:
            raise Failed(self.silence_since(since, after) or str(failed)) from None

    def silence_since(self, since: Mark, after: str) -> str:
        """Return an error text if the plugin has sent no device list of the check's ``resource``
        since the moment ``since``; empty if it has sent one.

        A check stores this moment, changes devices, and calls this method ``refresh_seconds``
        later. The error text ends with the argument ``after``, a name of the change such as
        "add-device".
        """
        if self.observed.lists(self.resource, since):
            return ""
        within = f"within {self.limits.refresh_seconds:g} s after {after}"
        # Each stream begins with a list, so its first message shows no change.
        before = self.observed.lists(self.resource, EVER)[-1:]
        if all(call.stream_message == 1 for call in before):
            return f"the plugin sent no device list after the first one: none came {within}"
        return f"the plugin sent no device list {within}"

    def assume_broken(self, id_: str, when: str = "") -> None:
        """Call ``break_device`` as a precondition of a check. Raises Skipped if the device stays
        healthy."""
        with self.assuming("W07"):
            self.break_device(id_, when)

    def assume_recovered(self, id_: str, when: str = "") -> None:
        """Call ``recover_device`` as a precondition of a check. Raises Skipped if the device does
        not become healthy."""
        if "W08" in self.disproved:
            # Otherwise the device would stay broken, and later checks would lack it.
            self.hook("recover-device", id_)
        with self.assuming("W08"):
            self.recover_device(id_, when)

    # -- the plugin, as the kubelet and a client see it -----------------------------------

    @property
    def has_tried_to_register(self) -> bool:
        return self.observed.has_tried_to_register

    def rejection(self) -> str:
        rejected = self.observed.registrations(code=None)
        return rejected[-1].message if rejected else ""

    def registered_names(self, since: Mark) -> set[str]:
        return {str(each.resource) for each in self.observed.registrations(since)}

    def device_counts(self) -> Mapping[str, int]:
        return {name: len(self.devices(name)) for name in self.resources}

    def why_unusable(self) -> str:
        if any(device.health == "Healthy" for _, device in self.every_device()):
            return ""
        lists = [
            f"the device list of {name} has {counted(count, 'device')}, none is healthy"
            if count
            else f"the device list of {name} is empty"
            for name, count in self.device_counts().items()
        ]
        return f"{', and '.join(lists)}: {self.plugin.under_test.advice_on_devices}"

    def devices(self, resource: str | None = None) -> list[dp.Device]:
        """Return the devices in the newest device list of a resource, by default of the check's
        ``resource``."""
        return self.observed.devices(resource or self.resource)

    def healthy_ids(self, resource: str | None = None, least: int = 1) -> list[str]:
        """Return the IDs of a resource's healthy devices (default: the check's ``resource``).

        Raises Skipped if there are fewer than ``least``.
        """
        # A device list may contain an ID twice; check W03 reports that.
        devices = self.devices(resource)
        ids = list(dict.fromkeys(each.ID for each in devices if each.health == "Healthy"))
        if len(ids) < least:
            raise Skipped(
                f"needs {counted(least, 'healthy device')}, the plugin has {len(ids) or 'none'}"
            )
        return ids

    def every_device(self) -> Iterator[tuple[str, dp.Device]]:
        """Iterate over the devices in the newest device list of each resource, as pairs of resource
        and device."""
        for resource in self.resources:
            for device in self.devices(resource):
                yield resource, device

    def every_list(self) -> Iterator[tuple[str, dp.ListAndWatchResponse]]:
        """Iterate over all device lists that the plugin has sent, as pairs of resource and device
        list."""
        for resource in self.resources:
            for call in self.observed.lists(resource, EVER):
                yield resource, parsed_list(call)

    @contextlib.contextmanager
    def client(self, resource: str | None = None) -> Iterator[PluginClient]:
        """Open a connection to the plugin, for use in a with block.

        The socket is the one that the plugin has registered last for ``resource``, by default the
        resource of the check. Raises Failed if the plugin has never registered this resource.
        """
        socket = self.observed.socket(resource or self.resource)
        with contextlib.closing(PluginClient(socket, self.step)) as client:
            yield client

    def clients_with_devices(self) -> Iterator[tuple[str, PluginClient]]:
        """Yield pairs: a resource that has healthy devices, and an open connection to the socket
        that the plugin registered for this resource.

        Raises Skipped if no resource has a healthy device.
        """
        if not any(device.health == "Healthy" for _, device in self.every_device()):
            raise Skipped("needs 1 healthy device, the plugin has none")
        for resource, client in self.clients():
            if any(device.health == "Healthy" for device in self.devices(resource)):
                yield resource, client

    def clients(self) -> Iterator[tuple[str, PluginClient]]:
        """Yield pairs: a resource, and an open connection to the socket that the plugin registered
        for this resource."""
        for resource in self.resources:
            with self.client(resource) as client:
                yield resource, client

    def check_alive(self, after: str) -> None:
        """Raise Failed if the plugin has exited or does not respond.

        The error text contains the argument ``after``, which says what the suite has just done,
        such as "unknown methods".
        """
        if not self.plugin.has_exited:
            try:
                with self.client() as client:
                    # This call needs no device and changes nothing, and every plugin has it.
                    client.options(self.limits.allocate_seconds)
                return
            except CallFailed as error:
                # The plugin may have exited during the call.
                if not self.plugin.has_exited:
                    raise Failed(f"the plugin does not respond after {after}: {error}") from None
        raise Failed(f"the plugin exited after {after}: {self.plugin.exit_text()}")

    # -- waits -------------------------------------------------------------------------

    def wait_list(
        self,
        since: Mark,
        is_wanted: Callable[[list[dp.Device]], bool],
        seconds: float,
        what: str,
    ) -> float:
        """Wait until ``is_wanted`` is true for a device list of the check's ``resource``. Return
        the seconds that this took.

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
        """Wait until the plugin has registered every resource and sent a device list of each.

        Return the seconds that this took.

        Raises Failed after the timeout or if the plugin exits. The error text contains the argument
        ``after``, the event that requires the registration, such as "its start".
        """

        def is_done() -> bool:
            return self.plugin.has_exited or self.observed.is_registered(since, self.resources)

        # Stop waiting if the plugin exits, to report the crash immediately.
        took = self.until_registered(is_done, seconds)
        if self.plugin.has_exited:
            raise Lost(f"the plugin exited after {after}: {self.exit_reason}")
        if took is None:
            raise Lost(self._why_lost(since, seconds, after))
        # A plugin sets up its watches and signal handlers once, not after each kubelet restart.
        if not self._registered_before:
            self.begin_set_up()
        self._registered_before = True
        # On a node, kubelet restarts are far apart, so the restart backoff of a supervisor is
        # reset.
        self.plugin.forget_exits()
        self.step(f"registered {took:.2f} s after {after}")
        return took

    def _why_lost(self, since: Mark, seconds: float, after: str) -> str:
        """Return the reason why the plugin has not registered, as the first line of a failure."""
        has_tried = bool(self.observed.registrations(since, code=None))
        # First, because a call in progress is not in the call log, so ``has_tried`` is False.
        if self.observed.is_registering:
            return f"the kubelet has not responded to Register, {seconds:g} s after {after}"
        if self._registered_before and not has_tried:
            return f"the plugin did not notice {after} (no Register call within {seconds:g} s)"
        missing = (self.observed.missing(since, resource) for resource in self.resources)
        reason = next(filter(None, missing), "not registered")
        return f"{reason}, {seconds:g} s after {after}{self._instead(since)}"

    def wait_devices(self) -> None:
        """Wait up to ``refresh_seconds`` for complete device lists. The first list of a plugin may
        be empty or have only some of its devices.

        If the suite has run the plugin before, a list is complete when it has as many devices as in
        that run. Otherwise, the lists are complete when at least one has devices, and no device was
        added or removed for ``settle_seconds``. The method raises no error for incomplete lists.
        """
        counts = self.stage.device_counts
        known: list[set[str]] = []
        last_change = 0.0

        def are_complete() -> bool:
            nonlocal known, last_change
            if counts:
                return all(len(self.devices(name)) >= counts[name] for name in counts)
            devices = [self.devices(name) for name in self.resources]  # can raise Failed
            if not any(devices):
                return False
            # A plugin may send the same devices in another order, or with another health.
            ids = [{each.ID for each in listed} for listed in devices]
            if ids != known:
                known = ids
                # The time of the lists, not of this wait, which may begin long after them.
                lists = (self.observed.lists(name, EVER)[-1] for name in self.resources)
                last_change = max(each.time for each in lists)
            return self.kubelet.clock.time() - last_change >= self.limits.settle_seconds

        self.until(are_complete, self.limits.refresh_seconds)

    @property
    def registration_place(self) -> str:
        return str(self.kubelet.plugin_socket)

    @property
    def silence(self) -> str:
        """Error text for a plugin that has not called Register: the socket of the kubelet, and how
        to configure the plugin."""
        return (
            f"nothing called Register at {self.kubelet.plugin_socket}; "
            f"{self.plugin.under_test.advice}"
        )

    def _instead(self, since: Mark) -> str:
        """Return the end of an error text: which other resources the plugin has registered. Empty
        if there are none."""
        if not self.observed.has_tried_to_register:
            return f": {self.why_silent}"
        names = {str(call.resource) for call in self.observed.registrations(since)}
        others = sorted(names - {*self.resources})
        return f"; it registered {', '.join(others)} instead" if others else ""

    # -- calls ---------------------------------------------------------------------------

    def first_list(
        self, stream: ListStream, of: str = "a second stream"
    ) -> dp.ListAndWatchResponse:
        """Return the first device list of a stream.

        Raises Failed if no list comes. The argument ``of`` is the name of the stream in the error,
        such as "a third stream".
        """
        try:
            return stream.next(self.limits.start_seconds)
        except CallFailed as error:
            raise Failed(f"the first device list of {of}: {error}") from None

    def new_list(
        self, resource: str | None = None, of: str = "a second stream"
    ) -> dp.ListAndWatchResponse:
        """Open a stream on a new connection, and return its first device list.

        Some plugins restart their server, and register again, whenever a stream ends. If such a
        restart ends the new stream, this method opens another one. Raises Failed if no list comes.
        The argument ``of`` is the name of the stream in the error, such as "a third stream".
        """
        # Without a deadline, the loop would not end for a plugin that restarts at each stream.
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
        """Wait up to ``refresh_seconds`` for a registration that comes after the moment ``since``.

        If no registration comes, return False. Otherwise wait until no more registrations follow,
        and return True.
        """
        deadline, known = time.monotonic() + self.limits.refresh_seconds, 0

        def has_news() -> bool:
            return len(self.observed.registrations(since)) > known

        if self.until(has_news, self.limits.refresh_seconds) is None:
            return False
        # A plugin registers its resources one after another.
        while self.until(has_news, self.limits.settle_seconds) is not None:
            if time.monotonic() > deadline:
                break
            known = len(self.observed.registrations(since))
        return True
