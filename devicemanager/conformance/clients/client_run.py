"""Actions and waits that the checks of clients use: the class ``ClientRun``.

Theory of operation. A check starts a scripted kubelet and the client, changes what the kubelet
returns, and waits for further calls. If the client makes no further call, it has exited or hangs,
and the wait raises ``Failed``. So the function of a check only describes the good case.

A client queries at its own interval, or when its metrics page is read. Therefore a check never
demands a call at once. It waits for up to ``patience`` seconds, a time that depends on the client's
interval. The first check, C01, measures this interval.

A *mark* stands for a moment: it is the number of calls that the kubelet had received by then. A
wait uses it to count only later calls.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import groupby

import attrs

from devicemanager.conformance.clients import content
from devicemanager.conformance.clients.client_under_test import ClientUnderTest
from devicemanager.conformance.clients.kubelet import ClientCall, ScriptedKubelet
from devicemanager.conformance.clients.limits import ClientLimits
from devicemanager.conformance.clients.page import Scraper
from devicemanager.conformance.clients.process import ClientProcess
from devicemanager.conformance.crash import without_registers
from devicemanager.conformance.outcomes import Failed, Line, Skipped
from devicemanager.core.printable import counted, printable

__all__ = ["ClientRun"]

_POLL_SECONDS = 0.02
_TIMELINE_LINES = 200


class ClientRun:
    """One run of one check: a scripted kubelet and the client."""

    def __init__(self, client: ClientUnderTest, limits: ClientLimits, patience: float) -> None:
        self.client = client
        self.limits = limits
        self.patience = patience
        """Seconds to wait for a call of the client. It is longer than the interval at which the
        client queries."""
        self.kubelet = ScriptedKubelet()
        self.process = ClientProcess(client, self.kubelet)
        self.scraper: Scraper | None = None
        self._began = time.monotonic()
        self._steps: list[Line] = []
        self.kubelet.show(content.ordinary(client.resources))

    def close(self) -> None:
        """Stop the client, and remove the kubelet's directory. Thread-safe and idempotent."""
        # ExitStack runs every callback, the last one first, even if one raises an exception.
        with contextlib.ExitStack() as stack:
            stack.callback(self.kubelet.close)
            stack.callback(self.process.stop)
            if self.scraper is not None:
                stack.callback(self.scraper.close)

    # -- actions -----------------------------------------------------------------------

    def step(self, text: str) -> None:
        """Add a line to the timeline about what the suite does."""
        self._steps.append(Line(time.monotonic() - self._began, "suite", printable(text)))

    def launch(self) -> None:
        """Start the client, and begin to read its metrics page."""
        self.step("start the client")
        self.process.start()
        url = self.process.metrics
        # A client that is started again has the same address, so the first reader continues.
        if url and self.scraper is None:
            self.scraper = Scraper(url, self.limits.scrape_seconds, self.limits.page_seconds)

    def start(self, *, is_set_up: bool = True) -> None:
        """Start the kubelet and the client, and wait for the client's first call. Raises Failed if
        the client exits or makes no call in time.

        If ``is_set_up`` is true, also wait, for up to ``patience`` seconds, until the client has
        repeated a call. This shows that its setup is over. During its setup, a client may exit if a
        call fails.
        """
        self.step("serve PodResources")
        self.kubelet.start()
        self.launch()
        self.wait_calls("its start", 1, seconds=self.limits.start_seconds)
        if is_set_up:
            self.wait_repeated(2, self.patience)

    def wait_repeated(self, count: int, seconds: float) -> bool:
        """Wait until the client has made the same call ``count`` times. Return False after
        ``seconds``. Raises Failed if the client exits."""
        took = self.until(
            lambda: bool(self._equal_calls(count)) or not self.process.is_running, seconds
        )
        self.check_running("its start")
        return took is not None

    def stop(self) -> None:
        """Stop the client. It can be started again with ``launch``."""
        self.step("stop the client")
        self.process.stop()

    def show(self, shown: content.Content, what: str) -> int:
        """Change what PodResources returns. Return the mark of this change, with which
        ``wait_calls`` waits for later calls.

        ``what``: description of the content for the report's timeline.
        """
        self.step(f"respond with {what}")
        self.kubelet.show(shown)
        # Taken afterwards, because calls during the change can still get the earlier content.
        return self.kubelet.mark()

    def restart_kubelet(self, away: float = 0.0) -> int:
        """Stop the scripted kubelet, and start it again after ``away`` seconds, with other pods.

        Return the mark of the restart, with which ``wait_calls`` waits for later calls.
        """
        self.step(f"stop the kubelet for {away:g} s")
        self.kubelet.stop()
        time.sleep(away)
        # Some clients show only the number of devices, so this number must change, too.
        self.kubelet.show(content.ordinary(self.client.resources, first=4, count=3))
        # Taken while nothing is served, so that the restarted kubelet gets all later calls.
        mark = self.kubelet.mark()
        self.step("serve PodResources again")
        self.kubelet.start()
        return mark

    # -- waits -------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], seconds: float) -> float | None:
        """Wait until ``condition`` is true. Return the seconds that this took, or None after
        ``seconds``."""
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > seconds:
                return None
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - begin

    def wait_calls(
        self,
        after: str,
        count: int | None = None,
        *,
        since: int = 0,
        seconds: float | None = None,
        is_wanted: Callable[[ClientCall], bool] = lambda call: True,
        what: str = "call",
    ) -> list[ClientCall]:
        """Wait for ``count`` calls after the mark ``since``, and return them. The default of
        ``count`` is the limit ``calls``.

        Count only calls for which ``is_wanted`` returns True. Raises Failed if the client exits, or
        if the next such call takes longer than ``seconds``, by default ``patience``.

        The error text contains ``what``, a name for the calls, and ``after``, the event that leads
        to the calls, such as "its start".
        """
        count = self.limits.calls if count is None else count
        seconds = self.patience if seconds is None else seconds
        found: list[ClientCall] = []

        def has_news(known: int) -> bool:
            found[:] = [call for call in self.kubelet.calls(since) if is_wanted(call)]
            return len(found) > known or not self.process.is_running

        # Each call has the whole time, because a client queries at its own interval.
        known = 0
        while known < count:
            took = self.until(lambda: has_news(known), seconds)  # noqa: B023  # called at once
            self.check_running(after)
            if took is None:
                raise Failed(
                    f"no {what} within {seconds:g} s after {after}: the client runs, but hangs or "
                    f"has stopped querying{self.last_output()}"
                )
            known = len(found)
        self.step(f"{counted(known, 'call')} after {after}")
        return list(found)

    def wait_answered(self, after: str, since: int, count: int = 1) -> None:
        """Wait for ``count`` successful calls after the mark ``since``. Raises Failed like
        ``wait_calls``.

        If the client has ever called List, only its List calls count. A second List call shows that
        the client has processed the response to the first.
        """
        lists = any(call.rpc == "List" for call in self.kubelet.calls())

        def is_wanted(call: ClientCall) -> bool:
            return call.code == "OK" and (call.rpc == "List" or not lists)

        self.wait_calls(after, count, since=since, is_wanted=is_wanted, what="answered call")

    @property
    def interval(self) -> float | None:
        """Seconds between the client's queries; None if the client has not yet made the same call
        three times.

        It is the time from the second to the third of these three calls. The first call may be only
        a test, so the second call may follow at once.
        """
        times = self._equal_calls(3)
        return times[2] - times[1] if times else None

    def _equal_calls(self, count: int) -> list[float]:
        """Return the times of ``count`` calls with the same version, method and request.

        If several calls were repeated so often, choose the call that reached ``count`` first.
        Return ``[]`` if no call was repeated so often.
        """
        times: dict[tuple[str, str, bytes], list[float]] = {}
        for call in self.kubelet.calls():
            # A call that has not ended may not have its request yet.
            if call.code is not None:
                equal = times.setdefault((call.version, call.rpc, call.request), [])
                equal.append(call.time)
                if len(equal) == count:
                    return equal
        return []

    def check_running(self, after: str) -> None:
        """Raise Failed if the client has exited. The error text contains the argument ``after``,
        the name of the latest event, such as "its start"."""
        if not self.process.is_running:
            raise Failed(f"the client exited after {after}: {self.process.exit_text()}")

    def rate(self, since: int, begin: float, scrapes: int) -> tuple[float, int]:
        """Return the client's calls per second since the monotonic time ``begin``, and the number
        of these calls.

        ``since`` is the mark at ``begin``, and ``scrapes`` the property ``scrapes`` at ``begin``.
        The number includes all calls. The rate leaves out ``calls_per_scrape`` calls for each read
        of the metrics page.
        """
        count = self.kubelet.mark() - since
        free = (self.scrapes - scrapes) * self.limits.calls_per_scrape
        return max(0, count - free) / (time.monotonic() - begin), count

    @property
    def scrapes(self) -> int:
        """Number of times that the metrics page was read."""
        return 0 if self.scraper is None else self.scraper.count

    def need_page(self) -> Scraper:
        """Return the reader of the metrics page. Raises Skipped without ``--metrics``."""
        if self.scraper is None:
            raise Skipped("needs --metrics URL")
        return self.scraper

    def last_output(self) -> str:
        """Return a text to append to an error: the last line that the client has printed. Empty if
        the client has printed nothing."""
        lines = [line for line in self.process.output() if line.strip()]
        return f"; it printed: {printable(lines[-1].strip())[:200]}" if lines else ""

    # -- for the report ----------------------------------------------------------------

    def lines(self) -> tuple[Line, ...]:
        """Return the steps of the suite and the calls of the client, sorted by time."""
        calls = [
            Line(call.time - self._began, "call", printable(str(call)))
            for call in self.kubelet.calls()
        ]
        lines = sorted([*self._steps, *calls], key=lambda line: line.time)
        # Folded first: otherwise the equal calls of a busy loop would replace all other lines.
        return tuple(_folded(lines))[-_TIMELINE_LINES:]

    def output(self) -> tuple[str, ...]:
        """Return the last lines that the client has printed, at most 50."""
        lines = without_registers(self.process.output())
        return tuple(printable(line) for line in lines[-50:])


def _folded(lines: list[Line]) -> Iterator[Line]:
    """Replace consecutive equal lines by the first line and the number of further lines."""
    for _, group in groupby(lines, key=lambda line: (line.source, line.text)):
        first, *others = group
        yield first
        if others:
            yield attrs.evolve(others[-1], text=f"{len(others)} more like this")
