"""W: what a plugin says of its devices, and when."""

from __future__ import annotations

import re
import signal
import unicodedata
from functools import partial

from devicemanager.conformance.check_run import EVER, CheckRun, parsed_list
from devicemanager.conformance.outcomes import Failed, Scene, Severity, Skipped, Warned
from devicemanager.conformance.registry import check

MUST, SHOULD = Severity.MUST, Severity.SHOULD
_LONGEST_ID = 63


@check(
    "W01",
    MUST,
    "sends its first list at once",
    does="opens ListAndWatch",
    expects="a list, even an empty one, within start_seconds (a warning after "
    "first_list_warn_seconds)",
    production="the node stays at 0 until then; pods are rejected after a reboot",
    links="DM, k/k#109595",
)
def w01(trial: CheckRun) -> str:
    longest = 0.0
    for resource in trial.resources:
        with trial.client(resource) as client, client.watch() as stream:
            took = trial.timed(partial(trial.first_list, stream, resource), "ListAndWatch")
        longest = max(longest, took)
    if longest > trial.limits.first_list_warn_seconds:
        raise Warned(f"the first list came after {longest:.1f} s")
    return f"{longest:.3f} s"


@check(
    "W02",
    MUST,
    "keeps its list stream open",
    does="leaves the plugin alone for idle_seconds",
    expects="the list streams stay open",
    production="the kubelet marks all devices unhealthy and never asks again",
    links="DM, k/k#92958",
    scene=Scene.IDLE,
)
def w02(trial: CheckRun) -> None:
    for resource in trial.resources:
        if trial.ended_streams(resource) or not trial.is_serving(resource):
            raise Failed(f"the plugin ended the list stream of {resource}")


@check(
    "W03",
    MUST,
    "gives each device an id of its own",
    does="looks at every list",
    expects="ids that are not empty, and unique in each list",
    production="duplicates become one device: the capacity is too low",
    links="PROTO, DM",
)
def w03(trial: CheckRun) -> None:
    for resource in trial.resources:
        for call in trial.lists(resource, EVER):
            ids = [device.ID for device in parsed_list(call).devices]
            if "" in ids:
                raise Failed(f"{resource}: a device has an empty id")
            twice = sorted({id_ for id_ in ids if ids.count(id_) > 1}) if len(ids) < 1000 else []
            if len(set(ids)) < len(ids):
                raise Failed(f"{resource}: {twice[0] if twice else 'a device'} is listed twice")


@check(
    "W04",
    MUST,
    "knows two kinds of health",
    does="looks at every list",
    expects="health is Healthy or Unhealthy, exactly",
    production="the kubelet takes any other text for unhealthy",
    links="PROTO, DM",
)
def w04(trial: CheckRun) -> None:
    for resource in trial.resources:
        for call in trial.lists(resource, EVER):
            for device in parsed_list(call).devices:
                if device.health not in ("Healthy", "Unhealthy"):
                    raise Failed(f"{resource}: {device.ID} is {device.health!r}")


@check(
    "W05",
    MUST,
    "has ids that travel",
    does="looks at the ids",
    expects=f"at most {_LONGEST_ID} characters; no control characters (a warning for commas, "
    "spaces, and ids of slashes alone)",
    production="ids travel in lists of the environment, in file names and labels, and the kubelet "
    "checks nothing",
    links="PROTO",
)
def w05(trial: CheckRun) -> None:
    odd = None
    for resource in trial.resources:
        for device in trial.devices(resource):
            if len(device.ID) > _LONGEST_ID:
                raise Failed(f"{resource}: {device.ID[:40]}... has {len(device.ID)} characters")
            if any(unicodedata.category(each) == "Cc" for each in device.ID):
                raise Failed(f"{resource}: {device.ID!r} has control characters")
            if re.search(r"[,\s]", device.ID) or not device.ID.strip("/"):
                odd = odd or f"{resource}: {device.ID!r} has a comma or a space, or is all slashes"
    if odd is not None:
        raise Warned(odd)


