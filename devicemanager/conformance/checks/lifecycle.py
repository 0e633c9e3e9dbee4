"""L: the plugin's process: how it ends, and what it uses."""

from __future__ import annotations

import re
import signal

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.outcomes import Failed, Scene, Severity, Skipped, Warned
from devicemanager.conformance.registry import check
from devicemanager.conformance.scarcity import scarce, scarce_fault

_WANT = re.compile(r"inotify|watch|too many open files|emfile", re.IGNORECASE)
"""What a plugin says that has no inotify instance."""

_MANY_INSTANCES = 128
"""The kernel's own limit for a user."""

MUST, SHOULD, INFO, OWN = Severity.MUST, Severity.SHOULD, Severity.INFO, Scene.OWN


@check(
    "L01",
    MUST,
    "ends on SIGTERM and SIGINT",
    does="sends SIGTERM, and SIGINT to another instance",
    expects="the end within stop_seconds (a warning for an exit status other than 0)",
    production="slow drains, and SIGKILL at the end of each",
    links="https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination",
    scene=OWN,
)
def l01(trial: CheckRun) -> str:
    trial.start()
    told = []
    for number in (signal.SIGTERM, signal.SIGINT):
        if number == signal.SIGINT:
            trial.relaunch("its start")
        status, took = _ended_by(trial, number)
        told.append(f"{number.name} {took:.2f} s")
        if status != 0:
            how = trial.exit_text()
            raise Warned(f"{how} after {number.name}, {took:.2f} s")
    return ", ".join(told)


@check(
    "L02",
    MUST,
    "removes its socket",
    does="ends the plugin by SIGTERM",
    expects="no socket of its own is left in the plugin directory",
    production="kubelet and tools dial dead files",
    links="WATCHER",
    scene=OWN,
)
def l02(trial: CheckRun) -> None:
    trial.start()
    own = {resource: trial.endpoint(resource) for resource in trial.resources}
    _end(trial)
    for path in own.values():
        if path.is_socket():
            raise Failed(f"{path.name} is still there")


@check(
    "L03",
    MUST,
    "leaves the files of others",
    does="puts files and sockets of others into the plugin directory, starts and ends the plugin, "
    "and restarts the kubelet",
    expects="kubelet.sock, the checkpoint and all files of others are as they were",
    production="other plugins lose their sockets",
    links="rdma#319, WATCHER",
    scene=OWN,
)
def l03(trial: CheckRun) -> None:
    trial.start_kubelet()
    directory = trial.kubelet.plugin_dir
    trial.leave_files(directory)
    before = trial.files_of_others(directory)
    trial.relaunch("its start")
    _end(trial)
    after = trial.files_of_others(directory)
    for name, identity in before.items():
        if name not in after:
            raise Failed(f"{name} was removed")
        if after[name] != identity:
            raise Failed(f"{name} was replaced or changed")


@check(
    "L04",
    MUST,
    "uses no more with each restart",
    does="restarts the kubelet as many times as the limit restarts says",
    expects="at most extra_descriptors, extra_threads and extra_memory_share (or bytes) more "
    "than after warm_restarts, and no listening socket more",
    production="descriptors run out after weeks",
    links="rdma#51",
    scene=OWN,
)
def l04(trial: CheckRun) -> str:
    trial.start()
    limits = trial.limits
    for number in range(1, limits.warm_restarts + 1):
        trial.restart_and_wait(number)
    if trial.process.starts > 1:
        raise Skipped("the plugin ends with the kubelet, so nothing can pile up")
    trial.settle(0.5)
    before = trial.usage()
    for number in range(1, limits.restarts + 1):
        trial.restart_and_wait(limits.warm_restarts + number)
    now = before

    def fits() -> bool:
        nonlocal now
        now = trial.usage()
        return (
            now.descriptors <= before.descriptors + limits.extra_descriptors
            and now.threads <= before.threads + limits.extra_threads
            and now.unix_listeners <= before.unix_listeners
            and not trial.has_grown(before.memory, now.memory)
        )

    # Connections of the last restart may still be closing.
    if trial.until(fits, limits.stream_end_seconds) is None:
        raise Failed(f"after {limits.restarts} restarts: {now}; before: {before}")
    return f"{now}"


