"""R: how a plugin registers."""

from __future__ import annotations

import os
import re
import shutil
import socket
from functools import partial
from pathlib import Path

from devicemanager.conformance.check_run import EVER, CheckRun
from devicemanager.conformance.outcomes import Failed, Scene, Severity, Skipped, Warned
from devicemanager.conformance.registry import check
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.events.calls import Call, Mark
from podresources.sockets import MAX_PATH_BYTES

MUST, SHOULD = Severity.MUST, Severity.SHOULD
_REAL_DIRECTORY = "/var/lib/kubelet/device-plugins/"
_TOO_LONG = re.compile(r"path.* too long|too long.*path|bind: invalid argument", re.IGNORECASE)
"""What Python, gRPC and Go say of a socket's path with more bytes than the kernel takes."""


@check(
    "R01",
    MUST,
    "registers with the kubelet",
    does="starts the kubelet, then the plugin",
    expects="Register with version v1beta1 and a first list within start_seconds",
    production="the resource never appears on the node",
    links="DOC, DM",
    scene=Scene.OWN,
)
def r01(trial: CheckRun) -> str:
    trial.start_kubelet()
    since = trial.kubelet.mark()
    trial.launch()
    took = trial.wait_registered(since, trial.limits.start_seconds, "its start")
    for call in trial.registrations(since):
        if call.request["version"] != "v1beta1":
            raise Failed(f"version is {call.request['version']!r}, not v1beta1")
    return f"registered after {took:.2f} s"


@check(
    "R02",
    MUST,
    "serves before it registers",
    does="calls GetDevicePluginOptions while Register waits for its answer, as the kubelet does "
    "since 1.25",
    expects="an answer within 10 s",
    production='"failed to dial device plugin: context deadline exceeded"; many plugins broke '
    "with Kubernetes 1.25",
    links="DOC, k/k#112395, kubevirt#8451, gdp#35, dpm#18",
    scene=Scene.OWN,
    unregistered=True,
)
def r02(trial: CheckRun) -> None:
    trial.start_kubelet()
    since = trial.kubelet.mark()
    trial.launch()

    def answered() -> bool:
        return bool(trial.registrations(since, code=None)) or trial.has_ended

    trial.until(answered, trial.limits.start_seconds + 10)
    calls = trial.registrations(since, code=None)
    if not calls:
        if "Register" in {call.rpc for call in trial.kubelet.calls.in_progress}:
            raise Failed("the answer to Register had to wait for the plugin, and never came")
        raise Skipped("it did not try to register: see R01")
    if calls[0].code == "OK":
        return
    if not _is_dialed(calls[0]):
        raise Skipped("its Register is rejected before it is dialed: see R01")
    raise Failed(f"the first Register failed: {calls[0].message}")


@check(
    "R03",
    MUST,
    "names its socket by file name",
    does="looks at the endpoint of Register",
    expects="a bare file name of a unix socket in the plugin directory",
    production="the kubelet joins directory and endpoint, and dials nothing",
    links="PROTO, DM",
    unregistered=True,
)
def r03(trial: CheckRun) -> None:
    for call in _attempts(trial):
        endpoint = str(call.request["endpoint"])
        if "/" in endpoint or endpoint in ("", ".", ".."):
            raise Failed(f"{call.resource}: the endpoint is {endpoint!r}, which is no file name")
        if call.code == "OK" and not (trial.kubelet.plugin_dir / endpoint).is_socket():
            raise Failed(f"{call.resource}: {endpoint} is no socket in the plugin directory")


@check(
    "R04",
    MUST,
    "registers a valid resource name",
    does="looks at the resource's name",
    expects="an extended resource: domain/name, neither *kubernetes.io nor requests.*",
    production='"the ResourceName ... is invalid"',
    links="DM",
    unregistered=True,
)
def r04(trial: CheckRun) -> None:
    for call in _attempts(trial):
        name = str(call.request["resource_name"])
        if not is_extended_resource_name(name):
            raise Failed(f"the kubelet rejects {name!r}")


