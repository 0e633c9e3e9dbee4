"""Checks of family W: the contents of device lists, and when plugins send them."""

from __future__ import annotations

import contextlib
import re
import signal
import unicodedata
from collections import Counter
from collections.abc import Callable

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks.steps import (
    NO_HOT_PLUG,
    REMOVED_STAY,
    assume_allocates,
    assume_list,
    assume_new_list,
    check_sent,
)
from devicemanager.conformance.client import CallFailed, ListStream
from devicemanager.conformance.observations import EVER, parsed_list
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.conformance.registry import builtin
from devicemanager.core.printable import counted

_LONGEST_ID = 63


@builtin
def w01(run: CheckRun) -> str:
    # The kubelet's stream is the first one. W11 checks others.
    longest = max(run.observed.lists(name, EVER)[0].duration for name in run.resources)
    if longest > run.limits.first_list_warn_seconds:
        raise Warned(
            f"the first device list came after {longest:.1f} s, more than "
            f"{run.limits.first_list_warn_seconds:g} s"
        )
    return f"{longest:.3f} s"


@builtin
def w02(run: CheckRun) -> None:
    for resource in run.resources:
        if run.observed.ended_streams(resource) or not run.observed.is_serving(resource):
            raise Failed(f"the plugin ended the ListAndWatch stream of {resource}")


@builtin
def w03(run: CheckRun) -> None:
    for resource, message in run.every_list():
        ids = [device.ID for device in message.devices]
        if "" in ids:
            raise Failed(f"{resource}: a device has an empty ID")
        twice = [id_ for id_, count in Counter(ids).items() if count > 1]
        if twice:
            raise Failed(f"{resource}: a device list contains {min(twice)} twice")


@builtin
def w04(run: CheckRun) -> None:
    for resource, message in run.every_list():
        for device in message.devices:
            if device.health not in ("Healthy", "Unhealthy"):
                raise Failed(
                    f"{resource}: invalid health {device.health!r} of device {device.ID}: expected "
                    "Healthy or Unhealthy"
                )


@builtin
def w05(run: CheckRun) -> None:
    odd = ""
    for resource, device in run.every_device():
        id_ = device.ID
        if len(id_) > _LONGEST_ID:
            raise Failed(
                f"{resource}: device ID {id_[:40]}... has {len(id_)} characters, limit "
                f"{_LONGEST_ID}"
            )
        if any(unicodedata.category(character) == "Cc" for character in id_):
            raise Failed(f"{resource}: device ID {id_!r} contains control characters")
        # Only a warning: such IDs work, except in a comma-separated variable.
        if re.search(r"[,\s]", id_) or not id_.strip("/"):
            odd = odd or (
                f"{resource}: device ID {id_!r} contains a comma or a space, or only slashes"
            )
    if odd:
        raise Warned(odd)


@builtin
def w06(run: CheckRun) -> None:
    run.start()
    whole = {device.ID for device in run.devices()}
    if len(whole) < 2:
        raise Skipped(f"needs 2 devices, the plugin has {len(whole) or 'none'}")
    id_ = run.healthy_ids()[0]
    since = run.kubelet.mark()
    for change in (run.assume_broken, run.assume_recovered):
        change(id_)
        # The first list of a stream is whole. It shows which devices have failed together, for
        # example several IDs on one card: they may be missing in the lists of this change.
        run.settle()
        whole &= {device.ID for device in assume_new_list(run).devices}
    # The changed device may be missing, too: that is one way to report it as broken.
    for call in run.observed.lists(run.resource, since):
        missing = whole - {device.ID for device in parsed_list(call).devices} - {id_}
        if missing:
            raise Failed(
                f"device {min(missing)} has not changed, but a device list lacks it after a change "
                f"of {id_}"
            )


@builtin
def w07(run: CheckRun) -> str:
    run.start()
    id_ = run.healthy_ids()[0]
    try:
        with run.verifying("W07"):
            return f"reported after {run.break_device(id_):.2f} s"
    except Failed:
        # Otherwise the device would stay broken, and later checks would lack it.
        run.hook("recover-device", id_)
        raise


@builtin
def w08(run: CheckRun) -> str:
    run.start()
    id_ = run.healthy_ids()[0]
    run.assume_broken(id_)
    with run.verifying("W08"):
        longest = run.recover_device(id_)
    # Test two changes: a real plugin stopped checking its devices after the second one.
    again = " for the second time"
    run.break_device(id_, again)
    longest = max(longest, run.recover_device(id_, again))
    return f"reported after at most {longest:.2f} s"


@builtin
def w09(run: CheckRun) -> None:
    run.start()
    id_ = run.healthy_ids()[0]
    with run.client() as client:
        assume_allocates(run, client)
        client.allocate([id_])
    run.assume_broken(id_)
    # If the plugin stops listing a device, the kubelet reports the device as Healthy in the pod
    # status (DM). So only Unhealthy shows that the pod has lost its device.
    if id_ not in {device.ID for device in run.devices()}:
        raise Failed(
            f"the plugin removed allocated device {id_} from its list, expected health Unhealthy"
        )


