"""Plugins that announce themselves in plugins_registry, well and badly.

| fault | test |
|---|---|
| none: registered and told so | test_a_good_plugin |
| wrong type, bad version, bad name | test_a_rejected_plugin |
| GetInfo hangs, fails, is garbage, is not there | test_a_plugin_that_does_not_say_who_it_is |
| the notification fails | test_a_plugin_that_does_not_want_to_know |
| a name that begins with a dot, a plain file | test_what_is_not_asked |
| an endpoint nobody serves, relative, no path at all | test_an_endpoint_that_cannot_be |
| a socket that vanishes | test_a_socket_that_vanishes |
| the name of another plugin's socket | test_equal_names_in_two_directories |
| a socket replaced at once | test_a_socket_that_is_replaced |
| a registration that fails once | test_a_failed_registration_is_tried_again |
| one that vanishes while asked | test_a_socket_that_vanishes_while_it_is_asked |
| one that vanishes once accepted | test_a_socket_that_vanishes_while_it_is_taken_in |
| 200 sockets that say nothing | test_a_good_plugin_beside_many_that_say_nothing |
| a kubelet restart | test_a_restart_finds_it_again |
"""

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


def told(plugin: hostile.RawPlugin, count: int = 1) -> list[tuple[bool, str]]:
    """What the plugin was notified of, once it was."""
    assert residue.eventually(lambda: len(plugin.notified) >= count)
    return [(status.plugin_registered, status.error) for status in plugin.notified]


def test_a_good_plugin(kubelet: MockKubelet) -> None:
    with announced(kubelet) as plugin:
        kubelet.wait_for_resource(R, 2)
        assert told(plugin) == [(True, "")]
        assert kubelet.admit(pod("a", 2)).admitted


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (info(type_="CSIPlugin"), "no handler registered for plugin type: CSIPlugin at socket "),
        (info(type_=""), "no handler registered for plugin type:  at socket "),
        (info(versions=("v1alpha1", "v9")), 'requested API version "v1alpha1,v9" is not supported'),
        (info(versions=()), 'requested API version "" is not supported'),
        (info(name="kubernetes.io/gpu"), 'the ResourceName "kubernetes.io/gpu" is invalid'),
        (info(name=""), 'the ResourceName "" is invalid'),
        (hostile.constant(b""), "no handler registered for plugin type:  at socket "),
    ],
)
def test_a_rejected_plugin(kubelet: MockKubelet, given: hostile.Unary, expected: str) -> None:
    with announced(kubelet, info=given) as plugin:
        [(registered, error)] = told(plugin)
        assert not registered
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
def test_a_plugin_that_does_not_say_who_it_is(
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
def test_a_socket_that_is_no_plugin(kubelet: MockKubelet, answer: bytes) -> None:
    with hostile.raw_socket(kubelet.plugins_registry_dir / "p.sock", answer):
        event = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
        assert event.message.startswith("plugin p.sock: registration handshake failed: ")
        assert ("does not speak HTTP/2" if answer else "does not respond") in event.message


def test_a_plugin_that_does_not_want_to_know(kubelet: MockKubelet) -> None:
    """Deregistered, and tried again until it can be told (k/k#133335)."""
    answers = iter((_failing, hostile.constant(b"")))
    with announced(kubelet, notify=lambda *call: next(answers)(*call)) as plugin:
        assert told(plugin, 2) == [(True, ""), (True, "")]
        kubelet.wait_for_resource(R, 2)
        kubelet.wait_for(lambda: plugin.streams == 2)
        assert len(kubelet.events.recent(EventKind.STREAM_ENDED)) == 1
        event = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
        assert "who am I?" in event.message


def test_how_long_a_plugin_may_take(kubelet: MockKubelet) -> None:
    """As long as the kubelet gives it."""
    left: dict[str, float] = {}

    def asked(request: bytes, context: hostile.Context) -> bytes:
        left["GetInfo"] = context.time_remaining()
        return info()(request, context)

    def notified(request: bytes, context: hostile.Context) -> bytes:
        left["NotifyRegistrationStatus"] = context.time_remaining()
        return b""

    with announced(kubelet, info=asked, notify=notified) as plugin:
        assert told(plugin) == [(True, "")]
        kubelet.wait_for(lambda: len(left) == 2)
    assert left["GetInfo"] < 1.5
    assert 1.5 < left["NotifyRegistrationStatus"] < 5.5


def test_what_is_not_asked(kubelet: MockKubelet) -> None:
    (kubelet.plugins_registry_dir / "file.sock").touch()
    (kubelet.plugins_registry_dir / "directory").mkdir()
    with announced(kubelet, ".hidden.sock", info=info("example.com/hidden")) as hidden:
        with announced(kubelet, "seen.sock"):
            kubelet.wait_for_resource(R, 2)
        assert not hidden.notified
        assert list(kubelet.capacity()) == [R]


@impatient
@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("/nowhere/p.sock", "No such file"),
        ("p.sock", "is relative"),
        ("../p.sock", "is relative"),
        ("/a\0b", "No such file"),
        ("/" + "x" * 300, "has 301 bytes"),
        ("/" + "x/" * 3000, "exceeded (socket path /x/"),
    ],
)
def test_an_endpoint_that_cannot_be(kubelet: MockKubelet, endpoint: str, said: str) -> None:
    with announced(kubelet, info=info(endpoint=endpoint)) as plugin:
        [(registered, error)] = told(plugin)
        assert not registered
        assert error.startswith("failed to dial device plugin: ")
        assert said in kubelet.events.recent(EventKind.REGISTRATION_REJECTED)[0].message
        assert kubelet.capacity() == {}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_socket_that_vanishes(kubelet: MockKubelet, root: Path, elsewhere: bool) -> None:
    """Removal is deregistration, also when the plugin goes on serving somewhere else."""
    other = root / "elsewhere.sock"
    with hostile.RawPlugin(other):
        endpoint = str(other) if elsewhere else ""
        with announced(kubelet, info=info(endpoint=endpoint)) as plugin:
            kubelet.wait_for_resource(R, 2)
            plugin.path.unlink()
            kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
            assert (kubelet.capacity(), kubelet.allocatable()) == ({R: 2}, {R: 0})


