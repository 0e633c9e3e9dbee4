"""Checks of family R: how a plugin registers."""

from __future__ import annotations

import os
import re
import shutil
import socket
from functools import partial
from pathlib import Path
from typing import NoReturn

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.crash import crash_line
from devicemanager.conformance.observations import EVER
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.conformance.registry import builtin
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.printable import counted
from devicemanager.events.calls import Call, Mark
from podresources.sockets import MAX_PATH_BYTES

# The directory of a real kubelet. The mock kubelet has a temporary one, with a path of another
# length.
_REAL_DIRECTORY = "/var/lib/kubelet/device-plugins/"
_TOO_LONG = re.compile(r"path.* too long|too long.*path|bind: invalid argument", re.IGNORECASE)
"""Messages of Python, gRPC and Go about a socket path that is too long for the kernel."""
_REJECTION = "rejected by the conformance suite"


@builtin
def r01(run: CheckRun) -> str:
    run.start_kubelet()
    since = run.kubelet.mark()
    run.launch()
    took = run.wait_registered(since, run.limits.start_seconds, "its start")
    for call in run.observed.registrations(since):
        if call.request["version"] != "v1beta1":
            raise Failed(
                f"invalid version {call.request['version']!r} in Register: expected v1beta1"
            )
    return f"registered after {took:.2f} s"


@builtin
def r02(run: CheckRun) -> None:
    run.start_kubelet()
    since = run.kubelet.mark()
    run.launch()

    def is_answered() -> bool:
        return bool(run.observed.registrations(since, code=None)) or run.plugin.has_exited

    # The kubelet stops dialing after 10 s, and only then responds to Register with an error.
    run.until(is_answered, run.limits.start_seconds + 10)
    calls = run.observed.registrations(since, code=None)
    if not calls:
        if "Register" in {call.rpc for call in run.kubelet.calls.in_progress}:
            raise Failed("the plugin's socket did not respond while Register was in progress")
        raise Skipped("the plugin did not try to register", cause="R01")
    # Like kubelets since 1.25, the mock calls GetDevicePluginOptions before it responds to
    # Register. So if Register succeeds, the plugin was serving before.
    if calls[0].code == "OK":
        return
    if not _is_dialed(calls[0]):
        raise Skipped("the kubelet rejected Register before dialing the plugin", cause="R01")
    raise Failed(f"the first Register call failed: {calls[0].message}")


def _is_dialed(register: Call) -> bool:
    """True if a Register request is valid, so that the kubelet dials the plugin's socket."""
    request = register.request
    return (
        request["version"] == "v1beta1"
        and is_extended_resource_name(str(request["resource_name"]))
        and "/" not in str(request["endpoint"])
    )


@builtin
def r03(run: CheckRun) -> None:
    # Rejected calls count, too: the kubelet rejects an endpoint that contains a directory.
    for call in _attempts(run):
        endpoint = str(call.request["endpoint"])
        if "/" in endpoint or endpoint in ("", ".", ".."):
            raise Failed(f"{call.resource}: invalid endpoint {endpoint!r}: expected a file name")
        if call.code == "OK" and not (run.kubelet.plugin_dir / endpoint).is_socket():
            raise Failed(f"{call.resource}: {endpoint} is not a socket in the plugin directory")


@builtin
def r04(run: CheckRun) -> None:
    for call in _attempts(run):
        name = str(call.request["resource_name"])
        if not is_extended_resource_name(name):
            raise Failed(f"invalid resource name {name!r}: the kubelet rejects it")


@builtin
def r05(run: CheckRun) -> str:
    # Without a socket a plugin cannot register. Then its output is the only evidence.
    for line in () if run.observed.registrations(EVER) else run.process.output():
        if _TOO_LONG.search(line):
            raise Failed(f"the plugin cannot bind its socket: {line[:200]}")
    longest = 0
    for call in _attempts(run):
        path = _REAL_DIRECTORY + Path(str(call.request["endpoint"])).name
        length = len(os.fsencode(path))
        if length > MAX_PATH_BYTES:
            raise Failed(f"socket path {path} has {length} bytes, limit {MAX_PATH_BYTES}")
        longest = max(longest, length)
    return f"{longest} bytes"


def _attempts(run: CheckRun) -> list[Call]:
    """Return the latest Register call of each resource, even if it failed. Raises Skipped if the
    plugin has made none."""
    calls = {
        str(call.request["resource_name"]): call
        for call in run.observed.registrations(EVER, code=None)
    }
    if not calls:
        raise Skipped("the plugin did not try to register", cause="R01")
    return list(calls.values())


