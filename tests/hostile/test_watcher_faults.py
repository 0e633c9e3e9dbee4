"""Plugins in plugins_registry, which the plugin watcher discovers: correct and misbehaving ones.

| fault | test |
|---|---|
| none: registered and notified | test_plugin_is_registered_and_notified |
| wrong type, bad version, bad name | test_invalid_plugin_is_rejected_and_notified |
| GetInfo hangs, fails, is garbage, is not implemented | test_plugin_without_valid_info_is_rejected |
| the notification fails | test_failed_notification_is_retried |
| a name that begins with a dot, a regular file | test_hidden_names_and_regular_files_are_ignored |
| an endpoint without a server, relative, an invalid path | test_invalid_endpoint_is_rejected |
| a socket that is removed | test_removed_socket_deregisters_the_plugin |
| the same file name as another plugin's socket | test_equal_names_in_two_directories_are_two_plugins |
| a socket replaced at once | test_replaced_socket_is_a_new_plugin |
| a registration that fails once | test_failed_registration_is_retried |
| more registrations of one process than allowed | test_plugin_over_the_limit_is_retried_rarely |
| one that is removed during a call | test_socket_removed_during_a_call_is_not_registered |
| one that is removed right after its registration | test_socket_removed_at_registration_is_deregistered |
| 200 silent sockets | test_plugin_is_registered_beside_many_silent_sockets |
| a kubelet restart | test_restart_discovers_plugins_again |
"""  # noqa: E501

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from devicemanager.events.stream import Event, EventKind
from devicemanager.io.clock import Cancel, ManualClock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.registration.dialer import Dialer
from devicemanager.kubelet.settings import Settings
from protos import pluginregistration_v1 as pr
from tests.hostile import hostile, residue
from tests.hostile.conftest import Start, impatient, pod, several

R = hostile.RESOURCE


def info(
    name: str = R,
    type_: str = "DevicePlugin",
    versions: tuple[str, ...] = ("v1beta1",),
    endpoint: str = "",
) -> hostile.Unary:
    answer = pr.PluginInfo(type=type_, name=name, endpoint=endpoint, supported_versions=versions)
    return hostile.constant(answer.SerializeToString())


def announced(
    kubelet: MockKubelet, name: str = "p.sock", **more: hostile.Unary
) -> hostile.RawPlugin:
    return hostile.RawPlugin(kubelet.plugins_registry_dir / name, **{"info": info(), **more})


def notifications(plugin: hostile.RawPlugin, count: int = 1) -> list[tuple[bool, str]]:
    """Wait for ``count`` notifications; return registered and error of each."""
    assert residue.eventually(lambda: len(plugin.notified) >= count)
    return [(status.plugin_registered, status.error) for status in plugin.notified]


def test_plugin_is_registered_and_notified(kubelet: MockKubelet) -> None:
    with announced(kubelet) as plugin:
        kubelet.wait_for_resource(R, 2)
        assert notifications(plugin) == [(True, "")]
        assert kubelet.admit(pod("a", 2)).admitted


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (info(type_="CSIPlugin"), "no handler registered for plugin type: CSIPlugin at socket "),
        (info(type_=""), "no handler registered for plugin type:  at socket "),
        (
            info(versions=("v1alpha1", "v9")),
            "plugin validation failed with err: manager version, v1beta1, is not among plugin "
            "supported versions [v1alpha1 v9]",
        ),
        (info(versions=()), "is not among plugin supported versions []"),
        (
            info(name="kubernetes.io/gpu"),
            "plugin validation failed with err: invalid name of device plugin socket: "
            'the ResourceName "kubernetes.io/gpu" is invalid',
        ),
        (info(name=""), 'the ResourceName "" is invalid'),
        (hostile.constant(b""), "no handler registered for plugin type:  at socket "),
    ],
)
def test_invalid_plugin_is_rejected_and_notified(
    kubelet: MockKubelet, given: hostile.Unary, expected: str
) -> None:
    with announced(kubelet, info=given) as plugin:
        [(registered, error)] = notifications(plugin)
        assert not registered
        assert error.startswith("RegisterPlugin error -- ")
        assert expected in error
        event = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
        assert error in event.message
        assert kubelet.capacity() == {}
        assert plugin.streams == 0