@check(
    "L05",
    SHOULD,
    "is quiet when idle",
    does="leaves the plugin alone for idle_seconds",
    expects="at most idle_cpu_share of a core",
    production="noise on every node",
    scene=Scene.IDLE,
)
def l05(trial: CheckRun) -> str:
    share = trial.idle_cpu_share
    if share > trial.limits.idle_cpu_share:
        raise Failed(f"it used {share:.1%} of a core")
    return f"{share:.2%} of a core"


@check(
    "L06",
    SHOULD,
    "uses no more with each allocation",
    does="allocates as often as the limit allocations says, twice, with as many changes of a "
    "device as the limit changes says in between, if there are hooks",
    expects="memory after the second round within extra_memory_share of that after the first",
    production="killed for want of memory",
    scene=OWN,
)
def l06(trial: CheckRun) -> str:
    trial.start()
    ids = trial.healthy_ids()
    memory = []
    with trial.client() as client:
        for _ in range(2):
            for number in range(trial.limits.allocations):
                try:
                    client.allocate([ids[number % len(ids)]])
                except CallFailed as error:
                    raise Failed(f"allocation {number + 1}: {error}") from None
            _change_often(trial, ids[0])
            memory.append(trial.usage().memory)
    growth = memory[1] / memory[0] - 1
    if trial.has_grown(*memory):
        raise Failed(f"memory grew by {growth:.0%} with {trial.limits.allocations} allocations")
    return f"memory {growth:+.1%}"