@builtin
def r06(run: CheckRun) -> str:
    limits, plugin = run.limits, run.plugin
    run.start_kubelet()
    run.kubelet.faults.set("reject-register", text=_REJECTION)
    since = run.kubelet.mark()
    run.launch()

    def attempts() -> int:
        return len(run.observed.registrations(since, code=None))

    # `has_exited_once`, because with --restart always the plugin may already be running again.
    if run.until(lambda: attempts() > 0 or plugin.has_exited_once, limits.start_seconds) is None:
        raise Failed(f"the plugin did not call Register within {limits.start_seconds:g} s")
    run.observe(lambda: plugin.has_exited_once, limits.register_window_seconds)
    if plugin.has_exited_once:
        return _exited_after_rejection(run)
    # The limit for the window, plus one, because the first attempt begins the window.
    allowed = 1 + limits.register_attempts * limits.register_window_seconds / 30
    count = attempts()
    seen = f"{counted(count, 'attempt')} in {limits.register_window_seconds:g} s"
    if count / len(run.resources) > allowed:
        raise Failed(f"Register was called too often: {seen}, limit {allowed:g} per resource")
    if count > 1:
        return seen
    # The plugin's backoff may be longer than the window. Then it must register when calls are
    # accepted again.
    run.kubelet.faults.clear()
    run.step("accept registrations again")
    took = run.until(
        lambda: plugin.has_exited_once or run.observed.is_registered(since, run.resources),
        limits.recover_seconds,
    )
    if plugin.has_exited_once:
        return _exited_after_rejection(run)
    if took is None:
        raise Failed(
            f"{limits.recover_seconds:g} s after one rejection, the plugin has neither exited nor "
            "registered again"
        )
    return f"registered after {took:.1f} s"


def _exited_after_rejection(run: CheckRun) -> str:
    # With exit status 0, the pod status does not show the cause.
    if run.process.exit_status == 0:
        raise Failed("the rejected plugin exited with status 0, expected non-zero")
    _check_crash(run, "after a rejected Register call")
    return run.accepted_exit()


def _check_crash(run: CheckRun, when: str) -> None:
    """Raise Warned if the plugin has exited with a panic. A supervisor starts the plugin again
    after a panic, too, but the plugin's author did not plan this exit."""
    if crash_line(run.process.output()):
        raise Warned(f"the plugin crashed {when}: {run.plugin.exit_text()}")


@builtin
def r07(run: CheckRun) -> None:
    limits, observed = run.limits, run.observed
    run.start_kubelet()
    run.kubelet.faults.set("delay-register", seconds=limits.register_delay_seconds)
    since = run.kubelet.mark()
    run.launch()
    # A plugin may register its resources one after another, and each registration is delayed.
    seconds = limits.start_seconds + limits.register_delay_seconds * len(run.resources)
    for resource in run.resources:
        if run.until(partial(_is_answered, run, resource, since), seconds) is None:
            raise Failed(f"Register of {resource} did not complete within {seconds:g} s")
        calls = observed.registrations(since, resource, code=None)
        if not calls:
            _check_exit(run)
        call = calls[0]
        if call.code != "OK":
            _check_retry(run, since, call)
        _check_list_meanwhile(run, resource, since, call)
    # A plugin that registers a second time does so within a moment.
    run.kubelet.faults.clear()
    run.settle()
    for resource in run.resources:
        count = len(observed.registrations(since, resource, code=None))
        if count > 1:
            raise Failed(f"the plugin registered {resource} {count} times, expected once")
    run.check_alive("a slow registration")


_AT_ONCE = 0.5
"""Seconds after the end of a slow Register. If the first device list comes within these seconds,
Register has delayed it."""


def _check_exit(run: CheckRun) -> NoReturn:
    """Judge a plugin that has exited during a slow Register. Raises Failed for status 0. Otherwise
    raises Warned, because a DaemonSet restarts the plugin."""
    text = f"the plugin exited during Register: {run.plugin.exit_text()}"
    raise Failed(text) if run.process.exit_status == 0 else Warned(text)


def _check_list_meanwhile(run: CheckRun, resource: str, since: Mark, register: Call) -> None:
    """Raise Failed if the first device list came right after Register, not during it.

    Such a plugin holds a lock during Register that its ListAndWatch needs.
    """

    def lists() -> list[Call]:
        return run.observed.lists(resource, since)

    # Calls are numbered when they end.
    if any(each.number < register.number for each in lists()):
        return
    # Otherwise the first list is slow for another reason, such as a poll interval: see W01.
    if run.until(lambda: bool(lists()), _AT_ONCE) is not None:
        raise Failed("the plugin sent no device list while Register was in progress")


def _check_retry(run: CheckRun, since: Mark, call: Call) -> NoReturn:
    """Judge a plugin that has cancelled a Register call. Raises Warned if the plugin then
    registers, or has exited with a non-zero status. Otherwise raises Failed."""
    gave_up = f"the plugin gave up Register of {call.resource} after {call.duration:.1f} s"
    run.kubelet.faults.clear()
    try:
        took = run.wait_registered(since, run.limits.recover_seconds, gave_up)
    except Failed as failed:
        if run.plugin.has_exited:
            _check_exit(run)
        raise Failed(f"{gave_up}, and did not recover: {failed}") from None
    raise Warned(f"{gave_up}, and registered {took:.1f} s later")


def _is_answered(run: CheckRun, resource: str, since: Mark) -> bool:
    calls = run.observed.registrations(since, resource, code=None)
    return run.plugin.has_exited or bool(calls)