@builtin
def w10(run: CheckRun) -> str:
    largest = max(
        len(call.response_bytes or b"")
        for resource in run.resources
        for call in run.observed.lists(resource, EVER)
    )
    # gRPC receives messages of up to 4 MiB by default, and the kubelet does not raise this limit. A
    # larger list ends the stream, and the node has 0 devices.
    if largest >= run.limits.list_bytes:
        raise Failed(f"a device list has {largest} bytes, limit {run.limits.list_bytes}")
    if largest >= run.limits.list_warn_bytes:
        raise Warned(f"a device list has {largest} bytes, the kubelet's limit is 4194304")
    return f"{largest} bytes"


@builtin
def w11(run: CheckRun) -> None:
    run.start()
    # A plugin that ends its streams in any case does so without a second stream, too.
    run.settle()
    for resource in run.resources:
        if run.observed.ended_streams(resource):
            raise Skipped(f"the plugin ended the ListAndWatch stream of {resource}", cause="W02")
    for resource, client in run.clients():
        since = run.kubelet.mark()
        with client.watch() as stream, run.verifying("W11"):
            run.first_list(stream)
        # A plugin that closes all streams with the first one does so a moment later.
        run.settle()
        if run.observed.ended_streams(resource):
            ended = (
                f"the kubelet's ListAndWatch stream of {resource} ended when a second one closed"
            )
            if run.registers_again(since):
                raise Warned(f"{ended}; the plugin registered again")
            raise Failed(ended)
        run.new_list(resource, "a third stream")


@builtin
def w12(run: CheckRun) -> str:
    most = 0
    for resource in run.resources:
        # Each stream must begin with a list, so the first one does not count.
        lists = [call for call in run.observed.lists(resource) if call.stream_message != 1]
        most = max(most, len(lists))
    seen = f"{counted(most, 'device list')} in {run.limits.idle_seconds:g} s"
    if most > max(1.0, run.limits.messages_per_minute * run.limits.idle_seconds / 60):
        raise Failed(
            f"{seen} although no device changed, limit "
            f"{run.limits.messages_per_minute:g} per minute"
        )
    return seen


@builtin
def w13(run: CheckRun) -> str:
    run.start()
    id_ = run.healthy_ids()[0]
    # Afterwards, only the second stream can be the reason if a change is not reported.
    run.assume_broken(id_)
    run.assume_recovered(id_)
    with run.client() as client, client.watch() as stream:
        assume_list(run, stream)
        before = run.plugin.usage().memory
        # Wait for each change on the kubelet's stream: otherwise the plugin may combine changes,
        # or may not have seen all of them when the memory is measured.
        for number in run.series(run.limits.changes):
            change = run.recover_device if number % 2 else run.break_device
            try:
                change(id_, " while a second stream is open and not read")
            except Failed as failed:
                if _newest_health(run, stream, id_) == ("Healthy" if number % 2 else "Unhealthy"):
                    raise Skipped(
                        "the plugin sent a device list to the second stream instead of the "
                        "kubelet's: it sends each list to only one stream"
                    ) from None
                raise Failed(str(failed), cause="W08", symptom=_STALLED) from None
        run.settle()
        now = run.plugin.usage().memory
        growth = now / before - 1
        if not run.limits.allow_memory(before, now):
            raise Failed(
                f"the plugin's memory grew by {growth:.0%} during {number + 1} device changes"
            )
        with client.watch() as fresh:
            run.first_list(fresh, "a third stream")
    return f"memory {growth:+.1%}"


_STALLED = "the kubelet misses device changes while another stream is open and not read"


def _newest_health(run: CheckRun, stream: ListStream, id_: str) -> str:
    """Read all device lists that a stream has. Return the health of a device in the last list:
    Healthy or Unhealthy. A device that is not in the list counts as Unhealthy. Return an empty text
    if the stream has no list."""
    health = ""
    with contextlib.suppress(CallFailed):
        while True:
            devices = stream.next(run.limits.settle_seconds).devices
            newest = {each.ID: each.health for each in devices}
            health = "Healthy" if newest.get(id_) == "Healthy" else "Unhealthy"
    return health