@check(
    "R05",
    MUST,
    "has a socket path that fits",
    does="computes the length of the socket's path in /var/lib/kubelet/device-plugins; of a "
    "plugin that does not register, reads what it says",
    expects=f"at most {MAX_PATH_BYTES} bytes",
    production='"bind: invalid argument", for long resource names only',
    links="DM",
    unregistered=True,
)
def r05(trial: CheckRun) -> str:
    for line in () if trial.registrations(EVER) else trial.process.output():
        if _TOO_LONG.search(line):
            raise Failed(f"it cannot bind its socket: {line[:200]}")
    longest = 0
    for call in _attempts(trial):
        path = _REAL_DIRECTORY + Path(str(call.request["endpoint"])).name
        length = len(os.fsencode(path))
        if length > MAX_PATH_BYTES:
            raise Failed(f"{path} has {length} bytes, the kernel allows {MAX_PATH_BYTES}")
        longest = max(longest, length)
    return f"{longest} bytes"


@check(
    "R06",
    MUST,
    "bears a rejected registration",
    does="rejects Register, as a kubelet does that does not like the plugin",
    expects="the plugin ends with a status other than 0, or tries again with a back-off of 1 s "
    "or more, not more than register_attempts times in 30 s; it does not stay idle for ever",
    production="a hot loop in the kubelet's log, or a plugin that runs with 0 devices",
    links="PROTO, k/k#52190, kubevirt#6903",
    scene=Scene.OWN,
)
def r06(trial: CheckRun) -> str:
    limits = trial.limits
    trial.start_kubelet()
    trial.kubelet.faults.set("reject-register", text="rejected by the conformance suite")
    since = trial.kubelet.mark()
    trial.launch()

    def attempts() -> int:
        return len(trial.registrations(since, code=None))

    if trial.until(lambda: bool(attempts()) or trial.has_stopped, limits.start_seconds) is None:
        raise Failed(f"it did not try to register within {limits.start_seconds:g} s")
    trial.until(lambda: trial.has_stopped, limits.register_window_seconds)
    if trial.has_stopped:
        return _ended_rejected(trial)
    # The first attempt begins the window.
    allowed = 1 + limits.register_attempts * limits.register_window_seconds / 30
    if attempts() / len(trial.resources) > allowed:
        raise Failed(
            f"{attempts()} attempts in {limits.register_window_seconds:g} s, "
            f"more than {allowed:g} for each resource"
        )
    if attempts() > 1:
        return f"{attempts()} attempts in {limits.register_window_seconds:g} s"
    # One attempt so far: it may wait long, but it must come back once the kubelet takes it.
    trial.kubelet.faults.clear()
    trial.step("registrations are taken again")
    took = trial.until(
        lambda: trial.has_stopped or trial.is_registered(since, trial.resources),
        limits.recover_seconds,
    )
    if trial.has_stopped:
        return _ended_rejected(trial)
    if took is None:
        raise Failed(
            "after one rejection it neither ended nor registered again within "
            f"{limits.recover_seconds:g} s"
        )
    return f"came back after {took:.1f} s"


def _ended_rejected(trial: CheckRun) -> str:
    if trial.process.exit_status == 0:
        raise Failed("it ended with exit status 0 although it was rejected")
    return trial.exit_text()


