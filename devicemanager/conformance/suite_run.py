"""Actions and waits that checks of plugins and of drivers share: the class ``SuiteRun``.

Arguments named ``since`` are marks: a mark stands for a moment. A check takes a mark with
``kubelet.mark()``, then disturbs the plugin, for example with a kubelet restart, and then waits.
The wait ignores all events before the mark. Methods that restart the kubelet take a mark
themselves, and return it.

Waits poll every 20 ms, which is short compared with all limits. The kubelet could report its events
without polling, but not the exit of a process or the memory that a process uses.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.crash import without_stacks
from devicemanager.conformance.observations import Timeline
from devicemanager.conformance.outcomes import RESTART, Failed, Skipped, Warned
from devicemanager.conformance.stage import Stage
from devicemanager.core.printable import printable
from devicemanager.events.calls import Mark
from devicemanager.testing.processes import PluginProcess

__all__ = ["NOTHING", "SuiteRun"]

NOTHING = "nothing"
"""Text for a program that has printed nothing."""
_LAST_LINES = 3
_NUMBER = re.compile(r"\d+")
_POLL_SECONDS = 0.02
_FIRST_CORE_WAITS_SECONDS = 1.0
"""Seconds after which a wait begins to measure how long threads wait for a CPU core. The
measurement is expensive, and most waits are shorter."""
_MOST_PATIENCE = 5
"""Longest time of a wait on a busy machine, as a multiple of its limit."""
_FIRST_NOTE_SECONDS, _NEXT_NOTE_SECONDS = 3.0, 10.0
"""Seconds before the first progress line of a wait, and between two lines."""


class SuiteRun(ABC):
    """One run of one check of a plugin or driver, on one stage. Base class of ``CheckRun``."""

    _registered_before = False
    """True if the plugin has registered since its start."""
    subject: str | None = None
    """Name of the resource that the check is about; None for the plugin's first resource."""
    disproved: set[str]
    """IDs of the checks in which a step has failed. A step is the with block of ``verifying``.
    Other checks that need the step are skipped (``assuming``). All checks of a report share the
    set."""

    def __init__(self, stage: Stage, resources: tuple[str, ...], seed: str) -> None:
        self.stage = stage
        self.kubelet = stage.kubelet
        self.plugin = stage.plugin
        self.limits = stage.limits
        self.resources = resources
        """Resources of the plugin, those with devices first; empty while the suite still discovers
        them."""
        self.timeline = Timeline(stage.kubelet, stage.plugin.processes)
        self.disproved = set()
        # Each check has its own generator: with a shared one, parallel checks would not be
        # repeatable.
        self.rng = random.Random(seed)
        """Random number generator for inputs. The same seed leads to the same inputs."""

    @property
    def resource(self) -> str:
        """Name of the resource that the check is about, by default the plugin's first resource."""
        return self.subject or self.resources[0]

    @property
    def process(self) -> PluginProcess:
        """Process of the plugin instance that was started last."""
        return self.plugin.process

    @property
    def kind(self) -> str:
        """The word for the program under test in messages: ``plugin`` or ``driver``."""
        return self.plugin.under_test.kind

    @property
    def last_output(self) -> str:
        """The last lines that the latest instance has printed, without stack traces, joined to one
        line. Of lines that differ only in numbers, only one is shown."""
        lines = without_stacks(self.process.output())
        different = {_NUMBER.sub("#", line): line for line in lines[-_LAST_LINES:]}
        return printable("; ".join(different.values())) or NOTHING

    @property
    def advice_on_output(self) -> str:
        """Advice for a program that does not register, if its output shows the cause; otherwise
        empty."""
        if not self.plugin.processes:
            return ""
        lines = without_stacks(self.process.output())
        return printable(self.plugin.under_test.advice_on_output(lines[-_LAST_LINES:]))

    @property
    def why_silent(self) -> str:
        """Error text for a program that has not tried to register. If the program's output shows
        the cause, the text begins with the cause. It ends with the text of ``silence``."""
        advice = self.advice_on_output
        if not advice:
            return self.silence
        return f"it printed: {self.last_output}; {advice}; {self.silence}"

    @property
    def exit_reason(self) -> str:
        """Text about the program's exit. If the program has not registered and its output names a
        missing path, the text has advice."""
        advice = "" if self._registered_before else self.advice_on_output
        text = self.plugin.exit_text()
        return f"{text}. It printed: {self.last_output}. {advice}" if advice else text

    def accepted_exit(self) -> str:
        """Return the text of a check that passes although the plugin exited with an error. Such an
        exit is accepted, because a supervisor then starts the plugin again."""
        return f"exits with an error, which is accepted: {self.plugin.exit_text()}"

    def step(self, text: str) -> None:
        """Add a line to the timeline about what the suite does."""
        self.timeline.step(text)

    # -- what the kubelet sees -----------------------------------------------------------

    @property
    @abstractmethod
    def has_tried_to_register(self) -> bool:
        """True if the plugin has ever tried to register, even if it was rejected."""

    @property
    @abstractmethod
    def registration_place(self) -> str:
        """Path of the socket or directory where the plugin must register."""

    @property
    @abstractmethod
    def silence(self) -> str:
        """Error text for a plugin that has not tried to register, with advice to its author."""

    @abstractmethod
    def rejection(self) -> str:
        """Return the error of the latest registration; empty if the registration succeeded, or if
        the plugin has not tried to register."""

    @abstractmethod
    def registered_names(self, since: Mark) -> set[str]:
        """Return the names of the resources that were registered after the mark ``since``."""

    @abstractmethod
    def device_counts(self) -> Mapping[str, int]:
        """Return the number of devices of each resource."""

    def why_unusable(self) -> str:
        """Return a text that says why no check can use a device; empty if checks can use
        devices."""
        return ""

    @abstractmethod
    def wait_registered(self, since: Mark, seconds: float, after: str) -> float:
        """Wait until every resource has registered. Return the seconds that this took.

        Raises Failed after ``seconds`` or if the plugin exits. ``after`` is a part of the error's
        text, such as "its start" in "the plugin exited after its start".
        """

    @abstractmethod
    def wait_devices(self) -> None:
        """Wait until the plugin has reported all its devices. After a time limit, return even if
        devices are missing.

        The subclasses define the time limit, and when the devices are complete.
        """

    # -- actions -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the kubelet and the plugin, and wait for the plugin's registration."""
        self.start_kubelet()
        self.relaunch("its start")

    def relaunch(self, after: str) -> None:
        """Start an instance of the plugin, wait for its registration and then for its devices.

        ``after`` is a part of the text of errors, such as "its restart" in "the plugin exited after
        its restart".
        """
        # The mark is taken before the start. A fast plugin could otherwise register before it.
        since = self.kubelet.mark()
        self.launch()
        self.wait_registered(since, self.limits.start_seconds, after)
        self.wait_devices()

    def launch(self, *before: str, hook: str = "") -> PluginProcess:
        """Start an instance of the plugin and return without waiting. ``before`` are words to put
        before its command. ``hook`` is the name of a hook to run after the hook ``prepare``."""
        self._registered_before = False
        self.step(f"start the {self.kind}" + (f" after the hook {hook}" if hook else ""))
        return self.plugin.launch(*before, hook=hook)

    def hook(self, name: str, id_: str = "") -> None:
        """Run the user's hook ``name`` for the device ``id_``. Do nothing if the hook is not
        defined. ``id_`` is empty for a hook that needs no device."""
        if self.plugin.under_test.has(name):
            self.step(f"hook {name} {id_}".rstrip())
            self.plugin.change(name, id_)

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
        create a new kubelet.sock.

        Return a mark. A wait with this mark as ``since`` ignores all events before the restart.
        """
        # The mark is taken before the restart. A fast plugin could otherwise register before it.
        since = self.kubelet.mark()
        self.step(RESTART)
        self.kubelet.restart()
        return since

    def restart_and_wait(self, number: int) -> tuple[Mark, float]:
        """Restart the kubelet and wait for the plugin's registration. Return a mark, and the
        seconds from the restart to the registration.

        A wait with the mark as ``since`` ignores all events before the restart. Raises Failed if
        the plugin does not register. The error names ``number``, the number of this restart in a
        series.
        """
        since = self.restart_kubelet()
        return since, self.wait_registered(since, self.limits.recover_seconds, f"restart {number}")

    def restart_and_recover(self, after: str = "the restart") -> float:
        """Restart the kubelet and wait for the plugin's registration. Return the seconds from the
        restart to the registration.

        Raises Failed if the plugin does not register, and Warned if it takes longer than
        ``recover_warn_seconds``.
        """
        return self.wait_recovered(self.restart_kubelet(), after)

    # -- steps on which several checks depend ----------------------------------------------

    @contextlib.contextmanager
    def verifying(self, id_: str) -> Iterator[None]:
        """Return a context manager. Its with block is the step that check ``id_`` verifies.

        If the block raises Failed, the step has failed. Other checks that need this step are then
        skipped when they call ``assuming(id_)``.
        """
        try:
            yield
        except Failed:
            self.disproved.add(id_)
            raise

    @contextlib.contextmanager
    def assuming(self, id_: str) -> Iterator[None]:
        """Return a context manager. Its with block is a step that the running check needs, and that
        check ``id_`` verifies.

        If the block raises Failed, the context manager raises Skipped instead, because check
        ``id_`` reports the failure. If the step has already failed in check ``id_``, it raises
        Skipped without running the block. The block would only wait until its time limit.
        """
        if id_ in self.disproved:
            raise Skipped("would repeat a failure", cause=id_)
        try:
            yield
        except Failed as failed:
            raise Skipped(str(failed), cause=id_) from None

    # -- waits -------------------------------------------------------------------------

    def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        on_wait: Callable[[float], object] | None = None,
    ) -> float | None:
        """Wait until ``condition`` is true. Return the seconds that this took; None if it took
        longer than ``seconds``.

        Time in which the plugin waits for a CPU core does not count, because a limit is about the
        plugin, not about the load of the machine. After five times ``seconds``, the wait ends in
        any case. ``on_wait`` is called every few seconds with the seconds since the wait began.
        """
        # Measured with the real clock: the plugin is a separate process, which no virtual clock can
        # control.
        begin, due = time.monotonic(), _FIRST_NOTE_SECONDS
        waits: Mapping[int, float] | None = None
        deadline = seconds
        while not condition():
            passed = time.monotonic() - begin
            if waits is None and passed >= _FIRST_CORE_WAITS_SECONDS:
                waits = self.plugin.core_waits()
            if passed > deadline:
                # Not in every round: reading the waits of all threads is expensive, and few waits
                # pass the limit.
                patience = seconds + self._without_core(waits)
                # On a machine that stays busy, the deadline would otherwise move on forever.
                deadline = min(patience, _MOST_PATIENCE * seconds)
                if passed > deadline:
                    return None
            if on_wait is not None and passed >= due:
                on_wait(passed)
                due += _NEXT_NOTE_SECONDS
            time.sleep(_POLL_SECONDS)
        return max(0.0, time.monotonic() - begin - self._without_core(waits))

    def observe(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Wait for ``seconds``, or until ``is_over`` returns True.

        The limit is not extended if the plugin waits for a CPU core, because the check is about
        what happens during these seconds. ``until`` extends its limit in this case.
        """
        end = time.monotonic() + seconds
        while not is_over() and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def _without_core(self, before: Mapping[int, float] | None) -> float:
        """Return the longest time that a thread has waited for a CPU core since ``before``, in
        seconds. ``before`` is an earlier result of ``core_waits``; None leads to 0."""
        if before is None:
            return 0.0
        waits = self.plugin.core_waits()
        return max((each - before.get(id_, 0.0) for id_, each in waits.items()), default=0.0)

    def series(self, count: int) -> Iterator[int]:
        """Yield the numbers of ``range(count)``, but stop after ``series_seconds``. The first
        number is always yielded."""
        begin = time.monotonic()
        for number in range(count):
            if number and time.monotonic() - begin > self.limits.series_seconds:
                return
            yield number

    def settle(self, seconds: float | None = None) -> None:
        """Wait for ``seconds``, by default ``Limits.settle_seconds``.

        A check calls this method before it verifies that something has not happened, such as a
        second registration.
        """
        seconds = self.limits.settle_seconds if seconds is None else seconds
        self.step(f"wait {seconds:g} s")
        time.sleep(seconds)

    def wait_recovered(self, since: Mark, after: str) -> float:
        """Wait until every resource has registered, up to ``recover_seconds``. Return the seconds
        that this took.

        Raises Failed as ``wait_registered`` does. Raises Warned if the registration took longer
        than ``recover_warn_seconds``.
        """
        took = self.wait_registered(since, self.limits.recover_seconds, after)
        self.warn_if_slow(took, after)
        return took

    def warn_if_slow(self, took: float, after: str) -> None:
        """Raise Warned if ``took``, the seconds until the plugin registered, is more than
        ``recover_warn_seconds``.

        ``after`` is a part of the text, such as "the restart" in "registered only 20.0 s after the
        restart".
        """
        if took > self.limits.recover_warn_seconds:
            raise Warned(
                f"registered only {took:.1f} s after {after}, "
                f"more than {self.limits.recover_warn_seconds:g} s"
            )

    def until_registered(self, is_done: Callable[[], bool], seconds: float) -> float | None:
        """Wait until ``is_done`` is true. Return the seconds that this took; None if it took longer
        than ``seconds``, as in ``until``.

        Every few seconds, notify the user that the plugin has not registered yet.
        """
        has_advised = False

        def note(passed: float) -> None:
            nonlocal has_advised
            if self.stage.on_wait is None:
                return
            # Give advice only once, and not if the plugin has called Register: then it has found
            # the kubelet.
            is_known = has_advised or self.has_tried_to_register
            has_advised = True
            advice = self.advice_on_output or self.plugin.under_test.advice
            self.stage.on_wait(
                f"after {passed:.0f} s, the {self.kind} has not registered at "
                f"{self.registration_place} (limit {seconds:g} s)"
                + ("" if is_known else f"; {advice}")
            )

        return self.until(is_done, seconds, note)

    def timed(self, call: Callable[[], object], what: str) -> float:
        """Run the function ``call``, which calls the plugin, and return the seconds that it took.
        Raises Failed if the call to the plugin fails; ``what`` names the call in the text."""
        begin = time.monotonic()
        try:
            call()
        except CallFailed as error:
            raise Failed(f"{what}: {error}") from None
        return time.monotonic() - begin