@builtin
def r08(run: CheckRun) -> str:
    # The states of a booting node: no directory on the first boot, an empty one later, and one with
    # a stale socket after a crash.
    directory, results = run.kubelet.plugin_dir, []
    for name, prepare in (
        ("no directory", partial(shutil.rmtree, directory, ignore_errors=True)),
        ("an empty directory", partial(_empty, directory)),
        ("a stale kubelet.sock", partial(_leave_stale_socket, run.kubelet.plugin_socket)),
    ):
        run.stop_kubelet()
        prepare()
        run.step(f"leave {name}")
        results.append(f"{name}: {_start_before_the_kubelet(run, name)}")
    return "; ".join(results)


def _start_before_the_kubelet(run: CheckRun, state: str) -> str:
    process = run.launch()
    run.until(lambda: run.plugin.has_exited, run.limits.away_seconds)
    if not run.plugin.has_exited:
        since = run.kubelet.mark()
        run.start_kubelet()
        try:
            took = run.wait_registered(since, run.limits.start_seconds, "the kubelet's start")
            run.plugin.end(process)
            return f"{took:.2f} s"
        except Failed:
            if not run.plugin.has_exited:
                raise Failed(
                    f"the plugin was started with {state}, and did not register within "
                    f"{run.limits.start_seconds:g} s after the kubelet's start"
                ) from None
    # With exit status 0, a pod counts as completed, and the plugin may not be started again.
    if process.exit_status == 0:
        raise Failed(
            "the plugin exited with status 0 before the kubelet started, expected non-zero"
        )
    _check_crash(run, f"without a kubelet, with {state}")
    return run.accepted_exit()


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


def _leave_stale_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(os.fspath(path))


@builtin
def r09(run: CheckRun) -> None:
    for resource in run.resources:
        count = len(run.observed.registrations(resource=resource, code=None))
        # A plugin must re-register when its stream has ended; check W02 reports the end of a
        # stream.
        if count > len(run.observed.ended_streams(resource)):
            raise Failed(
                f"{resource} was registered again although its ListAndWatch stream was open: "
                f"{counted(count, 'more Register call')}"
            )


@builtin
def r10(run: CheckRun) -> None:
    if len(run.resources) < 2:
        raise Skipped("needs 2 resources, the plugin has 1")
    # Reject the first resource: a plugin that registers in order and stops at the first error then
    # fails.
    rejected, *others = run.resources
    run.start_kubelet()
    run.kubelet.faults.set("reject-register", resource=rejected, text=_REJECTION)
    since = run.kubelet.mark()
    run.launch()
    seconds = run.limits.start_seconds
    if run.until(lambda: run.observed.is_registered(since, others), seconds) is None:
        raise Failed(f"{', '.join(others)} did not register because {rejected} was rejected")
    if len({run.observed.socket(resource) for resource in others}) < len(others):
        raise Failed("several resources were registered with the same endpoint")


@builtin
def r11(run: CheckRun) -> None:
    run.start_kubelet()
    # The plugin stub in the kubelet's tests skips registration if this file exists, and some
    # plugins are built on the stub.
    (run.kubelet.plugin_dir / "DEPRECATION").write_bytes(b"")
    run.relaunch("its start")


@builtin
def r12(run: CheckRun) -> None:
    calls = run.kubelet.calls
    # The watcher finds the socket by itself, so the check only waits.
    if any(path.is_socket() for path in run.kubelet.plugins_registry_dir.rglob("*")):
        run.until(lambda: bool(calls(rpc="NotifyRegistrationStatus")), run.limits.refresh_seconds)
    infos = calls(rpc="GetInfo")
    if not infos:
        raise Skipped("the plugin has no socket in plugins_registry")
    # The kubelet tries again, so one slow call on a busy machine does not matter.
    answered = [call for call in infos if call.code == "OK"]
    if not answered:
        raise Failed(f"GetInfo failed with {infos[-1].code}: {infos[-1].message}")
    for call in answered:
        info = call.response or {}
        versions = info.get("supported_versions", ())
        if info.get("type") != "DevicePlugin" or "v1beta1" not in versions:
            raise Failed(
                f"invalid GetInfo response {info}: expected type DevicePlugin and version v1beta1"
            )
        if Path(call.plugin).name.startswith("."):
            raise Failed(
                f"the name of the socket {Path(call.plugin).name} begins with a dot: kubelets "
                "ignore such files"
            )
    for call in calls(rpc="NotifyRegistrationStatus"):
        if call.code != "OK":
            raise Failed(f"NotifyRegistrationStatus failed with {call.code}: {call.message}")


@builtin
def r13(run: CheckRun) -> None:
    for resource, client in run.clients():
        call = run.observed.registrations(EVER, resource)[-1]
        registered = call.request.get("options") or {}
        options = client.options()
        for name in ("pre_start_required", "get_preferred_allocation_available"):
            first, second = bool(registered.get(name)), bool(getattr(options, name))
            # Only a warning, because the kubelet ignores the options in Register.
            if first != second:
                raise Warned(
                    f"{resource}: {name} is {first} in Register and {second} in "
                    "GetDevicePluginOptions"
                )