@check(
    "W06",
    MUST,
    "sends the whole list each time",
    does="breaks a device and mends it",
    expects="every list names all devices, not the changed one alone",
    production="all other devices vanish from the node",
    links="DM",
    scene=Scene.OWN,
    hooks=("break-device", "mend-device"),
)
def w06(trial: CheckRun) -> None:
    trial.start()
    before = {device.ID for device in trial.devices()}
    if len(before) < 2:
        raise Skipped("needs 2 devices")
    id_ = trial.healthy_ids()[0]
    since = trial.kubelet.mark()
    trial.broken(id_)
    trial.mended(id_)
    for call in trial.lists(trial.resource, since):
        missing = before - {device.ID for device in parsed_list(call).devices} - {id_}
        if missing:
            raise Failed(f"a list lacks {min(missing)}, which had not changed")


@check(
    "W07",
    MUST,
    "tells of a broken device",
    does="runs the hook break-device",
    expects="the device is Unhealthy or gone within refresh_seconds",
    production="pods land on dead hardware",
    links="DOC",
    scene=Scene.OWN,
    hooks=("break-device",),
)
def w07(trial: CheckRun) -> str:
    trial.start()
    id_ = trial.healthy_ids()[0]
    return f"told after {trial.break_device(id_):.2f} s"


@check(
    "W08",
    SHOULD,
    "tells of a mended device",
    does="breaks a device and mends it, twice",
    expects="the device is Healthy again within refresh_seconds each time, without a restart",
    production="the capacity shrinks for ever",
    links="nv#1014, nv#1211, ascend#129, intel#2082",
    scene=Scene.OWN,
    hooks=("break-device", "mend-device"),
)
def w08(trial: CheckRun) -> str:
    trial.start()
    id_ = trial.healthy_ids()[0]
    trial.broken(id_)
    longest = trial.mend_device(id_)
    again = " for the second time"
    trial.break_device(id_, again)
    longest = max(longest, trial.mend_device(id_, again))
    return f"told after {longest:.2f} s at most"


@check(
    "W09",
    SHOULD,
    "keeps a lost device in its list",
    does="allocates a device and breaks it",
    expects="it is listed as Unhealthy, rather than dropped",
    production="a pod's status calls a device healthy that has disappeared",
    links="DM",
    scene=Scene.OWN,
    hooks=("break-device",),
)
def w09(trial: CheckRun) -> None:
    trial.start()
    id_ = trial.healthy_ids()[0]
    with trial.client() as client:
        client.allocate([id_])
    trial.broken(id_)
    if id_ not in {device.ID for device in trial.devices()}:
        raise Failed(f"{id_} was dropped from the list while it was allocated")


@check(
    "W10",
    MUST,
    "sends lists that the kubelet can read",
    does="measures the lists",
    expects="less than list_bytes (a warning from list_warn_bytes)",
    production='"received message larger than max (... vs. 4194304)", and 0 devices',
    links="k/k#109304, k/k#127049, gpushare#156, vgpu#99",
)
def w10(trial: CheckRun) -> str:
    largest = max(
        len(call.response_bytes or b"")
        for resource in trial.resources
        for call in trial.lists(resource, EVER)
    )
    if largest >= trial.limits.list_bytes:
        raise Failed(f"a list has {largest} bytes")
    if largest >= trial.limits.list_warn_bytes:
        raise Warned(f"a list has {largest} bytes, the kubelet's limit is 4194304")
    return f"{largest} bytes"


@check(
    "W11",
    MUST,
    "serves two list streams",
    does="opens a second ListAndWatch, as an old and a new kubelet would, and closes it",
    expects="both get the first list; closing one does not hurt the other",
    production="a handler that ends takes the server with it",
    links="DM",
    scene=Scene.OWN,
)
def w11(trial: CheckRun) -> None:
    trial.start()
    for resource in trial.resources:
        with trial.client(resource) as client:
            with client.watch() as stream:
                trial.first_list(stream)
            trial.settle()
            if trial.ended_streams(resource):
                raise Failed(f"the kubelet's stream of {resource} ended with the second one")
            with client.watch() as stream:
                trial.first_list(stream, "a third stream")


@check(
    "W12",
    SHOULD,
    "is silent when nothing changes",
    does="leaves the plugin alone for idle_seconds",
    expects="at most messages_per_minute lists",
    production="the kubelet writes its checkpoint with each",
    links="DM",
    scene=Scene.IDLE,
)
def w12(trial: CheckRun) -> str:
    most = 0
    for resource in trial.resources:
        # The first list of a stream is owed.
        unasked = [call for call in trial.lists(resource) if call.stream_message != 1]
        most = max(most, len(unasked))
    allowed = max(1.0, trial.limits.messages_per_minute * trial.limits.idle_seconds / 60)
    if most > allowed:
        raise Failed(f"{most} lists in {trial.limits.idle_seconds:g} s, though nothing changed")
    return f"{most} lists in {trial.limits.idle_seconds:g} s"