@several
def test_equal_names_in_two_directories(kubelet: MockKubelet) -> None:
    """Two plugins, not one that registers again: when the newer leaves the older serves."""
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 2)
        with announced(kubelet, lists=hostile.lists(hostile.devices("d0"))) as newer:
            kubelet.wait_for_resource(R, 1)
            newer.path.unlink()
            kubelet.wait_for_event(EventKind.PROMOTED, after=0)
            assert kubelet.allocatable() == {R: 2}
            assert not kubelet.events.recent(EventKind.REPLACED)


def test_a_socket_that_is_replaced(kubelet: MockKubelet) -> None:
    """At once, again and again: the last one serves."""
    for number in range(5):
        listed = hostile.lists(hostile.devices(*(f"d{i}" for i in range(number + 1))))
        plugin = announced(kubelet, lists=listed)
        with plugin:
            kubelet.wait_for_resource(R, number + 1)
            assert told(plugin) == [(True, "")]
        plugin.path.unlink(missing_ok=True)


class _Timers(ManualClock):
    """Notes what it is asked to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        cancel = super().call_at(when, callback)
        self.asked.append(when)
        return cancel


def test_a_failed_registration_is_tried_again() -> None:
    """Without another socket: a plugin that was not ready recovers by itself, as soon as the
    kubelet's clock says so."""
    asked, clock = 0, _Timers()

    def options(request: bytes, context: hostile.Context) -> bytes:
        nonlocal asked
        asked += 1
        if asked < 3:
            _failing(request, context)
        return b""

    with MockKubelet(clock=clock) as kubelet, announced(kubelet, options=options) as plugin:
        for waits in ([0.5], [0.5, 1.5]):
            kubelet.wait_for(lambda waits=waits: clock.asked == waits)
            clock.advance(waits[-1] - clock.monotonic())
        kubelet.wait_for_resource(R, 2)
        answers = told(plugin, 3)
        assert [registered for registered, _ in answers] == [False, False, True]
        assert answers[0][1].startswith("failed to get device plugin options: ")
        with announced(kubelet, "q.sock", info=info("example.com/other")):
            kubelet.wait_for_resource("example.com/other", 2)
            # Before its stream ends, which begins its grace period.
            assert clock.asked == [0.5, 1.5], "one that is registered is left alone"