def _failing(request: bytes, context: hostile.Context) -> bytes:
    context.abort(grpc.StatusCode.INTERNAL, "who\nam I?")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (hostile.hang, "code = DeadlineExceeded"),
        (_failing, "code = Internal desc = who am I?"),
        (hostile.constant(b"\xff\xff"), "code = Internal"),
        (None, "code = Unimplemented"),
    ],
)
def test_plugin_without_valid_info_is_rejected(
    kubelet: MockKubelet, given: hostile.Unary | None, expected: str
) -> None:
    path = kubelet.plugins_registry_dir / "p.sock"
    with hostile.RawPlugin(path, info=given) as plugin:
        event = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
        assert event.message.startswith("plugin p.sock: registration handshake failed: rpc error: ")
        assert expected in event.message
        assert "\n" not in event.message
        assert kubelet.capacity() == {}
        assert not plugin.notified


@impatient
@pytest.mark.parametrize("answer", [b"", b"\xff" * 1000])
def test_socket_without_http2_is_rejected(kubelet: MockKubelet, answer: bytes) -> None:
    with hostile.raw_socket(kubelet.plugins_registry_dir / "p.sock", answer):
        event = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
        assert event.message.startswith("plugin p.sock: registration handshake failed: ")
        assert ("does not speak HTTP/2" if answer else "does not respond") in event.message


def test_failed_notification_is_retried(kubelet: MockKubelet) -> None:
    """The plugin is deregistered, and retried until it can be notified (k/k#133335)."""
    answers = iter((_failing, hostile.constant(b"")))
    with announced(kubelet, notify=lambda *call: next(answers)(*call)) as plugin:
        assert notifications(plugin, 2) == [(True, ""), (True, "")]
        kubelet.wait_for_resource(R, 2)
        # Not counted by streams: the first one may be cancelled before it reaches the plugin.
        kubelet.wait_for(lambda: len(kubelet.events.recent(EventKind.REGISTERED)) == 2)
        assert len(kubelet.events.recent(EventKind.STREAM_ENDED)) == 1
        event = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
        assert "who am I?" in event.message


def test_deadlines_of_the_handshake(kubelet: MockKubelet) -> None:
    """The deadlines are the kubelet's."""
    left: dict[str, float] = {}

    def get_info(request: bytes, context: hostile.Context) -> bytes:
        left["GetInfo"] = context.time_remaining()
        return info()(request, context)

    def notified(request: bytes, context: hostile.Context) -> bytes:
        left["NotifyRegistrationStatus"] = context.time_remaining()
        return b""

    with announced(kubelet, info=get_info, notify=notified) as plugin:
        assert notifications(plugin) == [(True, "")]
        kubelet.wait_for(lambda: len(left) == 2)
    assert left["GetInfo"] < 1.5
    assert 1.5 < left["NotifyRegistrationStatus"] < 5.5


def test_hidden_names_and_regular_files_are_ignored(kubelet: MockKubelet) -> None:
    (kubelet.plugins_registry_dir / "file.sock").touch()
    (kubelet.plugins_registry_dir / "directory").mkdir()
    with announced(kubelet, ".hidden.sock", info=info("example.com/hidden")) as hidden:
        with announced(kubelet, "seen.sock"):
            kubelet.wait_for_resource(R, 2)
        assert not hidden.notified
        assert list(kubelet.capacity()) == [R]


