"""Functions of the checks of clients. ``checks.toml`` has what they require, do and expect.

The function of a check has its ID as name: ``c03`` for check C03. It gets a ``ClientRun`` whose
kubelet and client are not started. It returns a measurement, or raises ``Failed``, ``Warned`` or
``Skipped``.
"""

from __future__ import annotations

import time
from itertools import pairwise

import attrs

from devicemanager.conformance.clients import content
from devicemanager.conformance.clients.client_run import ClientRun
from devicemanager.conformance.clients.kubelet import ClientCall, respond
from devicemanager.conformance.clients.page import ABOUT_THE_PROGRAM, Samples, parsed
from devicemanager.conformance.clients.registry import client_check
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.core.printable import counted
from podresources import Method, Rejection

__all__: list[str] = []

_CODES = ("UNKNOWN", "UNAVAILABLE", "INTERNAL", "FAILED_PRECONDITION", "PERMISSION_DENIED")
_BY_CHECK = "by the conformance check"
"""End of the error texts that a check makes the kubelet return."""
_STEPS = 3
"""Number of consecutive steps that count as a leak if each step adds descriptors."""
_SAMPLES, _SAMPLE_SECONDS = 5, 0.05
"""Number of measurements of the client's resource use that are made in a row, and the pause in
seconds after each measurement."""
_RATE_LIMIT = "rejected by rate limit"
_TOO_LARGE = ("larger than max", "message length too large", "message too large")
"""Parts of the errors of gRPC libraries for a message over their limit."""
_OUTPUT_SECONDS = 2.0
"""Longest time until a line that the client has printed arrives here. On a busy machine, the line
can arrive after the client's next call."""


def _is_list(call: ClientCall) -> bool:
    return call.rpc == "List" and call.code == "OK"


# -- start and restarts ----------------------------------------------------------------


@client_check
def c01(run: ClientRun) -> str:
    # Not set up: that the client repeats a call is the subject of this check.
    run.start(is_set_up=False)
    seconds = run.limits.call_seconds
    # Two waits, because the limit applies to each of the two intervals.
    for count, what in ((2, "made no call twice"), (3, "made no call three times")):
        if not run.wait_repeated(count, seconds):
            raise Failed(
                f"the client has {what} within {seconds:g} s: it hangs or has stopped "
                f"querying (for a longer interval, set --limit call_seconds){run.last_output()}"
            )
    names = ", ".join(sorted({f"{call.version} {call.rpc}" for call in run.kubelet.calls()}))
    return f"{names}; {run.interval:.1f} s between equal calls"


@client_check
def c02(run: ClientRun) -> str:
    run.launch()
    run.step(f"serve nothing for {run.limits.away_seconds:g} s")
    run.until(lambda: not run.process.is_running, run.limits.away_seconds)
    run.check_running("its start without a kubelet")
    run.kubelet.start()
    since, begin = run.kubelet.mark(), time.monotonic()
    run.wait_calls("the start of the kubelet", 1, since=since)
    return f"a call after {time.monotonic() - begin:.1f} s"


@client_check
def c03(run: ClientRun) -> str:
    run.start()
    begin = time.monotonic()
    since = run.restart_kubelet(run.limits.away_seconds)
    try:
        run.wait_answered("a kubelet restart", since)
    except Failed as failed:
        if run.process.is_running:
            raise
        # A DaemonSet restarts the client, so it recovers after a pause.
        run.launch()
        run.wait_answered("a kubelet restart and its own", since)
        raise Warned(f"{failed}; the client recovers after it is started again") from None
    return f"a call after {time.monotonic() - begin:.1f} s"


@client_check
def c04(run: ClientRun) -> str:
    run.start()
    usages = []
    for number in range(run.limits.restarts):
        since = run.restart_kubelet()
        run.wait_answered(f"restart {number + 1}", since, 2)
        usages.append(_usage(run))
    _check_growth(run, usages, "restart")
    return f"after {counted(len(usages), 'restart')}: {usages[-1]}"


# -- contents --------------------------------------------------------------------------


def _survive(run: ClientRun, shown: content.Content, what: str) -> None:
    """Respond with ``shown``, and wait for calls that prove that the client still works."""
    since = run.show(shown, what)
    # The first call gets the content. Further calls show that the client has processed it.
    run.wait_answered(what, since, run.limits.calls)