def test_a_socket_that_vanishes_while_it_is_asked(kubelet: MockKubelet) -> None:
    asked, gone = threading.Event(), threading.Event()

    def options(request: bytes, context: hostile.Context) -> bytes:
        asked.set()
        hostile.until_cancelled(context, or_when=gone)
        return b""

    with announced(kubelet, options=options) as plugin:
        assert asked.wait(10)
        plugin.path.unlink()
        next_one_is_seen(kubelet)
        gone.set()
        assert residue.eventually(lambda: not connected_to(kubelet, plugin.path))
    assert R not in kubelet.capacity()


def test_a_socket_that_vanishes_while_it_is_taken_in(kubelet: MockKubelet) -> None:
    """Between the registration and the moment that the watcher learns of it."""
    path = kubelet.plugins_registry_dir / "p.sock"

    def on_event(event: Event) -> None:
        if event.kind is EventKind.REGISTERED and event.resource == R:
            path.unlink()
            next_one_is_seen(kubelet)

    unsubscribe = kubelet.events.subscribe(on_event)
    with announced(kubelet):
        kubelet.wait_for(lambda: R in kubelet.capacity() and kubelet.allocatable()[R] == 0)
        assert residue.eventually(lambda: not connected_to(kubelet, path))
    unsubscribe()


def next_one_is_seen(kubelet: MockKubelet) -> None:
    """Wait until the watcher has seen everything that happened so far."""
    seen = threading.Event()

    def info(request: bytes, context: hostile.Context) -> bytes:
        seen.set()
        return _failing(request, context)

    with hostile.RawPlugin(kubelet.plugins_registry_dir / "next.sock", info=info):
        assert seen.wait(10)


def connected_to(kubelet: MockKubelet, path: Path) -> bool:
    connected = kubelet.manager.state.endpoints.connected()
    return any(endpoint.name == str(path) for endpoint in connected)


def test_a_good_plugin_beside_many_that_say_nothing(start: Start) -> None:
    kubelet = start(Settings(dial_timeout=300.0, pod_resources_qps=None))
    silent = kubelet.root / "silent.sock"
    with hostile.raw_socket(silent):
        for number in range(200):
            (kubelet.plugins_registry_dir / f"{number}.sock").hardlink_to(silent)
        before = threading.active_count()
        with announced(kubelet) as plugin:
            kubelet.wait_for_resource(R, 2)
            assert threading.active_count() < before + 40
            assert told(plugin) == [(True, "")]
        assert not kubelet.events.recent(EventKind.REGISTRATION_REJECTED)


def test_a_restart_finds_it_again(root: Path, start: Start) -> None:
    kubelet = start()
    with announced(kubelet) as plugin:
        kubelet.wait_for_resource(R, 2)
        assert kubelet.admit(pod("a", 2, uid="a")).admitted
        for lives in range(1, 4):
            # Its list may come before the notification, which a restart would cut off.
            assert len(told(plugin, lives)) == lives
            kubelet.restart()
            kubelet.wait_for_resource(R, 2)
            assert kubelet.devices("a") == {"main": {R: ["d0", "d1"]}}
        assert len(told(plugin, 4)) == 4
        shutil.rmtree(kubelet.plugins_registry_dir)
        kubelet.restart()
        assert kubelet.allocatable() == {R: 0}
