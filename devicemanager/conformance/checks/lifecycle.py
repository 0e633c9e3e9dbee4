"""Checks of family L: how the plugin's process starts and exits, and which resources it uses."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks.steps import allocate_many, stop, stop_by
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.crash import crash_line, without_stacks
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.conformance.registry import builtin
from devicemanager.core.printable import counted, printable


@builtin
def l01(run: CheckRun) -> str:
    run.start()
    # Other checks stop the plugin only with SIGTERM.
    with run.verifying("L01"):
        terminated = stop_by(run, signal.SIGTERM)
    results = [_exited(run, signal.SIGTERM, terminated)]
    # Each signal needs a new instance of the plugin.
    run.relaunch("its start")
    results.append(_exited(run, signal.SIGINT, stop_by(run, signal.SIGINT)))
    return ", ".join(results)


def _exited(run: CheckRun, number: signal.Signals, took: float) -> str:
    """Return a text about an exit after a signal. Raises Warned for another status than 0."""
    if run.process.exit_status != 0:
        raise Warned(
            f"{run.plugin.exit_text()}, {took:.2f} s after {number.name}: expected exit status 0"
        )
    return f"{number.name} {took:.2f} s"


@builtin
def l02(run: CheckRun) -> None:
    run.start()
    # Find the sockets before the exit, because their names may contain the process ID.
    sockets = list(map(run.observed.socket, run.resources))
    stop(run)
    for path in sockets:
        if path.is_socket():
            raise Failed(f"the plugin's socket {path.name} still exists after its exit")


@builtin
def l03(run: CheckRun) -> None:
    run.start_kubelet()
    run.step("create a file and a socket in the plugin directory")
    # They stand for files of another plugin: the plugin must not change them at its start or exit.
    (run.kubelet.plugin_dir / "others.txt").write_text("not yours")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(run.kubelet.plugin_dir / "others.sock"))
    before = run.observed.other_files()
    run.relaunch("its start")
    stop(run)
    after = run.observed.other_files()
    for name, identity in before.items():
        if name not in after:
            raise Failed(f"the plugin removed {name}, which is not its file")
        if after[name] != identity:
            raise Failed(f"the plugin replaced or changed {name}, which is not its file")


@builtin
def l04(run: CheckRun) -> str:
    run.start()
    limits = run.limits
    # The first restarts load code and fill caches. The memory for this is not a leak.
    for number in range(1, limits.warm_restarts + 1):
        run.restart_and_wait(number)
    if run.process.starts > 1:
        raise Skipped("the plugin exits when the kubelet stops, so it cannot leak")
    run.settle(0.5)
    # The process is still the same one: a plugin that exits with the kubelet is skipped above.
    before = now = run.plugin.usage()
    for number in range(1, limits.restarts + 1):
        run.restart_and_wait(limits.warm_restarts + number)

    def is_back() -> bool:
        nonlocal now
        now = run.plugin.usage()
        return not now.has_leaked(before, limits)

    # Connections of the last restart may still be closing.
    if run.until(is_back, limits.stream_end_seconds) is None:
        restarts = counted(limits.restarts, "restart")
        raise Failed(f"resource use after {restarts}: {now}; before: {before}")
    return f"{now}"


@builtin
def l05(run: CheckRun) -> str:
    share = run.plugin.idle_cpu_share
    if share > run.limits.idle_cpu_share:
        raise Failed(
            f"the idle plugin used {share:.1%} of a core, limit {run.limits.idle_cpu_share:.1%}"
        )
    return f"{share:.2%} of a core"


@builtin
def l06(run: CheckRun) -> str:
    run.start()
    id_ = run.healthy_ids()[0]
    memory = []
    with run.client() as client:
        # Two rounds: the first round fills caches, and growth during the second round is a leak.
        for _ in range(2):
            with run.assuming("A07"):
                count = allocate_many(run, client)
            _change_often(run, id_)
            memory.append(run.plugin.usage().memory)
    growth = memory[1] / memory[0] - 1
    if not run.limits.allow_memory(*memory):
        allocations = counted(count, "allocation")
        raise Failed(f"the plugin's memory grew by {growth:.0%} during {allocations}")
    return f"memory {growth:+.1%}"


def _change_often(run: CheckRun, id_: str) -> None:
    hooks = run.plugin.under_test.hooks
    if "break-device" in hooks and "recover-device" in hooks:
        # A plugin that polls its devices reports each change only after seconds.
        for _ in run.series(run.limits.changes // 2):
            run.assume_broken(id_)
            run.assume_recovered(id_)


# -- L07: inotify ------------------------------------------------------------------------

_INOTIFY_MESSAGE = re.compile(r"inotify|watch|too many open files|emfile", re.IGNORECASE)
"""Messages of plugins that cannot create an inotify instance."""

_DEFAULT_INSTANCES = 128
"""The kernel's default limit of inotify instances per user."""