def _survive_and_start(run: ClientRun, shown: content.Content, what: str) -> None:
    """Start the client on ordinary content, respond with ``shown``, and start the client again.

    Some clients read the allocatable resources only at their start.
    """
    run.start()
    _survive(run, shown, what)
    run.stop()
    since = run.kubelet.mark()
    run.launch()
    run.wait_calls(f"its start with {what}", 1, since=since, seconds=run.limits.start_seconds)
    run.wait_answered(f"its start with {what}", since, run.limits.calls)


@client_check
def c05(run: ClientRun) -> None:
    run.start()
    _survive(run, ((), content.empty_pods()[1]), "empty lists")
    _survive(run, content.empty_pods(), "pods without devices")
    _survive(run, content.ordinary(run.client.resources), "pods with devices again")


@client_check
def c06(run: ClientRun) -> str:
    run.start()
    what = f"a response of {run.limits.huge_bytes / (1 << 20):.0f} MiB"

    def rejections() -> list[str]:
        lines = run.process.output()
        return [each for each in lines if any(part in each.lower() for part in _TOO_LARGE)]

    try:
        _survive(run, content.huge(run.client.resources, run.limits.huge_bytes), what)
    finally:
        # Examine the output of a client that stops calling, too: it names the cause.
        if run.until(lambda: bool(rejections()), _OUTPUT_SECONDS) is not None:
            raise Failed(f"the client rejected {what}: {rejections()[0].strip()[-200:]}")
    return f"the client accepts {what}"


@client_check
def c07(run: ClientRun) -> None:
    _survive_and_start(run, content.on_nodes(run.client.resources), "unknown NUMA nodes")


@client_check
def c08(run: ClientRun) -> None:
    _survive_and_start(run, content.on_nodes(run.client.resources, (-1,)), "the NUMA node -1")


@client_check
def c09(run: ClientRun) -> None:
    shown = content.gone_resource(run.client.resources)
    _survive_and_start(run, shown, "devices that are not allocatable")


@client_check
def c10(run: ClientRun) -> None:
    _survive_and_start(run, content.claims_only(), "pods with claims only")


@client_check
def c11(run: ClientRun) -> str:
    run.start()
    shown = 0

    def replace(method: Method, request: bytes) -> bytes:
        nonlocal shown
        answer = method.answer(request)
        if method.kind == "list":
            # Replace the pods after the response, so that Get of a listed pod fails.
            shown += 10
            run.kubelet.show(content.ordinary(run.client.resources, first=shown))
        return answer

    since = run.kubelet.mark()
    run.step("replace all pods at each List")
    run.kubelet.respond = replace
    # The first List comes before the pods vanish. Only the calls after it show that the client has
    # survived.
    run.wait_answered("pods that vanish", since, run.limits.calls + 1)
    calls = run.kubelet.calls(since)
    missed = sum(call.rpc == "Get" and call.code == "UNKNOWN" for call in calls)
    found_no_pod = f"{counted(missed, 'call')} of Get found no pod"
    return found_no_pod if missed else "the client does not call Get"


# -- errors ----------------------------------------------------------------------------


@client_check
def c12(run: ClientRun) -> None:
    run.start()
    codes = list(_CODES)

    def fail(method: Method, request: bytes) -> bytes:
        if codes:
            code = codes.pop(0)
            raise Rejection(code, f"{code} {_BY_CHECK}")
        return respond(method, request)

    run.step(f"fail calls with {', '.join(_CODES)}")
    run.kubelet.respond = fail
    # All calls count: one that is in progress now may get the first code.
    run.wait_calls(
        "errors",
        len(_CODES),
        is_wanted=lambda call: _BY_CHECK in call.details,
        what="failed call",
    )
    run.wait_answered("errors", run.kubelet.mark())


def _fail_for_a_while(run: ClientRun, code: str, text: str) -> str:
    """Make all calls fail, and check how often the client calls. Return the rate as text."""

    def fail(method: Method, request: bytes) -> bytes:
        raise Rejection(code, text)

    since = run.kubelet.mark()
    run.step(f"fail all calls with {code}")
    run.kubelet.respond = fail
    run.wait_calls(f"the error {code}", 1, since=since)
    return _check_rate(run, run.limits.failed_calls_per_second, f"calls that fail with {code}")


