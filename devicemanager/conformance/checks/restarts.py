"""Checks of family K: restarts of the kubelet and the plugin. Most plugins fail some of them.

A restarted kubelet has no registered plugins. It deletes the sockets of plugins and recreates
kubelet.sock. A plugin must notice one of these changes and re-register. The checks vary:

* the number and time of kubelet restarts: one (K01), many (K02), two in quick succession or one
  during the plugin's registration (K03), a long pause between stop and start (K04), a restart
  during a call (K05);
* the change that a plugin can notice: only its deleted socket (K06), only a new kubelet.sock (K07),
  only the end of its stream (K08);
* what must work after a restart: device changes reach the new stream (K09), device IDs are the same
  (K13), files of running containers still exist (K14);
* restarts of the plugin: with a stale socket (K10), with two instances at a time (K11, K12), after
  an exit because the kubelet has stopped (K15).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks.steps import (
    assume_allocates,
    assume_list,
    check_same_devices,
    devices_by_resource,
    stop,
)
from devicemanager.conformance.observations import EVER
from devicemanager.conformance.outcomes import Failed, Lost, Skipped, Warned
from devicemanager.conformance.registry import builtin
from devicemanager.core.printable import counted
from devicemanager.events.calls import Mark
from podresources.sockets import FileIdentity


@builtin
def k01(run: CheckRun) -> str:
    run.start()
    before = devices_by_resource(run)
    took = run.restart_and_recover()
    check_same_devices(run, before)
    return f"back after {took:.2f} s"


@builtin
def k02(run: CheckRun) -> str:
    run.start()
    before = devices_by_resource(run)
    longest = 0.0
    for number in range(1, run.limits.restarts + 1):
        since, took = run.restart_and_wait(number)
        longest = max(longest, took)
    # A plugin that registers a second time does so within a moment.
    run.settle()
    for resource in run.resources:
        calls = run.observed.registrations(since, resource)
        count = len(calls)
        # Older kubelets leak a connection for each unnecessary registration.
        if count > 1:
            for call in calls[1:]:
                run.timeline.step(
                    f"not expected: {resource} registers again (call {call.number})", call.time
                )
            raise Failed(
                f"{resource} was registered {count} times after restart {number}",
                symptom="older kubelets leak a connection with each restart; newer ones reject "
                'Register with "device plugin already connected"',
            )
    check_same_devices(run, before)
    return f"{counted(run.limits.restarts, 'restart')}, back after at most {longest:.2f} s"


@builtin
def k03(run: CheckRun) -> str:
    run.start()
    gaps = [0.0, 0.01, 0.05, 0.3, 1.0]
    # The order is random, because each order can find other races. The seed repeats an order that
    # has found one.
    run.rng.shuffle(gaps)
    longest = 0.0
    for gap in gaps:
        run.restart_kubelet()
        run.settle(gap)
        since = run.restart_kubelet()
        after = f"two restarts {gap * 1000:g} ms apart"
        longest = max(longest, run.wait_registered(since, run.limits.recover_seconds, after))
    for point, after in (
        ("registered", "a restart between Register and the first device list"),
        ("list", "a restart at the first device list"),
    ):
        run.step(after)
        run.kubelet.faults.set("restart", at=point)
        run.restart_kubelet()
        since = run.kubelet.mark()
        # If a plugin does not re-register, the fault never fires; the next line reports that.
        run.until(lambda: _have_fired(run), run.limits.recover_warn_seconds)
        longest = max(longest, run.wait_registered(since, run.limits.recover_seconds, after))
        run.kubelet.faults.clear()
    return f"back after at most {longest:.2f} s"


def _have_fired(run: CheckRun) -> bool:
    return all(state.is_spent for state in run.kubelet.faults.list())


@builtin
def k04(run: CheckRun) -> str:
    run.start()
    _stop_kubelet_and_delete_sockets(run)
    run.plugin.begin_idle()
    run.settle(run.limits.away_seconds)
    # Measured before the kubelet starts, because the registration is not idle time.
    share = run.plugin.idle_cpu_share
    if run.plugin.has_exited:
        raise Failed(
            f"the plugin exited when the kubelet stopped: {run.plugin.exit_text()} (if it relies "
            "on its DaemonSet to start it again, use --restart always)"
        )
    since = run.kubelet.mark()
    run.start_kubelet()
    took = run.wait_recovered(since, "the kubelet's start")
    if share > run.limits.away_cpu_share:
        raise Failed(
            f"the plugin used {share:.0%} of a core while no kubelet was running, limit "
            f"{run.limits.away_cpu_share:.0%}"
        )
    return f"{share:.1%} of a core without a kubelet, back after {took:.2f} s"


@builtin
def k05(run: CheckRun) -> str:
    run.start()
    ids = run.healthy_ids()
    with run.client() as client:
        run.step("close the connection during Allocate")
        # The first effect of a crash: no process receives the response.
        client.abandon_allocate([ids[0]])
    # A plugin that exits does so a moment later. A call would wait for its socket.
    if run.until(lambda: run.plugin.has_exited, run.limits.settle_seconds) is not None:
        run.check_alive("an abandoned Allocate call")
    with run.client() as client, client.watch() as stream:
        try:
            assume_list(run, stream)
        except Skipped:
            run.check_alive("an abandoned Allocate call")
            raise
        # The second effect: streams end while the plugin may be sending on them.
        since = run.restart_kubelet()
    took = run.wait_recovered(since, "the restart")
    # The state that a broken stream leaves in the plugin often breaks only the next stream.
    run.restart_and_recover("another restart")
    return f"back after {took:.2f} s"


@builtin
def k06(run: CheckRun) -> str:
    run.start()
    run.wait_set_up()
    since = run.kubelet.mark()
    for path in map(run.observed.socket, run.resources):
        run.step(f"delete {path.name}")
        path.unlink(missing_ok=True)
    return _wait_for_return(run, since, "its socket was deleted")


@builtin
def k07(run: CheckRun) -> str:
    run.start()
    run.wait_set_up()
    since = run.kubelet.mark()
    run.step("restart the kubelet, keep the sockets of plugins")
    # Real kubelets also delete the sockets. Keeping them shows whether the plugin watches
    # kubelet.sock, too, which matters if it does not notice the deletion.
    run.kubelet.faults.set("restart", keep_sockets=True)
    return _wait_for_return(run, since, "kubelet.sock was recreated")


@builtin
def k08(run: CheckRun) -> str:
    run.start()
    run.wait_set_up()
    since = run.kubelet.mark()
    run.step("end the ListAndWatch streams")
    # A broken connection has the same effect on both sides. The kubelet waits for a registration.
    # If the plugin waits for the kubelet, its devices stay lost.
    run.kubelet.faults.set("end-list-stream")
    return _wait_for_return(run, since, "its ListAndWatch stream was closed", may_exit=True)


def _wait_for_return(run: CheckRun, since: Mark, after: str, *, may_exit: bool = False) -> str:
    """Wait until the plugin re-registers, and return a measurement. ``after`` names the cause in
    errors.

    Raises Failed after ``recover_seconds``, and Warned if the plugin was slow. If the plugin exits,
    raises Failed, or with ``may_exit`` returns a text about the exit.
    """
    took = run.until(
        lambda: run.plugin.has_exited or run.observed.is_registered(since, run.resources),
        run.limits.recover_seconds,
    )
    if run.plugin.has_exited:
        if may_exit:
            return run.accepted_exit()
        raise Lost(f"the plugin exited after {after}: {run.plugin.exit_text()}")
    if took is None:
        raise Lost(
            f"the plugin did not re-register within {run.limits.recover_seconds:g} s after {after}"
        )
    run.warn_if_slow(took, after)
    return f"back after {took:.2f} s"


@builtin
def k09(run: CheckRun) -> str:
    run.start()
    id_ = run.healthy_ids()[0]
    run.assume_broken(id_)
    run.assume_recovered(id_)
    restarts, longest = 0, 0.0
    # After each restart, a handler of the old stream may remain in the plugin, and take an update
    # from the new stream. Six such handlers take all updates of the last step, even if the plugin
    # selects handlers at random.
    for more in (1, 2, 3):
        for _ in range(more):
            restarts += 1
            run.restart_and_wait(restarts)
        when = f" after {counted(restarts, 'kubelet restart')}"
        longest = max(longest, run.break_device(id_, when), run.recover_device(id_, when))
    return f"reported after at most {longest:.2f} s, over {counted(restarts, 'restart')}"


@builtin
def k10(run: CheckRun) -> str:
    run.start()
    since = run.kubelet.mark()
    run.step("SIGKILL")
    run.process.kill()
    # With any other setting, a supervisor has already started it again.
    if run.plugin.under_test.restart == "never":
        run.launch()
    # Check K13 compares the devices.
    took = run.wait_registered(since, run.limits.start_seconds, "its new start")
    return f"back after {took:.2f} s"


_Files = Mapping[Path, FileIdentity | None]


@builtin
def k11(run: CheckRun) -> str:
    run.start()
    first = run.process
    before = {path: FileIdentity.of(path) for _, path in run.observed.sockets(EVER)}
    since = run.kubelet.mark()
    sockets = _second_instance(run, since, before)
    identities = {path: FileIdentity.of(path) for path in sockets.values()}
    mark = run.kubelet.mark()
    run.step("SIGTERM to the first instance")
    run.plugin.stop(first)
    run.settle()
    newest = {
        resource: path for resource, path in run.observed.sockets(since) if path not in before
    }
    for resource, path in sockets.items():
        if path in before:
            # Both instances use this name. The second instance may have created the file again
            # after the first one removed it, but there was a gap.
            removed = FileIdentity.of(path) != identities[path]
        else:
            removed = not newest[resource].is_socket()
        if removed:
            raise Failed(
                f"the first instance removed {path.name}, the socket of the second instance"
            )
    took = run.until(
        lambda: all(map(run.observed.is_serving, run.resources)), run.limits.recover_seconds
    )
    if took is None:
        raise Failed(
            f"no ListAndWatch stream is open {run.limits.recover_seconds:g} s after the exit of "
            "the first instance"
        )
    if took > run.limits.recover_warn_seconds:
        raise Warned(
            f"no ListAndWatch stream was open for {took:.1f} s after the exit of the first instance"
        )
    again = len(run.observed.registrations(mark))
    return f"{counted(again, 'registration')} after the exit of the first instance"


def _second_instance(run: CheckRun, since: Mark, before: _Files) -> dict[str, Path]:
    """Start a second instance of the plugin and wait until it has registered all resources. Return
    its sockets by resource.

    ``before`` has the sockets of the first instance. Raises Failed if the second instance exits or
    does not register in time.
    """

    def sockets() -> dict[str, Path]:
        # The first instance may re-register. Only a new file belongs to the second instance.
        return {
            resource: path
            for resource, path in run.observed.sockets(since)
            if path not in before or FileIdentity.of(path) != before[path]
        }

    second = run.launch()
    took = run.until(
        lambda: not second.is_running or len(sockets()) == len(run.resources),
        run.limits.start_seconds,
    )
    if run.plugin.has_exited:
        raise Failed(
            f"a second instance cannot start: {run.plugin.exit_text()}", symptom=_NO_SECOND
        )
    if took is None:
        raise Failed(
            f"a second instance did not register within {run.limits.start_seconds:g} s",
            symptom=_NO_SECOND,
        )
    return sockets()


_NO_SECOND = "an update with maxSurge never ends: the new pod fails while the old one runs"


@builtin
def k12(run: CheckRun) -> None:
    run.start()
    before = {path: FileIdentity.of(path) for _, path in run.observed.sockets(EVER)}
    since = run.kubelet.mark()
    with run.assuming("K11"):
        sockets = _second_instance(run, since, before)
    if shared := before.keys() & sockets.values():
        raise Warned(f"both instances of the plugin use the same socket {min(shared).name}")


@builtin
def k13(run: CheckRun) -> None:
    run.start()
    before = devices_by_resource(run)
    run.plugin.end(run.process)
    run.relaunch("the plugin's restart")
    # Do not compare health: a plugin may report a device as unhealthy until it has checked the
    # device.
    check_same_devices(run, before, health=False)
    since = run.restart_kubelet()
    run.wait_registered(since, run.limits.recover_seconds, "the kubelet's restart")
    check_same_devices(run, before, health=False)


@builtin
def k14(run: CheckRun) -> str:
    run.start()
    id_ = run.healthy_ids()[0]
    with run.client() as client:
        assume_allocates(run, client)
        [response] = client.allocate([id_]).container_responses
    named = [*(m.host_path for m in response.mounts), *(d.host_path for d in response.devices)]
    # Ignore paths that never existed: checks A11 and A12 report them. The others are read below the
    # declared directories, because the plugin's mount namespace ends with the plugin.
    existing = [
        machine_path
        for name in dict.fromkeys(named)
        if name.startswith("/")
        and run.plugin.path(name).exists()
        and os.path.lexists(machine_path := run.process.machine_path(name))
    ]
    if not named:
        raise Skipped("the response names no device node and no mount")
    if not existing:
        cause = "A12" if response.mounts else "A11"
        raise Skipped(f"the response names {named[0]}, which does not exist", cause=cause)
    stop(run)
    _check_exist(existing, "exit")
    run.relaunch("the plugin's restart")
    _check_exist(existing, "new start")
    return counted(len(existing), "host path")


def _check_exist(paths: list[Path], event: str) -> None:
    for path in paths:
        if not os.path.lexists(path):
            raise Failed(
                f"{path} was removed by the plugin's {event}, but a container may still use it"
            )


@builtin
def k15(run: CheckRun) -> str | None:
    run.start()
    starts = run.process.starts
    _stop_kubelet_and_delete_sockets(run)

    def has_exited() -> bool:
        return run.process.starts > starts or not run.process.is_running

    # A plugin may handle a restart by exiting if something starts it again. A DaemonSet does; a
    # service manager that restarts only failed programs does not after status 0.
    if run.until(has_exited, run.limits.away_seconds) is None:
        raise Skipped("the plugin does not exit when the kubelet stops")
    if run.process.exit_status == 0:
        raise Failed("the plugin exited with status 0 when the kubelet stopped, expected non-zero")
    how = run.plugin.exit_text()
    since = run.kubelet.mark()
    run.start_kubelet()
    if run.plugin.under_test.restart == "never":
        run.launch()
    took = run.wait_recovered(since, "the kubelet's start")
    return f"{how}, back after {took:.2f} s"


def _stop_kubelet_and_delete_sockets(run: CheckRun) -> None:
    """Stop the kubelet and delete all sockets in its directory.

    A real kubelet deletes the sockets at its next start. This function deletes them now, because
    a plugin can notice a stopped kubelet only by its deleted socket.
    """
    run.stop_kubelet()
    for path in run.kubelet.plugin_dir.iterdir():
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink(missing_ok=True)
