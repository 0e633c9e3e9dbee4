"""K: kubelets and plugins that start anew. What most plugins fail."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from devicemanager.conformance.check_run import EVER, CheckRun
from devicemanager.conformance.outcomes import Failed, Scene, Severity, Skipped, Warned
from devicemanager.conformance.registry import check
from devicemanager.events.calls import Mark
from podresources.sockets import FileIdentity

MUST, SHOULD, OWN = Severity.MUST, Severity.SHOULD, Scene.OWN
_Files = Mapping[Path, FileIdentity | None]
_RECOVERS = "registered again within recover_seconds (a warning after recover_warn_seconds)"


@check(
    "K01",
    MUST,
    "comes back after a kubelet restart",
    does="restarts the kubelet: connections end, sockets go, kubelet.sock is a new one",
    expects=f"{_RECOVERS}, with the same devices",
    production="allocatable is 0 until somebody deletes the plugin's pod: the most reported bug "
    "of plugins",
    links="DOC, rdma#79, kubevirt#17122, kubevirt#2068, sriov#33, dpm#32",
    scene=OWN,
)
def k01(trial: CheckRun) -> str:
    trial.start()
    before = _devices(trial)
    since = trial.restart_kubelet()
    took = trial.wait_recovered(since, "the restart")
    _same_devices(trial, before)
    return f"back after {took:.2f} s"


@check(
    "K02",
    MUST,
    "comes back after every restart",
    does="restarts the kubelet as many times as the limit restarts says",
    expects="exactly one registration each, the devices and their health unchanged",
    production='a plugin that comes back "once every 2 or 3 times"',
    links="dpm#32",
    scene=OWN,
)
def k02(trial: CheckRun) -> str:
    trial.start()
    before = _devices(trial)
    longest = 0.0
    for number in range(1, trial.limits.restarts + 1):
        since, took = trial.restart_and_wait(number)
        longest = max(longest, took)
        _once(trial, since, number)
    _same_devices(trial, before)
    return f"{trial.limits.restarts} restarts, back after {longest:.2f} s at most"


@check(
    "K03",
    MUST,
    "bears restarts in quick succession",
    does="restarts the kubelet twice with gaps of 0, 10, 50, 300 and 1000 ms, right after a "
    "Register, and between a Register and its first list",
    expects="registered with the last kubelet each time",
    production="the second restart is missed while the watch is not armed yet",
    links="https://github.com/bottlerocket-os/bottlerocket/issues/4250",
    scene=OWN,
)
def k03(trial: CheckRun) -> str:
    trial.start()
    gaps = [0.0, 0.01, 0.05, 0.3, 1.0]
    trial.rng.shuffle(gaps)
    longest = 0.0
    for gap in gaps:
        trial.restart_kubelet()
        trial.pause(gap)
        since = trial.restart_kubelet()
        after = f"two restarts {gap * 1000:g} ms apart"
        longest = max(longest, trial.wait_registered(since, trial.limits.recover_seconds, after))
    for point, after in (
        ("registered", "a restart between Register and the first list"),
        ("list", "a restart at the first list"),
    ):
        trial.step(after)
        trial.kubelet.faults.set("restart", at=point)
        trial.restart_kubelet()
        since = trial.kubelet.mark()
        trial.until(lambda: _have_fired(trial), trial.limits.recover_warn_seconds)
        longest = max(longest, trial.wait_registered(since, trial.limits.recover_seconds, after))
        trial.kubelet.faults.clear()
    return f"back after {longest:.2f} s at most"


def _have_fired(trial: CheckRun) -> bool:
    """Whether every fault that was set has done what it was set for."""
    return all(state.is_spent for state in trial.kubelet.faults.list())


@check(
    "K04",
    MUST,
    "bears a kubelet that is away",
    does="stops the kubelet for away_seconds",
    expects="the plugin survives (or ends and is started again), uses at most away_cpu_share of a "
    f"core, and is {_RECOVERS}",
    production="CrashLoopBackOff of 5 minutes, or a busy loop",
    links="DOC",
    scene=OWN,
)
def k04(trial: CheckRun) -> str:
    trial.start()
    trial.stop_kubelet()
    _remove_sockets(trial.kubelet.plugin_dir)
    trial.begin_idle()
    trial.settle(trial.limits.away_seconds)
    share = trial.idle_cpu_share if trial.process.is_running else 0.0
    since = trial.kubelet.mark()
    trial.start_kubelet()
    took = trial.wait_recovered(since, "the kubelet came back")
    if share > trial.limits.away_cpu_share:
        raise Failed(f"it used {share:.0%} of a core while the kubelet was away")
    return f"{share:.1%} of a core meanwhile, back after {took:.2f} s"


@check(
    "K05",
    MUST,
    "bears a kubelet that dies in the midst of a call",
    does="cuts the connection during Allocate, and restarts the kubelet while a list is sent",
    expects=f"no crash, and {_RECOVERS}",
    production='"panic: close of closed channel" a second after the kubelet restarted',
    links="kubevirt#18807, DM",
    scene=OWN,
)
def k05(trial: CheckRun) -> str:
    trial.start()
    ids = trial.healthy_ids()
    with trial.client() as client:
        trial.step("cut the connection during Allocate")
        client.abandon_allocate([ids[0]])
    with trial.client() as client, client.watch() as stream:
        trial.first_list(stream)
        since = trial.restart_kubelet()
    took = trial.wait_recovered(since, "the restart")
    # What a dead stream left behind shows with the next one.
    since = trial.restart_kubelet()
    trial.wait_recovered(since, "another restart")
    return f"back after {took:.2f} s"


@check(
    "K06",
    SHOULD,
    "notices that its socket was deleted",
    does="deletes the plugin's socket, and nothing else",
    expects=_RECOVERS,
    production="the plugin never comes back: deleting sockets is how the kubelet tells plugins "
    "that it has started",
    links="DOC, sriov#411",
    scene=OWN,
)
def k06(trial: CheckRun) -> str:
    trial.start()
    since = trial.kubelet.mark()
    for resource in trial.resources:
        path = trial.endpoint(resource)
        trial.step(f"delete {path.name}")
        path.unlink(missing_ok=True)
    return _reregisters(trial, since, "its socket was deleted")


@check(
    "K07",
    SHOULD,
    "notices a new kubelet.sock",
    does="makes kubelet.sock anew and ends the list streams, with the plugin's sockets left in "
    "place",
    expects=_RECOVERS,
    production="plugins that look at their own file alone stay lost",
    links="DM",
    scene=OWN,
)
def k07(trial: CheckRun) -> str:
    trial.start()
    since = trial.kubelet.mark()
    trial.step("restart the kubelet, the sockets of plugins stay")
    trial.kubelet.faults.set("restart", keep_sockets=True)
    return _reregisters(trial, since, "kubelet.sock was made anew")


@check(
    "K08",
    SHOULD,
    "notices that its list stream was cut",
    does="ends the ListAndWatch stream alone; sockets stay",
    expects=f"{_RECOVERS}, or the plugin ends",
    production="the kubelet never opens the stream again, so the node stays at 0",
    links="k/k#58372, k/k#92958, amd#186, nv#1228, nv#1698",
    scene=OWN,
)
def k08(trial: CheckRun) -> str:
    trial.start()
    since = trial.kubelet.mark()
    trial.step("end the list streams")
    trial.kubelet.faults.set("end-list-stream")
    return _reregisters(trial, since, "its list stream was cut", may_end=True)


@check(
    "K09",
    MUST,
    "tells the live kubelet of changes",
    does="changes a device, restarts the kubelet 1, 2 and 3 times more, and changes it after each",
    expects="the list stream of the live kubelet brings the change within refresh_seconds",
    production="a handler that belongs to a dead kubelet takes the update: removed devices stay "
    "schedulable",
    links="rdma#51, rdma#82",
    scene=OWN,
    hooks=("break-device", "mend-device"),
)
def k09(trial: CheckRun) -> str:
    trial.start()
    id_ = trial.healthy_ids()[0]
    trial.broken(id_)
    trial.mended(id_)
    restarts, longest = 0, 0.0
    for more in (1, 2, 3):
        for _ in range(more):
            restarts += 1
            trial.restart_and_wait(restarts)
        when = f" after {restarts} kubelet restarts"
        longest = max(longest, trial.break_device(id_, when), trial.mend_device(id_, when))
    return f"told after {longest:.2f} s at most, over {restarts} restarts"


@check(
    "K10",
    MUST,
    "starts over a stale socket",
    does="kills the plugin with SIGKILL and starts it again, its socket file still there",
    expects="registered again within start_seconds",
    production='a crash loop with "bind: address already in use"',
    links="intel#1370",
    scene=OWN,
)
def k10(trial: CheckRun) -> str:
    trial.start()
    before = _devices(trial)
    since = trial.kubelet.mark()
    trial.step("SIGKILL")
    trial.process.kill()
    if trial.subject.restart == "never":
        trial.launch()
    took = trial.wait_registered(since, trial.limits.start_seconds, "its new start")
    _same_devices(trial, before)
    return f"back after {took:.2f} s"


@check(
    "K11",
    MUST,
    "can be upgraded without a gap",
    does="starts a second instance while the first one serves, then ends the first by SIGTERM",
    expects="the second one's socket stays, and its stream is open within recover_seconds (a "
    "warning after recover_warn_seconds)",
    production="the old instance removes the new one's socket: 0 devices until a restart",
    links="rdma#319, k/k#121994, k/k#127803, k/k#135437",
    scene=OWN,
)
def k11(trial: CheckRun) -> str:
    trial.start()
    first = trial.process
    before = {path: FileIdentity.of(path) for path in _endpoints(trial, EVER)}
    since = trial.kubelet.mark()
    own = _second_instance(trial, since, before)
    identities = {path: FileIdentity.of(path) for path in own.values()}
    mark = trial.kubelet.mark()
    trial.step("SIGTERM to the first instance")
    first.stop()
    trial.settle()
    newest = {resource: path for resource, path in _registered(trial, since) if path not in before}
    for resource, path in own.items():
        if path in before:
            # One name for both: a second instance that notices has made another socket
            # meanwhile, a gap all the same.
            removed = FileIdentity.of(path) != identities[path]
        else:
            removed = not newest[resource].is_socket()
        if removed:
            raise Failed(f"the first instance removed {path.name}, the second one's socket")
    took = trial.until(
        lambda: all(map(trial.is_serving, trial.resources)), trial.limits.recover_seconds
    )
    if took is None:
        raise Failed("no list stream is open after the first instance has ended")
    if took > trial.limits.recover_warn_seconds:
        raise Warned(f"no list stream was open for {took:.1f} s after the first instance's end")
    again = len(trial.registrations(mark))
    return f"{again} registrations after the first instance's end"


def _second_instance(trial: CheckRun, since: Mark, before: _Files) -> dict[str, Path]:
    """Start it and wait until all its resources are registered. Returns its sockets."""

    def own() -> dict[str, Path]:
        return {
            resource: path
            for resource, path in _registered(trial, since)
            if path not in before or FileIdentity.of(path) != before[path]
        }

    second = trial.launch()
    took = trial.until(
        lambda: not second.is_running or len(own()) == len(trial.resources),
        trial.limits.start_seconds,
    )
    if trial.has_ended:
        raise Failed(f"a second instance cannot start: {trial.exit_text()}")
    if took is None:
        raise Failed(f"a second instance did not register in {trial.limits.start_seconds:g} s")
    return own()


@check(
    "K12",
    SHOULD,
    "has a socket name per instance",
    does="compares the endpoints of two instances",
    expects="different names",
    production="taking over a path that another instance serves is not supported by the kubelet's "
    "developers",
    links="k/k#139338, k/k#127821",
    scene=OWN,
)
def k12(trial: CheckRun) -> None:
    trial.start()
    before = _endpoints(trial, EVER)
    since = trial.kubelet.mark()
    second = trial.launch()
    trial.until(
        lambda: not second.is_running or bool(_endpoints(trial, since) - before),
        trial.limits.recover_warn_seconds,
    )
    after = _endpoints(trial, since)
    if not after:
        raise Skipped("a second instance does not register beside the first one: see K11")
    if not after - before:
        raise Warned(f"both instances serve {min(after).name}")


@check(
    "K13",
    SHOULD,
    "keeps the ids of its devices",
    does="compares the ids before and after a restart of the plugin and of the kubelet",
    expects="the same ids",
    production='"previously allocated devices are no longer healthy": running pods die at the next '
    "restart",
    links="DM, k/k#117719",
    scene=OWN,
)
def k13(trial: CheckRun) -> None:
    trial.start()
    before = _devices(trial)
    trial.process.stop()
    trial.relaunch("the plugin's restart")
    _same_devices(trial, before, health=False)
    since = trial.restart_kubelet()
    trial.wait_registered(since, trial.limits.recover_seconds, "the kubelet's restart")
    _same_devices(trial, before, health=False)


@check(
    "K14",
    SHOULD,
    "leaves what containers use",
    does="allocates a device, ends and starts the plugin, and looks at the paths it had named",
    expects="mounts and devices on the host are still there",
    production="running or restarting containers lose their devices",
    links="rdma#118",
    scene=OWN,
)
def k14(trial: CheckRun) -> str:
    trial.start()
    id_ = trial.healthy_ids()[0]
    with trial.client() as client:
        [answer] = client.allocate([id_]).container_responses
    named = [*(each.host_path for each in answer.mounts), *(d.host_path for d in answer.devices)]
    there = [path for path in named if Path(path).exists()]
    trial.process.stop()
    gone = [path for path in there if not Path(path).exists()]
    if gone:
        raise Failed(f"{gone[0]} went with the plugin, though a container may use it")
    trial.relaunch("the plugin's restart")
    gone = [path for path in there if not Path(path).exists()]
    if gone:
        raise Failed(f"{gone[0]} went with the plugin's new start")
    return f"{len(there)} paths of the host"


@check(
    "K15",
    SHOULD,
    "ends with a status other than 0 if it ends for want of a kubelet",
    does="stops the kubelet, removes all sockets, and brings it back",
    expects="a plugin that ends meanwhile has an exit status other than 0, and is registered "
    "within recover_warn_seconds when it is started again",
    production="back-off makes minutes of the gap",
    links="https://github.com/bottlerocket-os/bottlerocket-core-kit/pull/228",
    scene=OWN,
)
def k15(trial: CheckRun) -> str | None:
    trial.start()
    starts = trial.process.starts
    trial.stop_kubelet()
    _remove_sockets(trial.kubelet.plugin_dir)

    def ended() -> bool:
        return trial.process.starts > starts or not trial.process.is_running

    if trial.until(ended, trial.limits.away_seconds) is None:
        raise Skipped("the plugin does not end when the kubelet goes")
    if trial.process.exit_status == 0:
        raise Failed("it ended with exit status 0 when the kubelet went")
    how = trial.exit_text()
    since = trial.kubelet.mark()
    trial.start_kubelet()
    if trial.subject.restart == "never":
        trial.launch()
    took = trial.wait_registered(since, trial.limits.recover_warn_seconds, "the kubelet came back")
    return f"{how}, back after {took:.2f} s"


# -- what several of them do ---------------------------------------------------------------


def _devices(trial: CheckRun) -> Mapping[str, Mapping[str, str]]:
    return {
        resource: {device.ID: device.health for device in trial.devices(resource)}
        for resource in trial.resources
    }


def _same_devices(
    trial: CheckRun, before: Mapping[str, Mapping[str, str]], *, health: bool = True
) -> None:
    for resource, devices in before.items():
        now = {device.ID: device.health for device in trial.devices(resource)}
        lost, new = sorted(devices.keys() - now.keys()), sorted(now.keys() - devices.keys())
        if lost or new:
            raise Failed(f"{resource}: devices lost {lost[:5]}, new {new[:5]}")
        changed = sorted(id_ for id_ in now if now[id_] != devices[id_])
        if health and changed:
            raise Failed(
                f"{resource}: {changed[0]} was {devices[changed[0]]}, is {now[changed[0]]}"
            )


def _once(trial: CheckRun, since: Mark, number: int) -> None:
    for resource in trial.resources:
        count = len(trial.registrations(since, resource))
        if count > 1:
            raise Failed(f"{resource} was registered {count} times after restart {number}")


def _endpoints(trial: CheckRun, since: Mark) -> set[Path]:
    """The sockets of all registrations since then."""
    return {path for _, path in _registered(trial, since)}


def _registered(trial: CheckRun, since: Mark) -> list[tuple[str, Path]]:
    """The resource and the socket of each registration since then."""
    return [
        (str(call.request["resource_name"]), trial.kubelet.plugin_dir / call.request["endpoint"])
        for call in trial.registrations(since)
    ]


def _reregisters(trial: CheckRun, since: Mark, after: str, *, may_end: bool = False) -> str:
    took = trial.until(
        lambda: trial.has_ended or trial.is_registered(since, trial.resources),
        trial.limits.recover_seconds,
    )
    if trial.has_ended:
        if may_end:
            return trial.exit_text()
        raise Failed(f"it ended after {after}: {trial.exit_text()}")
    if took is None:
        raise Failed(
            f"it did not register again within {trial.limits.recover_seconds:g} s after {after}"
        )
    if took > trial.limits.recover_warn_seconds:
        raise Warned(f"it registered again only {took:.1f} s after {after}")
    return f"back after {took:.2f} s"


def _remove_sockets(directory: Path) -> None:
    """As the next start of the kubelet would: its own absence is told by nothing else."""
    for path in directory.iterdir():
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink(missing_ok=True)