def _check_rate(run: ClientRun, most: float, after: str) -> str:
    """Count calls for ``rate_seconds``. Raise Failed if there are more than ``most`` per second, or
    if the client exits. ``after`` names the situation in errors."""
    since, begin, scrapes = run.kubelet.mark(), time.monotonic(), run.scrapes
    run.until(lambda: not run.process.is_running, run.limits.rate_seconds)
    rate, count = run.rate(since, begin, scrapes)
    run.check_running(after)
    if rate > most:
        raise Failed(f"{rate:.1f} calls per second after {after}, more than {most:g}")
    return f"{counted(count, 'call')} in {run.limits.rate_seconds:g} s"


@client_check
def c13(run: ClientRun) -> str:
    run.start()
    return _fail_for_a_while(run, "UNAVAILABLE", f"unavailable {_BY_CHECK}")


@client_check
def c14(run: ClientRun) -> str:
    run.start()
    seen = _fail_for_a_while(run, "RESOURCE_EXHAUSTED", _RATE_LIMIT)
    run.kubelet.respond = respond
    run.wait_answered("the rate limit", run.kubelet.mark())
    return seen


@client_check
def c15(run: ClientRun) -> str:
    run.start()
    run.step("do not respond")
    run.kubelet.respond = run.kubelet.hang
    # All calls count: one that is in progress now may be the first without a response.
    [hung, *_] = run.wait_calls(
        "a kubelet that does not respond", 1, is_wanted=lambda call: call.hangs
    )

    def is_over() -> bool:
        return hung.ended is not None or not run.process.is_running

    run.until(is_over, run.limits.deadline_seconds)
    run.check_running("a call without a response")
    if hung.ended is None:
        raise Failed(
            f"the client still waits for {hung.rpc} after {run.limits.deadline_seconds:g} s: "
            "set a deadline for the call"
        )
    run.kubelet.respond = respond
    run.wait_answered("a call without a response", run.kubelet.mark())
    return f"cancelled after {hung.ended - hung.time:.1f} s"


@client_check
def c16(run: ClientRun) -> str:
    run.kubelet.versions = {"v1alpha1"}
    run.start(is_set_up=False)
    seen = _check_rate(run, run.limits.failed_calls_per_second, "a start with v1alpha1 only")
    run.wait_calls("a kubelet with v1alpha1 only", 1, since=run.kubelet.mark())
    used = {call.version for call in run.kubelet.calls() if call.code == "OK"}
    return f"{seen}; " + ("the client uses v1alpha1" if used else "the client needs v1")


@client_check
def c17(run: ClientRun) -> str:
    def only_list(method: Method, request: bytes) -> bytes:
        if method.kind == "list":
            return respond(method, request)
        raise Rejection("UNKNOWN", "PodResources API method disabled")

    run.kubelet.respond = only_list
    run.start(is_set_up=False)
    run.wait_calls("the start", run.limits.calls, is_wanted=_is_list, what="call of List")
    others = {call.rpc for call in run.kubelet.calls() if call.rpc != "List"}
    return (
        f"the client also calls {', '.join(sorted(others))}"
        if others
        else "the client calls only List"
    )


# -- the process -----------------------------------------------------------------------


@client_check
def c18(run: ClientRun) -> str:
    run.start()
    return _check_rate(run, run.limits.calls_per_second, "its start")


@attrs.frozen
class _Usage:
    """Connections, descriptors and threads of a client at one time."""

    connections: int
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return (
            f"{counted(self.connections, 'connection')}, "
            f"{counted(self.descriptors, 'descriptor')}, {counted(self.threads, 'thread')}"
        )


def _usage(run: ClientRun) -> _Usage:
    """Return the lowest numbers of several samples. After a restart, a client can have one more
    connection for a moment, until it closes the old connection."""
    try:
        from devicemanager.conformance import process_checks
    except ImportError:
        raise Skipped(
            "psutil is not installed: pip install 'kubelet-devicemanager[conformance]'"
        ) from None
    samples = []
    for _ in range(_SAMPLES):
        usage = process_checks.usage(run.process.pid)
        samples.append((run.kubelet.connections(), usage.descriptors, usage.threads))
        time.sleep(_SAMPLE_SECONDS)
    return _Usage(*map(min, zip(*samples, strict=True)))