# The module is imported by its path, because the plugin's directory and environment may hide it.
_LIMITED = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r}); "
    "from devicemanager.plugin.processes.scarce import main; main()"
)


def limited_inotify(instances: int) -> tuple[str, ...]:
    """Return words to put before the command of a program, so that the program has at most
    ``instances`` inotify instances.

    The program then runs in a new user namespace, so other processes are not affected.
    """
    return (sys.executable, "-c", _LIMITED, str(instances))


@cache
def why_inotify_cannot_be_limited() -> str:
    """Return why this machine cannot limit the inotify instances of one program; empty if it
    can."""
    done = subprocess.run(
        [*limited_inotify(0), "true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or "it failed"


@builtin
def l07(run: CheckRun) -> str:
    run.start()
    count = run.plugin.usage().inotify
    limit = run.limits.inotify_instances * len(run.resources)
    if count > limit:
        raise Failed(f"the plugin has {counted(count, 'inotify instance')}, limit {limit}")
    seen = counted(count, "inotify instance")
    if reason := why_inotify_cannot_be_limited():
        raise Skipped(
            f"{seen}; a limit of inotify instances cannot be tested on this machine: {reason}"
        )
    # With inotify first: a plugin that does not register again shows nothing about inotify.
    try:
        run.restart_and_wait(1)
    except Failed as failed:
        raise Skipped(f"{seen}; {failed}", cause="K01") from None
    run.plugin.end(run.process)
    try:
        return f"{seen}; without any: {_without_inotify(run)}"
    except Failed:
        run.plugin.end(run.process)
        # A plugin may fail because of the user namespace, which shows nothing about inotify.
        if not _registers_twice(run, _DEFAULT_INSTANCES):
            raise Skipped(
                f"{seen}; in a user namespace, the plugin fails even if inotify works"
            ) from None
        raise


def _without_inotify(run: CheckRun) -> str:
    run.step("no inotify instances")
    if _registers(run, 0):
        try:
            _, took = run.restart_and_wait(1)
            return f"back after {took:.2f} s"
        except Failed as failed:
            if not run.plugin.has_exited_once:
                raise Failed(f"with a limit of 0 inotify instances: {failed}") from None
    if not run.plugin.has_exited_once:
        raise Failed(
            "with a limit of 0 inotify instances, the plugin neither registered nor exited"
        )
    # Stacks of a crash name files of the inotify library.
    printed = without_stacks(run.process.output())
    messages = [printable(line) for line in printed if _INOTIFY_MESSAGE.search(line)]
    # Exit status 0 means success to a supervisor and to readers of the pod status.
    if run.process.exit_status == 0:
        raise Failed(
            "with a limit of 0 inotify instances, the plugin exited with status 0, expected "
            "non-zero"
        )
    if not messages:
        raise Failed(
            f"with a limit of 0 inotify instances: {run.plugin.exit_text()}, and its output does "
            "not mention inotify"
        )
    return f"{run.accepted_exit()}: {messages[-1][:200]}"


def _registers_twice(run: CheckRun, instances: int) -> bool:
    """True if the plugin registers at its start and again after a kubelet restart."""
    try:
        return _registers(run, instances) and bool(run.restart_and_wait(1))
    except Failed:
        return False


def _registers(run: CheckRun, instances: int) -> bool:
    """Start the plugin with a limit of inotify instances. True if it registers."""
    since = run.kubelet.mark()
    run.launch(*limited_inotify(instances))
    is_registered = False

    def is_over() -> bool:
        # A plugin may need inotify only after its registration, and exit then. Its stream ends
        # before its exit is noticed, so the registration must not be checked a second time.
        nonlocal is_registered
        is_registered = run.observed.is_registered(since, run.resources)
        return is_registered or run.plugin.has_exited_once

    run.until(is_over, run.limits.start_seconds)
    if is_registered:
        run.begin_set_up()
    return is_registered


# -- what others can see -------------------------------------------------------------------


@builtin
def l08(run: CheckRun) -> None:
    with run.client() as client:
        # Like a kubelet, the client sends localhost as :authority. A server that rejects this fails
        # at the first call.
        client.options()
        for method in ("/v1beta1.DevicePlugin/NoSuchMethod", "/v9.NoSuchService/Call"):
            try:
                client.raw(method, b"", run.limits.allocate_seconds)
            except CallFailed as error:
                if error.code != "UNIMPLEMENTED":
                    raise Failed(
                        f"unknown method {method}: {error}, expected UNIMPLEMENTED"
                    ) from None
            else:
                raise Failed(f"unknown method {method} succeeded, expected UNIMPLEMENTED")
    run.check_alive("unknown methods")


@builtin
def l09(run: CheckRun) -> str:
    # Known without a test: with a fixed directory, the plugin would not have found the mock
    # kubelet.
    if run.plugin.under_test.at_node_paths:
        raise Warned("the plugin has a fixed plugin directory: it was run with --at-node-paths")
    return "the directory is configurable"


@builtin
def l10(run: CheckRun) -> str:
    # Only for information: many plugins intentionally serve metrics or health over TCP.
    ports = run.plugin.listening_ports()
    rate = len(run.timeline.output()) * 60 / run.limits.idle_seconds
    where = f"listens on {', '.join(ports)}" if ports else "listens on no TCP port"
    return f"{where}; {rate:.0f} lines per minute when idle"


@builtin
def l11(run: CheckRun) -> str:
    has_hook = run.plugin.under_test.has("misconfigure")
    # With the hook, only the plugin's own configuration is wrong. Without the hook, the check
    # breaks the plugin directory, the only thing that every plugin depends on.
    if has_hook:
        run.start_kubelet()
    else:
        run.step("create a file in place of the plugin directory")
        run.kubelet.plugin_dir.write_text("not a directory")
    process = run.launch(hook="misconfigure" if has_hook else "")
    # A start can take as long as in R01, for example on a busy machine.
    took = run.until(lambda: not process.is_running, run.limits.start_seconds)
    output = run.timeline.output()
    if took is None:
        # Without the hook, the plugin may wait for the directory if it prints a message.
        if output and not has_hook:
            return f"the misconfigured plugin keeps running, and prints: {output[-1][:200]}"
        raise Failed(
            "the misconfigured plugin keeps running"
            if has_hook
            else "the plugin neither exited nor printed anything without its plugin directory"
        )
    if process.exit_status == 0:
        raise Failed("the misconfigured plugin exited with status 0, expected non-zero")
    if not output:
        raise Failed(
            f"{run.plugin.exit_text()}: the misconfigured plugin exited without any output"
        )
    if crash_line(output):
        raise Failed(
            f"the misconfigured plugin crashed ({run.plugin.exit_text()}), expected a message and "
            "a non-zero exit status without a crash"
        )
    printed = without_stacks(process.output()) or output
    return f"{run.plugin.exit_text()}: {printable(printed[-1][:200])}"