@check(
    "R07",
    MUST,
    "waits for a slow kubelet",
    does="holds up the answer to Register for register_delay_seconds, with the options asked and "
    "the list opened meanwhile",
    expects="the plugin serves both, waits, and does not register twice",
    production='"error registering ... context deadline exceeded" on loaded nodes',
    links="DM, kubevirt#4748",
    scene=Scene.OWN,
)
def r07(trial: CheckRun) -> None:
    limits = trial.limits
    trial.start_kubelet()
    trial.kubelet.faults.set("delay-register", seconds=limits.register_delay_seconds)
    since = trial.kubelet.mark()
    trial.launch()

    # One after the other: a plugin may register its resources so.
    seconds = limits.start_seconds + limits.register_delay_seconds * len(trial.resources)
    for resource in trial.resources:
        if trial.until(partial(_is_answered, trial, resource, since), seconds) is None:
            raise Failed("Register was given up")
        calls = trial.registrations(since, resource, code=None)
        if not calls:
            raise Failed(f"it ended while Register waited: {trial.exit_text()}")
        call = calls[0]
        if call.code != "OK":
            raise Failed(f"it gave up waiting: Register ended with {call.code}")
        if not any(each.number < call.number for each in trial.lists(resource, since)):
            raise Failed("no list came while Register waited for its answer")
    trial.kubelet.faults.clear()
    trial.settle()
    for resource in trial.resources:
        count = len(trial.registrations(since, resource, code=None))
        if count > 1:
            raise Failed(f"it registered {resource} {count} times")
    trial.check_alive("a slow registration")


@check(
    "R08",
    SHOULD,
    "may start before the kubelet",
    does="starts the plugin away_seconds before the kubelet: with no plugin directory, with an "
    "empty one, and with a dead kubelet.sock",
    expects="registers within start_seconds of the kubelet's start, or has ended with a status "
    "other than 0",
    production="the node boots with 0 devices until somebody deletes the pod",
    links="https://github.com/bottlerocket-os/bottlerocket/issues/4250, gdp#33",
    scene=Scene.OWN,
)
def r08(trial: CheckRun) -> str:
    directory, told = trial.kubelet.plugin_dir, []
    for name, prepare in (
        ("no directory", partial(shutil.rmtree, directory, ignore_errors=True)),
        ("an empty one", partial(_empty, directory)),
        ("a dead kubelet.sock", partial(_leave_dead_socket, trial.kubelet.plugin_socket)),
    ):
        trial.stop_kubelet()
        prepare()
        trial.step(f"leave {name}")
        told.append(f"{name}: {_started_before_the_kubelet(trial)}")
    return "; ".join(told)


def _started_before_the_kubelet(trial: CheckRun) -> str:
    process = trial.launch()
    trial.settle(trial.limits.away_seconds)
    if not trial.has_ended:
        since = trial.kubelet.mark()
        trial.start_kubelet()
        try:
            took = trial.wait_registered(since, trial.limits.start_seconds, "the kubelet's start")
            process.stop()
            return f"{took:.2f} s"
        except Failed:
            if not trial.has_ended:
                raise
    if process.exit_status == 0:
        raise Failed("it ended with exit status 0 before the kubelet came")
    return trial.exit_text()


@check(
    "R09",
    MUST,
    "registers once",
    does="leaves the plugin alone for idle_seconds",
    expects="no Register while the list stream of its resource is open",
    production='older kubelets leak connections; newer ones answer "device plugin already '
    'connected"',
    links="k/k#124716, k/k#139765, k/k#139338",
    scene=Scene.IDLE,
)
def r09(trial: CheckRun) -> None:
    for resource in trial.resources:
        again = len(trial.registrations(resource=resource, code=None))
        # After the end of its stream a plugin has to: W02 is about that.
        if again > len(trial.ended_streams(resource)):
            raise Failed(f"{resource} was registered {again} times more, unasked")


@check(
    "R10",
    SHOULD,
    "registers its resources independently",
    does="rejects one of the plugin's resources",
    expects="distinct endpoints, and the other resources are registered",
    production="one bad resource hides all",
    links="DM",
    scene=Scene.OWN,
)
def r10(trial: CheckRun) -> None:
    if len(trial.resources) < 2:
        raise Skipped("the plugin has one resource")
    rejected, *others = trial.resources
    trial.start_kubelet()
    trial.kubelet.faults.set(
        "reject-register", resource=rejected, text="rejected by the conformance suite"
    )
    since = trial.kubelet.mark()
    trial.launch()
    seconds = trial.limits.start_seconds
    if trial.until(lambda: trial.is_registered(since, others), seconds) is None:
        raise Failed(f"with {rejected} rejected, {', '.join(others)} did not come up")
    endpoints = {trial.endpoint(resource) for resource in others}
    if len(endpoints) < len(others):
        raise Failed("several resources share an endpoint")