def _check_growth(run: ClientRun, usages: list[_Usage], what: str) -> None:
    """Raise Failed if the last usage is much larger than the previous usage, or if descriptors grow
    in each step. Earlier growth is accepted: pools and caches fill at first."""
    before, last = usages[-2], usages[-1]
    # One more connection is accepted: a client may connect again before it closes the old one.
    grown = (
        last.connections > before.connections + 1
        or last.descriptors > before.descriptors + run.limits.extra_descriptors
        or last.threads > before.threads + run.limits.extra_threads
    )
    # Over only a few steps, descriptors can grow for other reasons.
    steady = len(usages) > _STEPS and all(
        one.descriptors < other.descriptors for one, other in pairwise(usages)
    )
    if grown or steady:
        raise Failed(
            f"resource use grows with each {what}: " + " -> ".join(str(each) for each in usages)
        )


@client_check
def c19(run: ClientRun) -> str:
    run.start()
    usages = []
    # Only the last two are compared: until the second one, pools and caches may still fill.
    for _ in range(3):
        run.wait_answered("its start", run.kubelet.mark(), run.limits.leak_calls)
        usages.append(_usage(run))
    _check_growth(run, usages, counted(run.limits.leak_calls, "call"))
    return str(usages[-1])


@client_check
def c20(run: ClientRun) -> str:
    run.start()
    begin = time.monotonic()
    run.step("send SIGTERM")
    if not run.process.terminate(run.limits.stop_seconds):
        raise Failed(f"the client still runs {run.limits.stop_seconds:g} s after SIGTERM")
    return f"{run.process.exit_text()} after {time.monotonic() - begin:.1f} s"


# -- the metrics page ------------------------------------------------------------------


def _samples(run: ClientRun, reads: int = 2) -> Samples:
    """Return the samples of the page after ``reads`` further reads. Raises Failed if the page
    cannot be read or parsed."""
    scraper = run.need_page()
    # A read in progress can still show the earlier state, so by default a second one follows.
    until = scraper.count + reads
    seconds = (run.limits.page_seconds + run.limits.scrape_seconds) * reads + 1
    run.until(lambda: scraper.count >= until, seconds)
    run.check_running("a read of its metrics page")
    page = scraper.last
    if page.error:
        raise Failed(f"cannot read {run.process.metrics}: {page.error}")
    return parsed(page.text)


@client_check
def c21(run: ClientRun) -> str:
    run.start()
    run.need_page()
    since = run.show(content.odd_ids(run.client.resources), "unusual device IDs")
    run.wait_answered("unusual device IDs", since, run.limits.calls)
    return counted(len(_samples(run)), "sample")


def _moving(pages: list[Samples]) -> set[str]:
    """Return the samples that differ between pages, without those about the client itself."""
    # Names of all pages: a sample that appears or disappears counts as different, too.
    names = {name for page in pages for name in page if not name.startswith(ABOUT_THE_PROGRAM)}
    return {name for name in names if len({page.get(name) for page in pages}) > 1}


def _wait_changed(run: ClientRun, quiet: list[Samples], after: str) -> str:
    """Wait until a sample changes that is equal in all ``quiet`` pages. Return a text with its
    name. Raises Failed after the timeout."""
    known, ignored = quiet[-1], _moving(quiet)
    changed: set[str] = set()
    deadline = time.monotonic() + max(run.patience, run.limits.call_seconds)
    while not changed and time.monotonic() < deadline:
        changed = _moving([known, _samples(run, 1)]) - ignored
    if not changed:
        raise Failed(
            f"the metrics page does not change within {run.limits.call_seconds:g} s after {after}"
        )
    return f"{counted(len(changed), 'sample')} changed after {after}, such as {min(changed)}"


def _quiet(run: ClientRun) -> list[Samples]:
    """Start the client, and return pages that it serves while the pods do not change."""
    run.wait_answered("its start", run.kubelet.mark(), run.limits.calls)
    return [_samples(run, 2) for _ in range(3)]


@client_check
def c22(run: ClientRun) -> str:
    run.start()
    run.need_page()
    quiet = _quiet(run)
    # Other pods, other devices, and another number of devices: some clients show only one of these.
    run.show(content.ordinary(run.client.resources, first=4, count=3), "other pods")
    return _wait_changed(run, quiet, "a change of the pods")


@client_check
def c23(run: ClientRun) -> str:
    run.start()
    run.need_page()
    quiet = _quiet(run)
    since = run.restart_kubelet()
    run.wait_answered("a kubelet restart", since, run.limits.calls)
    return _wait_changed(run, quiet, "a kubelet restart")