@impatient
@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("/nowhere/p.sock", "No such file"),
        ("p.sock", "is relative"),
        ("../p.sock", "is relative"),
        ("/a\0b", "No such file"),
        ("/" + "x" * 300, "has 301 bytes"),
        ("/" + "x/" * 3000, "exceeded (socket path /x/"),
    ],
)
def test_invalid_endpoint_is_rejected(kubelet: MockKubelet, endpoint: str, problem: str) -> None:
    with announced(kubelet, info=info(endpoint=endpoint)) as plugin:
        [(registered, error)] = notifications(plugin)
        assert not registered
        assert error.startswith(
            "RegisterPlugin error -- plugin registration failed with err: "
            "failed to dial device plugin: "
        )
        assert problem in kubelet.events.recent(EventKind.REGISTRATION_REJECTED)[0].message
        assert kubelet.capacity() == {}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_removed_socket_deregisters_the_plugin(
    kubelet: MockKubelet, root: Path, elsewhere: bool
) -> None:
    """Removing the socket deregisters the plugin, even if it still serves elsewhere."""
    other = root / "elsewhere.sock"
    with hostile.RawPlugin(other):
        endpoint = str(other) if elsewhere else ""
        with announced(kubelet, info=info(endpoint=endpoint)) as plugin:
            kubelet.wait_for_resource(R, 2)
            plugin.path.unlink()
            kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
            assert (kubelet.capacity(), kubelet.allocatable()) == ({R: 2}, {R: 0})


@several
def test_equal_names_in_two_directories_are_two_plugins(kubelet: MockKubelet) -> None:
    """They are two plugins: when the newer one disconnects, the older one serves."""
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 2)
        with announced(kubelet, lists=hostile.lists(hostile.devices("d0"))) as newer:
            kubelet.wait_for_resource(R, 1)
            newer.path.unlink()
            kubelet.wait_for_event(EventKind.PROMOTED, after=0)
            assert kubelet.allocatable() == {R: 2}
            assert not kubelet.events.recent(EventKind.REPLACED)


def test_replaced_socket_is_a_new_plugin(kubelet: MockKubelet) -> None:
    """The last of five serves."""
    for number in range(5):
        listed = hostile.lists(hostile.devices(*(f"d{i}" for i in range(number + 1))))
        plugin = announced(kubelet, lists=listed)
        with plugin:
            kubelet.wait_for_resource(R, number + 1)
            assert notifications(plugin) == [(True, "")]
        plugin.path.unlink(missing_ok=True)


class _Timers(ManualClock):
    """A clock that records for when timers are set."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[float] = []

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        cancel = super().call_at(when, callback)
        self.timers.append(when)
        return cancel


def test_failed_registration_is_retried() -> None:
    """A plugin that was not ready needs no new socket; the kubelet's clock decides when."""
    calls, clock = 0, _Timers()

    def options(request: bytes, context: hostile.Context) -> bytes:
        nonlocal calls
        calls += 1
        if calls < 3:
            _failing(request, context)
        return b""

    with MockKubelet(clock=clock) as kubelet, announced(kubelet, options=options) as plugin:
        for waits in ([0.5], [0.5, 1.5]):
            kubelet.wait_for(lambda waits=waits: clock.timers == waits)
            clock.advance(waits[-1] - clock.monotonic())
        kubelet.wait_for_resource(R, 2)
        answers = notifications(plugin, 3)
        assert [registered for registered, _ in answers] == [False, False, True]
        assert (
            "registration failed with err: failed to get device plugin options: " in answers[0][1]
        )
        with announced(kubelet, "q.sock", info=info("example.com/other")):
            kubelet.wait_for_resource("example.com/other", 2)
            # Checked before its stream ends, which begins its grace period.
            assert clock.timers == [0.5, 1.5], "a registered plugin needs no timer"