@builtin
def w14(run: CheckRun) -> None:
    run.start()
    since = run.kubelet.mark()
    for device in run.devices():
        if device.health != "Unhealthy":
            run.hook("remove-device", device.ID)
    seconds = run.limits.refresh_seconds

    # A plugin with a fixed number of devices may list removed devices as unhealthy. W04 reports
    # values other than "Healthy" and "Unhealthy".
    def healthy() -> int:
        return sum(device.health != "Unhealthy" for device in run.devices())

    # Stop waiting if the plugin exits, to report the reason of the exit instead of a timeout.
    if run.until(lambda: not healthy() or not run.process.is_running, seconds) is None:
        check_sent(run, since, "remove-device", REMOVED_STAY)
        raise Failed(
            f"the device list still has {counted(healthy(), 'healthy device')} {seconds:g} s after "
            "all devices were removed",
            symptom=REMOVED_STAY,
        )
    if run.plugin.has_exited:
        raise Failed(
            f"the plugin exited when it had no devices: {run.plugin.exit_text()}",
            symptom="after a race at boot, the plugin exits and its pod restarts in a loop",
        )
    run.hook("add-device")
    if run.until(lambda: bool(healthy()) or run.plugin.has_exited, seconds) is None:
        raise Failed(
            "the plugin works without devices, but does not list a device that is added later: "
            f"no device list contains it within {seconds:g} s after add-device",
            symptom=NO_HOT_PLUG,
        )
    if run.plugin.has_exited:
        raise Failed(f"the plugin exited after add-device: {run.plugin.exit_text()}")


@builtin
def w15(run: CheckRun) -> str:
    run.start()
    _open_and_close(run, 1)
    run.settle(0.2)
    streams = _open_streams(run)
    now = run.plugin.usage()

    def has_grown() -> bool:
        return run.plugin.usage().has_more_handles(before, run.limits)

    # The first batches may fill a thread pool, which is not a leak: a plugin leaks if the last
    # batch still adds to its resource use.
    for batch in range(1, run.limits.stream_batches + 1):
        before = now
        _open_and_close(run, run.limits.streams)
        if _open_streams(run) > streams:
            _close_older_streams(run)
        is_last = batch == run.limits.stream_batches
        seconds = run.limits.stream_end_seconds
        seconds = seconds if is_last else min(seconds, _BATCH_SECONDS)
        if run.until(lambda: not has_grown(), seconds) is not None:
            break
        now = run.plugin.usage()
    else:
        raise Failed(
            f"{run.limits.stream_batches} batches of {run.limits.streams} streams were opened and "
            f"closed; resource use after the last one: {now}; before it: {before}"
        )
    return _check_handlers(run)


_BATCH_SECONDS = 2.0
"""Longest wait after each batch of streams except the last batch."""


def _open_and_close(run: CheckRun, count: int) -> None:
    """Open and close ``count`` streams of the first resource, one after another."""
    for _ in range(count):
        assume_new_list(run)


def _open_streams(run: CheckRun) -> int:
    """Return the number of ListAndWatch streams that the kubelet has open, of all resources."""
    return sum(call.rpc == "ListAndWatch" for call in run.kubelet.calls.in_progress)


def _close_older_streams(run: CheckRun) -> None:
    """Restart the kubelet, so that it has only the connections of the latest registrations.

    A plugin may register again when any of its streams ends. The kubelet then keeps the connection
    of the earlier registration (quirk Q3). This connection is not a leak of the plugin. Raises
    Skipped if the plugin does not register again.
    """
    run.settle()
    with contextlib.suppress(Warned), run.assuming("K01"):
        run.restart_and_recover()
    run.settle(0.2)


def _check_handlers(run: CheckRun) -> str:
    """Compare the goroutines in ListAndWatch with the open streams. Return what was seen.

    Goroutines use neither threads nor descriptors, so only the stacks that the Go runtime prints on
    SIGABRT show a leak. SIGQUIT prints them, too, but many plugins catch it. The signal stops the
    plugin. Raises Failed.
    """
    from devicemanager.conformance import process_checks  # needs psutil

    if not process_checks.is_go(run.process.pid):
        return "threads and descriptors as before"
    # A handler may notice the end of its stream only when it next sends a list. So if there are too
    # many, try again with a longer wait.
    late = run.limits.stream_end_seconds
    waits: tuple[Callable[[], None], ...] = (
        run.settle,
        lambda: run.settle(late),
        lambda: _wait_sent(run),
    )
    for number, wait in enumerate(waits):
        if number:
            run.relaunch("its new start")
            _open_and_close(run, run.limits.streams)
        wait()
        open_streams = _open_streams(run)
        run.step("SIGABRT")
        run.process.stay_down()
        run.process.send_signal(signal.SIGABRT)
        run.until(lambda: not run.process.is_running, run.limits.stop_seconds)
        handlers = process_checks.goroutines_in(run.process.output(), "ListAndWatch")
        if handlers is None:
            return (
                "threads and descriptors as before; no stacks on SIGABRT, so no goroutines counted"
            )
        if handlers <= open_streams:
            return f"{counted(handlers, 'goroutine')} in ListAndWatch"
        left = handlers - open_streams
    raise Failed(
        f"{counted(left, 'ListAndWatch handler')} did not return after the end of the stream: the "
        f"plugin has {counted(left + open_streams, 'goroutine')} in ListAndWatch, and "
        f"{counted(open_streams, 'open stream')}"
    )


def _wait_sent(run: CheckRun) -> None:
    """Wait until the plugin sends a list again, up to ``resend_seconds``."""
    since = run.kubelet.mark()
    run.until(lambda: bool(run.observed.lists(run.resource, since)), run.limits.resend_seconds)
    run.settle()