@check(
    "R11",
    SHOULD,
    "does not heed a DEPRECATION file",
    does="puts a file DEPRECATION into the plugin directory before the start",
    expects="the plugin registers",
    production="plugins built on the kubelet's own stub skip their registration without a word",
    links="DM",
    scene=Scene.OWN,
)
def r11(trial: CheckRun) -> None:
    trial.start_kubelet()
    (trial.kubelet.plugin_dir / "DEPRECATION").write_bytes(b"")
    trial.relaunch("its start")


@check(
    "R12",
    SHOULD,
    "can be found by the plugin watcher",
    does="looks for the plugin's socket in plugins_registry",
    expects="GetInfo within 1 s with type DevicePlugin and version v1beta1, the notification is "
    "accepted, the file's name begins with no dot",
    production="the kubelet gives GetInfo 1 s and tries it seldom",
    links="WATCHER, k/k#127457, sriov#411",
)
def r12(trial: CheckRun) -> None:
    if any(path.is_socket() for path in trial.kubelet.plugins_registry_dir.rglob("*")):
        trial.until(
            lambda: bool(trial.kubelet.calls(rpc="NotifyRegistrationStatus")),
            trial.limits.refresh_seconds,
        )
    found = trial.kubelet.calls(rpc="GetInfo")
    if not found:
        raise Skipped("the plugin has no socket in plugins_registry")
    for call in found:
        if call.code != "OK":
            raise Failed(f"GetInfo ended with {call.code}: {call.message}")
        info = call.response or {}
        if info.get("type") != "DevicePlugin" or "v1beta1" not in info.get(
            "supported_versions", ()
        ):
            raise Failed(f"GetInfo answered {info}")
        if Path(call.plugin).name.startswith("."):
            raise Failed(f"the socket {Path(call.plugin).name} is hidden")
    told = trial.kubelet.calls(rpc="NotifyRegistrationStatus")
    if any(call.code != "OK" for call in told):
        raise Failed("NotifyRegistrationStatus failed")


@check(
    "R13",
    SHOULD,
    "tells the same options twice",
    does="compares the options in Register with those of GetDevicePluginOptions",
    expects="equal",
    production="two sources of truth drift apart; the kubelet trusts the second alone",
    links="DM, hami#2848",
)
def r13(trial: CheckRun) -> None:
    for resource in trial.resources:
        call = trial.registrations(EVER, resource)[-1]
        told = call.request.get("options") or {}
        with trial.client(resource) as client:
            options = client.options()
        for name in ("pre_start_required", "get_preferred_allocation_available"):
            first, second = bool(told.get(name)), bool(getattr(options, name))
            if first != second:
                raise Warned(
                    f"{resource}: {name} is {first} in Register and {second} in "
                    "GetDevicePluginOptions"
                )


def _is_answered(trial: CheckRun, resource: str, since: Mark) -> bool:
    return trial.has_ended or bool(trial.registrations(since, resource, code=None))


def _is_dialed(register: Call) -> bool:
    """Whether the kubelet has come as far as the plugin's socket."""
    request = register.request
    return (
        request["version"] == "v1beta1"
        and is_extended_resource_name(str(request["resource_name"]))
        and "/" not in str(request["endpoint"])
    )


def _attempts(trial: CheckRun) -> list[Call]:
    """The latest Register of each resource, rejected ones too. Raises Skipped without any."""
    calls = {
        str(call.request["resource_name"]): call for call in trial.registrations(EVER, code=None)
    }
    if not calls:
        raise Skipped("it did not try to register: see R01")
    return list(calls.values())


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


def _leave_dead_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(os.fspath(path))