@pytest.mark.parametrize("version", ["1.35", "1.36"])
def test_plugin_over_the_limit_is_retried_rarely(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is the mock's own, so kubelets before 1.36 retry, too."""

    async def dial(*_: object) -> int:
        return 1  # another process

    monkeypatch.setattr(Dialer, "dial", dial)
    settings = Settings(kubelet_version=version, max_registrations_per_process=1)
    clock = _Timers()
    with MockKubelet(settings=settings, clock=clock) as kubelet, announced(kubelet):
        kubelet.wait_for_resource(R, 2)
        with announced(kubelet, "q.sock", info=info("example.com/other")) as second:
            kubelet.wait_for(lambda: clock.timers == [122])
            [(_, error)] = notifications(second)
            assert "process 1 already has 1 registration: the limit is 1 " in error


def test_socket_removed_during_a_call_is_not_registered(kubelet: MockKubelet) -> None:
    called, removed = threading.Event(), threading.Event()

    def options(request: bytes, context: hostile.Context) -> bytes:
        called.set()
        hostile.until_cancelled(context, or_when=removed)
        return b""

    with announced(kubelet, options=options) as plugin:
        assert called.wait(10)
        plugin.path.unlink()
        wait_for_the_watcher(kubelet)
        removed.set()
        assert residue.eventually(lambda: not connected_to(kubelet, plugin.path))
    assert R not in kubelet.capacity()


def test_socket_removed_at_registration_is_deregistered(kubelet: MockKubelet) -> None:
    """Between the registration and the moment when the watcher records it."""
    path = kubelet.plugins_registry_dir / "p.sock"

    def on_event(event: Event) -> None:
        if event.kind is EventKind.REGISTERED and event.resource == R:
            path.unlink()
            wait_for_the_watcher(kubelet)

    unsubscribe = kubelet.events.subscribe(on_event)
    with announced(kubelet):
        kubelet.wait_for(lambda: R in kubelet.capacity() and kubelet.allocatable()[R] == 0)
        assert residue.eventually(lambda: not connected_to(kubelet, path))
    unsubscribe()


def wait_for_the_watcher(kubelet: MockKubelet) -> None:
    """Wait until the watcher has processed everything that happened so far."""
    called = threading.Event()

    def info(request: bytes, context: hostile.Context) -> bytes:
        called.set()
        return _failing(request, context)

    with hostile.RawPlugin(kubelet.plugins_registry_dir / "next.sock", info=info):
        assert called.wait(10)


def connected_to(kubelet: MockKubelet, path: Path) -> bool:
    connected = kubelet.manager.state.endpoints.connected()
    return any(endpoint.name == str(path) for endpoint in connected)


def test_plugin_is_registered_beside_many_silent_sockets(start: Start) -> None:
    kubelet = start(Settings(dial_timeout=300.0, pod_resources_qps=None))
    silent = kubelet.root / "silent.sock"
    with hostile.raw_socket(silent):
        for number in range(200):
            (kubelet.plugins_registry_dir / f"{number}.sock").hardlink_to(silent)
        before = threading.active_count()
        with announced(kubelet) as plugin:
            kubelet.wait_for_resource(R, 2)
            assert threading.active_count() < before + 40
            assert notifications(plugin) == [(True, "")]
        assert not kubelet.events.recent(EventKind.REGISTRATION_REJECTED)


def test_restart_discovers_plugins_again(root: Path, start: Start) -> None:
    kubelet = start()
    with announced(kubelet) as plugin:
        kubelet.wait_for_resource(R, 2)
        assert kubelet.admit(pod("a", 2, uid="a")).admitted
        for count in range(1, 4):
            # The list can come before the notification, which a restart would cancel.
            assert len(notifications(plugin, count)) == count
            kubelet.restart()
            kubelet.wait_for_resource(R, 2)
            assert kubelet.devices("a") == {"main": {R: ["d0", "d1"]}}
        assert len(notifications(plugin, 4)) == 4
        shutil.rmtree(kubelet.plugins_registry_dir)
        kubelet.restart()
        assert kubelet.allocatable() == {R: 0}