def _change_often(trial: CheckRun, id_: str) -> None:
    if trial.subject.has("break-device") and trial.subject.has("mend-device"):
        for _ in range(trial.limits.changes // 2):
            trial.broken(id_)
            trial.mended(id_)


@check(
    "L07",
    SHOULD,
    "spares inotify, and bears its want",
    does="counts the inotify instances of the plugin; starts it in a user namespace that has none "
    "to give, and restarts the kubelet",
    expects="at most inotify_instances; without any the plugin is there and comes back all the "
    "same, or ends with another status than 0 and says why",
    production='"failed to create FS watcher: too many open files"',
    links="gpu-operator#441, intel#2075",
    scene=OWN,
)
def l07(trial: CheckRun) -> str:
    trial.start()
    count = trial.usage().inotify
    if count > trial.limits.inotify_instances:
        raise Failed(f"{count} inotify instances")
    told = f"{count} inotify instances"
    if fault := scarce_fault():
        raise Skipped(f"{told}; what it does without cannot be seen here: {fault}")
    trial.process.stop()
    try:
        return f"{told}; without any {_without_inotify(trial)}"
    except Failed:
        trial.process.stop()
        if not _lives(trial, _MANY_INSTANCES):
            raise Skipped(f"{told}; in a user namespace it does no better with inotify") from None
        raise


def _without_inotify(trial: CheckRun) -> str:
    trial.step("no inotify instance is left")
    if _comes_up(trial, 0):
        try:
            _, took = trial.restart_and_wait(1)
            return f"back after {took:.2f} s"
        except Failed as failed:
            if not trial.has_stopped:
                raise Failed(f"without inotify: {failed}") from None
    if not trial.has_stopped:
        raise Failed("without inotify it neither registered nor ended")
    return _says_why(trial)


def _lives(trial: CheckRun, instances: int) -> bool:
    """Whether it comes up, and back after a restart."""
    try:
        return _comes_up(trial, instances) and bool(trial.restart_and_wait(1))
    except Failed:
        return False


def _comes_up(trial: CheckRun, instances: int) -> bool:
    since = trial.kubelet.mark()
    trial.launch(*scarce(instances))
    trial.until(
        lambda: trial.has_stopped or trial.is_registered(since, trial.resources),
        trial.limits.start_seconds,
    )
    return not trial.has_stopped and trial.is_registered(since, trial.resources)


def _says_why(trial: CheckRun) -> str:
    said = [line for line in trial.output() if _WANT.search(line)]
    if trial.process.exit_status == 0:
        raise Failed("without inotify it ended with exit status 0")
    if not said:
        raise Failed(f"without inotify: {trial.exit_text()}, and not a word of inotify")
    return f"{trial.exit_text()}: {said[-1][:200]}"


@check(
    "L08",
    MUST,
    "speaks gRPC as others do",
    does="calls with :authority localhost, an unknown method, and a method of an unknown service",
    expects="an answer, and UNIMPLEMENTED twice",
    production="some clients fail",
    links="DM",
)
def l08(trial: CheckRun) -> None:
    with trial.client() as client:
        client.options()
        for method in ("/v1beta1.DevicePlugin/NoSuchMethod", "/v9.NoSuchService/Call"):
            try:
                client.raw(method, b"", trial.limits.allocate_seconds)
            except CallFailed as error:
                if error.code != "UNIMPLEMENTED":
                    raise Failed(f"{method}: {error}") from None
            else:
                raise Failed(f"{method} was answered")
    trial.check_alive("unknown methods")


@check(
    "L09",
    INFO,
    "can be told the plugin directory",
    does="looks at how the suite has to run the plugin",
    expects="a flag or a variable for the directory",
    production="a hard-coded directory is a barrier for tests and for other roots of the kubelet",
    links="k/k#120626",
)
def l09(trial: CheckRun) -> str:
    if trial.subject.at_node_paths:
        raise Warned(
            "it was run in a private mount namespace, with the directory at its fixed path"
        )
    return "the directory can be chosen"


@check(
    "L10",
    INFO,
    "is known by its ports and its log",
    does="looks at the listening TCP ports of the plugin, and counts the lines that it printed in "
    "idle_seconds",
    expects="nothing in particular",
    production="ports that are not expected, and logs that grow",
    scene=Scene.IDLE,
)
def l10(trial: CheckRun) -> str:
    ports = trial.listening_ports()
    rate = len(trial.output()) * 60 / trial.limits.idle_seconds
    told = f"listens on {', '.join(ports)}" if ports else "listens on no TCP port"
    return f"{told}; {rate:.0f} lines a minute when idle"


@check(
    "L11",
    SHOULD,
    "says why it cannot start",
    does="starts the plugin on what cannot work: with the hook misconfigure, what that leaves; "
    "without it, a file where the plugin directory should be, and no kubelet",
    expects="an end with another status than 0 and a line that says why; without the hook, the "
    "line will do",
    production="a plugin that is idle without a word",
    scene=OWN,
    unregistered=True,
)
def l11(trial: CheckRun) -> str:
    own = trial.subject.has("misconfigure")
    if own:
        trial.start_kubelet()
    else:
        trial.step("put a file in place of the plugin directory")
        trial.kubelet.plugin_dir.write_text("no directory")
    process = trial.launch(hook="misconfigure" if own else "")
    took = trial.until(lambda: not process.is_running, trial.limits.stop_seconds)
    said = trial.output()
    if took is None:
        if said and not own:
            return f"it runs on, and says: {said[-1][:200]}"
        raise Failed("it runs on" if own else "it neither ended nor said anything")
    if process.exit_status == 0:
        raise Failed("it ended with exit status 0")
    if not said:
        raise Failed(f"{trial.exit_text()}, without a word")
    return f"{trial.exit_text()}: {said[-1][:200]}"


def _ended_by(trial: CheckRun, number: signal.Signals) -> tuple[int | None, float]:
    """Send the signal and wait for the end. Raises Failed."""
    process = trial.process
    trial.step(number.name)
    process.stay_down()
    process.send_signal(number)
    took = trial.until(lambda: not process.is_running, trial.limits.stop_seconds)
    if took is None:
        raise Failed(f"it runs on {trial.limits.stop_seconds:g} s after {number.name}")
    return process.exit_status, took


def _end(trial: CheckRun) -> None:
    """End it, for a check of something else. Raises Skipped if it does not end."""
    try:
        _ended_by(trial, signal.SIGTERM)
    except Failed as failed:
        raise Skipped(f"{failed}: see L01") from None