@check(
    "W13",
    SHOULD,
    "bears a reader that does not read",
    does="opens a stream and reads nothing of it, while a device changes as often "
    "as the limit changes says",
    expects="memory within extra_memory_share; the next reads give the newest state",
    production="lists queue up in the plugin",
    links="DM",
    scene=Scene.OWN,
    hooks=("break-device", "mend-device"),
)
def w13(trial: CheckRun) -> str:
    trial.start()
    id_ = trial.healthy_ids()[0]
    with trial.client() as client, client.watch() as stream:
        trial.first_list(stream)
        before = trial.usage().memory
        for number in range(trial.limits.changes):
            trial.hook("mend-device" if number % 2 else "break-device", id_)
        trial.settle()
        now = trial.usage().memory
        growth = now / before - 1
        if trial.has_grown(before, now):
            raise Failed(f"memory grew by {growth:.0%}")
        with client.watch() as fresh:
            trial.first_list(fresh, "a third stream")
    return f"memory {growth:+.1%}"


@check(
    "W14",
    MUST,
    "bears to have no devices",
    does="removes all devices, then adds one",
    expects="an empty list, no end; the device that is added appears within refresh_seconds",
    production="the plugin waits for ever after a race at boot",
    links="nv#414",
    scene=Scene.OWN,
    hooks=("remove-device", "add-device"),
)
def w14(trial: CheckRun) -> None:
    trial.start()
    for device in trial.devices():
        trial.hook("remove-device", device.ID)
    seconds = trial.limits.refresh_seconds
    if trial.until(lambda: not trial.devices() or not trial.process.is_running, seconds) is None:
        raise Failed(f"{len(trial.devices())} devices are still listed after all were removed")
    if trial.has_ended:
        raise Failed(f"it ended without devices: {trial.exit_text()}")
    trial.hook("add-device")
    if trial.until(lambda: bool(trial.devices()), seconds) is None:
        raise Failed("a device that was added does not appear")


@check(
    "W15",
    MUST,
    "ends the handler of a stream that has ended",
    does="opens and cancels list streams, as many as the limit says; counts threads and "
    "descriptors, and of a Go program the goroutines in ListAndWatch (by SIGQUIT)",
    expects="no more than before within stream_end_seconds",
    production="a leak with each restart of the kubelet",
    links="rdma#51",
    scene=Scene.OWN,
)
def w15(trial: CheckRun) -> str:
    trial.start()
    with trial.client() as client:
        with client.watch() as stream:
            trial.first_list(stream)
        trial.settle(0.2)
        before = trial.usage()
        for _ in range(trial.limits.streams):
            with client.watch() as stream:
                trial.first_list(stream)

    def gone() -> bool:
        now = trial.usage()
        return (
            now.threads <= before.threads + trial.limits.extra_threads
            and now.descriptors <= before.descriptors + trial.limits.extra_descriptors
        )

    if trial.until(gone, trial.limits.stream_end_seconds) is None:
        raise Failed(f"after {trial.limits.streams} streams: {trial.usage()}; before: {before}")
    handlers = _handlers(trial)
    if handlers is None:
        return "threads and descriptors as before"
    if handlers > len(trial.resources):
        raise Failed(
            f"{handlers} goroutines are in ListAndWatch, with {len(trial.resources)} streams open"
        )
    return f"{handlers} goroutines in ListAndWatch"


def _handlers(trial: CheckRun) -> int | None:
    """Ends the plugin. None if it is no Go program."""
    from devicemanager.conformance import process_checks

    if not process_checks.is_go(trial.process.pid):
        return None

    def count() -> int | None:
        return process_checks.goroutines_in(list(trial.process.output()), "ListAndWatch")

    trial.settle()
    trial.step("SIGQUIT")
    trial.process.send_signal(signal.SIGQUIT)
    trial.until(lambda: not trial.process.is_running, trial.limits.stop_seconds)
    return count()
