"""Registrations that must fail, and registrations that must not affect each other.

| fault | test |
|---|---|
| bad version, bad name, the order of the checks | test_invalid_registration_is_rejected |
| endpoint `../x`, absolute, empty, 300 characters, NUL (Q23) | test_endpoint_must_be_a_file_name |
| the device manager rejects it, or fails | test_rejection_by_the_manager_closes_the_connection |
| an endpoint without a server: absent, stale, a file, a path too long for a socket | test_endpoint_without_a_server_is_rejected |
| a socket that hangs, or does not speak HTTP/2 | test_socket_without_http2_is_rejected |
| a socket that responds slowly | test_slow_plugin_is_registered |
| what the kubelet sends to a socket first | test_dialer_sends_an_http2_preface_first |
| GetDevicePluginOptions hangs, fails, sends garbage | test_failing_options_reject_the_registration |
| no thread is left to dial, or to send the response | test_response_is_sent_without_a_thread_for_it |
| memory of failed registrations | test_failed_registration_leaves_no_task |
| 200 registrations in a row | test_two_hundred_registrations_leak_nothing |
| 40 failed ones (Q3) | test_failed_registrations_leak_nothing |
| the late end of an old plugin's stream (Q1) | test_end_of_an_old_stream_does_not_affect_the_new_plugin |
| re-registration of the same socket (Q2) | test_reregistration_replaces_the_connection |
| several plugins of one resource, promotion | test_promotion_keeps_allocatable |
| stop while Register dials or asks for options | test_stop_does_not_wait_for_a_registration |
| stop during many registrations | test_stop_during_many_registrations |
| another server has replaced kubelet.sock | test_stop_does_not_remove_the_socket_of_another_server |
| start while it runs | test_second_start_is_rejected |
"""  # noqa: E501

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor

import attrs
import grpc
import pytest

from devicemanager.core import messages
from devicemanager.core.errors import EndpointError, RequestError
from devicemanager.core.ids import ResourceName
from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.registration.registrar import Registrar
from devicemanager.kubelet.settings import Settings
from tests.hostile import hostile, residue
from tests.hostile.conftest import IMPATIENT, Start, impatient, pod, several

R = hostile.RESOURCE


def assert_rejected(kubelet: MockKubelet, reason: str | None, expected: str) -> None:
    """Check that response and event have the reason, and that there is no resource."""
    assert reason is not None
    assert expected in reason
    event = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
    assert reason in event.message
    assert event.is_warning
    assert "\n" not in event.message
    assert kubelet.capacity() == {}


@pytest.mark.parametrize(
    ("version", "resource", "expected"),
    [
        ("v9", R, messages.BAD_VERSION.format(version="v9")),
        ("", R, messages.BAD_VERSION.format(version="")),
        ("v9", "x", messages.BAD_VERSION.format(version="v9")),
        ("v1beta1", "x", messages.BAD_RESOURCE_NAME.format(resource="x")),
        ("v1beta1", "", messages.BAD_RESOURCE_NAME.format(resource="")),
        ("v1beta1", "kubernetes.io/gpu", "is invalid"),
        ("v1beta1", "a/b\n/c", r'the ResourceName "a/b\n/c" is invalid'),
        ("v1\n", R, r'requested API version "v1\n" is not'),
        ("v1beta1", "example.com/" + "x" * 64, "is invalid"),
    ],
)
def test_invalid_registration_is_rejected(
    kubelet: MockKubelet, version: str, resource: str, expected: str
) -> None:
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock") as plugin:
        reason = hostile.register(kubelet.plugin_socket, "p.sock", resource, version)
        assert_rejected(kubelet, reason, expected)
        assert plugin.streams == 0
    event = kubelet.events.recent(EventKind.REGISTRATION_REJECTED)[-1]
    assert event.message.endswith(f" rejected: {reason}")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EndpointError("the kubelet is stopping"), "the kubelet is stopping"),
        (ZeroDivisionError("x"), "a bug of the device manager: ZeroDivisionError('x')"),
    ],
)
def test_rejection_by_the_manager_closes_the_connection(
    kubelet: MockKubelet, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    def reject(*_: object) -> None:
        raise error

    monkeypatch.setattr(kubelet.manager.plugins, "connect", reject)
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        before = residue.connections(kubelet.root)
        assert hostile.register(kubelet.plugin_socket, "p.sock") == expected
        if isinstance(error, EndpointError):
            assert residue.eventually(lambda: residue.connections(kubelet.root) == before)
        else:
            with pytest.raises(ZeroDivisionError):
                kubelet.check()


def test_requests_to_a_plugin_are_empty(kubelet: MockKubelet) -> None:
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 2)
        sent = {each.rpc: each.request_bytes for each in kubelet.calls(R)}
    del sent["Register"]
    assert sent == {"GetDevicePluginOptions": b"", "ListAndWatch": b""}


@pytest.mark.parametrize(
    "endpoint", ["../x", "/tmp/x", "", ".", "..", "a/b", "x" * 300, "nul\0nul", "../p.sock"]
)
def test_endpoint_must_be_a_file_name(kubelet: MockKubelet, endpoint: str) -> None:
    with hostile.RawPlugin(kubelet.root / "p.sock") as outside:
        reason = hostile.register(kubelet.plugin_socket, endpoint)
        assert_rejected(kubelet, reason, "failed to dial device plugin: endpoint ")
        assert outside.streams == 0


@impatient
@pytest.mark.parametrize("what", ["absent", "dead", "file", "directory", "long"])
def test_endpoint_without_a_server_is_rejected(kubelet: MockKubelet, what: str) -> None:
    name = "x" * 200 if what == "long" else "p.sock"
    path = kubelet.plugin_dir / name
    if what == "dead":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    elif what == "directory":
        path.mkdir()
    elif what != "absent":
        path.touch()
    reason = hostile.register(kubelet.plugin_socket, name)
    assert_rejected(kubelet, reason, "failed to dial device plugin: ")
    assert reason == "failed to dial device plugin: context deadline exceeded"
    event = kubelet.events.recent(EventKind.REGISTRATION_REJECTED)[-1]
    assert str(path) in event.message
    assert ("the kernel allows 107" in event.message) is (what == "long")


@impatient
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 1000])
def test_socket_without_http2_is_rejected(kubelet: MockKubelet, answer: bytes) -> None:
    with hostile.raw_socket(kubelet.plugin_dir / "p.sock", answer):
        reason = hostile.register(kubelet.plugin_socket, "p.sock")
        assert_rejected(kubelet, reason, "failed to dial device plugin: context deadline exceeded")
        event = kubelet.events.recent(EventKind.REGISTRATION_REJECTED)[-1]
        assert ("does not speak HTTP/2" if answer else "does not respond") in event.message


def test_slow_plugin_is_registered(kubelet: MockKubelet) -> None:
    path = kubelet.plugin_dir / "p.sock"
    with (
        hostile.RawPlugin(kubelet.root / "slow.sock") as plugin,
        hostile.slow_relay(path, plugin.path, seconds=0.15),
    ):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R)


def test_registration_without_a_thread_to_dial_is_rejected(
    kubelet: MockKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Registrar, task: Coroutine[object, object, object]) -> None:
        task.close()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Registrar, "run", run)
    rejection = hostile.register(kubelet.plugin_socket, "p.sock")
    assert rejection == "the kubelet cannot dial the plugin: can't start new thread"


def test_response_is_sent_without_a_thread_for_it(
    kubelet: MockKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is sent on another thread."""
    start = threading.Thread.start

    def no_thread(thread: threading.Thread) -> None:
        if thread.name == "registration":
            raise RuntimeError("can't start new thread")
        start(thread)

    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock") as plugin:
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        assert residue.eventually(lambda: plugin.streams == 2)


def test_failed_registration_leaves_no_task(start: Start) -> None:
    """Up to v1.24, the plugin was dialed after Register had returned."""
    kubelet = start(attrs.evolve(IMPATIENT, kubelet_version="1.24"))

    def ended() -> int:
        gc.collect()  # tasks that are not referenced any more
        return sum(isinstance(each, asyncio.Task) and each.done() for each in gc.get_objects())

    assert hostile.register(kubelet.plugin_socket, "absent.sock") is None
    kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
    before = ended()
    for number in range(3):
        latest = kubelet.events.latest
        assert hostile.register(kubelet.plugin_socket, f"{number}.sock") is None
        kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=latest)
    assert residue.eventually(lambda: ended() <= before)


@impatient
def test_dialer_sends_an_http2_preface_first(kubelet: MockKubelet) -> None:
    """An HTTP/2 client preface with empty settings (RFC 9113, 3.4), and nothing else."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(kubelet.plugin_dir / "p.sock"))
        listening.listen()
        assert hostile.register(kubelet.plugin_socket, "p.sock") is not None
        peer, _ = listening.accept()
        with peer:
            settings = b"\0\0\0\x04\0\0\0\0\0"
            assert peer.recv(1000) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings


def _failing(request: bytes, context: hostile.Context) -> bytes:
    context.abort(grpc.StatusCode.INTERNAL, "no options today")


def _late(request: bytes, context: hostile.Context) -> bytes:
    context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "its own")


@impatient
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (hostile.hang, "rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
        (_late, "rpc error: code = DeadlineExceeded desc = its own"),
        (_failing, "rpc error: code = Internal desc = no options today"),
        (hostile.constant(b"\xff\xff"), "rpc error: code = Internal"),
    ],
)
def test_failing_options_reject_the_registration(
    kubelet: MockKubelet, options: hostile.Unary, expected: str
) -> None:
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock", options=options) as plugin:
        reason = hostile.register(kubelet.plugin_socket, "p.sock")
        assert_rejected(kubelet, reason, "failed to get device plugin options: ")
        assert expected in (reason or "")
        assert plugin.streams == 0


# -- many -----------------------------------------------------------------------------------


def test_two_hundred_registrations_leak_nothing(
    kubelet: MockKubelet, nothing_left: residue.Residue
) -> None:
    """100 on one socket, then 100 on as many sockets whose streams end at once.

    While kubelet and plugin still run, nothing is left of all but the last.
    """
    with (
        hostile.RawPlugin(kubelet.plugin_dir / "p.sock", workers=200) as plugin,
        hostile.Registry(kubelet.plugin_socket) as registry,
    ):
        assert registry.register("p.sock") is None
        kubelet.wait_for_resource(R, 2)
        before = residue.Residue.now(), residue.connections(kubelet.root)
        for _ in range(100):
            assert registry.register("p.sock") is None
        kubelet.wait_for(lambda: newest_has_listed(kubelet))
        plugin.lists = hostile.lists(hostile.devices("d0", "d1"), stay=False)
        for number in range(100):
            os.link(plugin.path, kubelet.plugin_dir / f"{number}.sock")
            assert registry.register(f"{number}.sock", f"example.com/r{number % 10}") is None
        kubelet.wait_for(lambda: len(kubelet.manager.state.endpoints.connected()) == 1)
        plugin.lists = hostile.TWO_DEVICES
        assert registry.register("p.sock") is None
        kubelet.wait_for_resource(R, 2)

        def settled() -> bool:
            # Not the threads of the plugin and of gRPC. The thread that frees replaced checkpoint
            # files starts with the second write.
            surplus = residue.Residue.now().surplus(
                before[0], ignoring=("hostile", "registration", "timer", "checkpoint")
            )
            return not surplus and residue.connections(kubelet.root) <= before[1]

        assert residue.eventually(settled), residue.Residue.now().surplus(before[0])
        assert kubelet.admit(pod("a", 2)).admitted
        assert kubelet.allocatable() == {R: 2} | {f"example.com/r{n}": 0 for n in range(10)}


@impatient
def test_failed_registrations_leak_nothing(kubelet: MockKubelet) -> None:
    with (
        hostile.RawPlugin(kubelet.plugin_dir / "p.sock", options=_failing),
        hostile.Registry(kubelet.plugin_socket) as registry,
    ):
        assert registry.register("p.sock") is not None
        before = residue.Residue.now(), residue.connections(kubelet.root)
        for number in range(20):
            assert registry.register("p.sock") is not None
            assert registry.register("absent.sock" if number == 0 else "../x") is not None

        def settled() -> bool:
            surplus = residue.Residue.now().surplus(
                before[0], ignoring=("hostile", "registration", "timer")
            )
            return not surplus and residue.connections(kubelet.root) <= before[1]

        assert residue.eventually(settled), residue.Residue.now().surplus(before[0])


# -- several ----------------------------------------------------------------------------------


def newest_has_listed(kubelet: MockKubelet) -> bool:
    serving = kubelet.manager.state.endpoints.serving(ResourceName(R))
    return serving is not None and serving.devices is not None


def allocatables(kubelet: MockKubelet) -> list[int]:
    """Return a list to which ``allocatable`` is appended after every event from now on."""
    seen: list[int] = []
    manager = kubelet.manager

    def note(_: Event) -> None:
        seen.append(manager.capacity().allocatable.get(R, 0))

    kubelet.events.subscribe(note)
    return seen


def ending(*messages: bytes) -> tuple[hostile.Lists, threading.Event]:
    """Return a ListAndWatch handler that ends when the event is set, and the event."""
    end = threading.Event()

    def stream(context: hostile.Context) -> Iterator[bytes]:
        yield from messages
        hostile.until_cancelled(context, or_when=end)

    return stream, end


@several
def test_end_of_an_old_stream_does_not_affect_the_new_plugin(kubelet: MockKubelet) -> None:
    """A rolling update: the new plugin registers before the old one's stream ends (Q1)."""
    old_lists, end = ending(hostile.devices("d0", "d1"))
    with (
        hostile.RawPlugin(kubelet.plugin_dir / "old.sock", lists=old_lists),
        hostile.RawPlugin(kubelet.plugin_dir / "new.sock") as new,
    ):
        assert hostile.register(kubelet.plugin_socket, "old.sock") is None
        kubelet.wait_for_resource(R, 2)
        assert hostile.register(kubelet.plugin_socket, "new.sock") is None
        kubelet.wait_for(lambda: len(kubelet.events.recent(EventKind.DEVICES_UPDATED)) == 2)
        seen = allocatables(kubelet)
        end.set()
        ended = kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
        assert "ListAndWatch stream of old.sock ended: the plugin ended it" in ended.message
        assert kubelet.admit(pod("a", 2)).admitted
        assert new.allocations == [("d0", "d1")]
        assert set(seen) == {2}
        assert not kubelet.events.recent(EventKind.PROMOTED)


def test_reregistration_replaces_the_connection(kubelet: MockKubelet) -> None:
    """Each registration succeeds, closes the older connection and publishes an event (Q2)."""
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock") as plugin:
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 2)
        seen = allocatables(kubelet)
        for _ in range(3):
            assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for(lambda: newest_has_listed(kubelet))
        assert len(kubelet.events.recent(EventKind.REPLACED)) == 3
        assert not kubelet.events.recent(EventKind.STREAM_ENDED)
        assert kubelet.admit(pod("a", 2)).admitted
        assert plugin.allocations == [("d0", "d1")]
        assert set(seen) == {2}


def test_new_plugin_on_the_same_path_serves(kubelet: MockKubelet) -> None:
    """A new process takes over the path and registers before the old one has exited."""
    path = kubelet.plugin_dir / "p.sock"
    old_lists, end = ending(hostile.devices("d0"))
    with hostile.RawPlugin(path, lists=old_lists):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 1)
        path.rename(kubelet.plugin_dir / "moved.sock")
        with hostile.RawPlugin(path) as new:
            assert hostile.register(kubelet.plugin_socket, "p.sock") is None
            kubelet.wait_for_resource(R, 2)
            end.set()
            assert kubelet.admit(pod("a", 2)).admitted
            assert new.allocations == [("d0", "d1")]
            assert not kubelet.events.recent(EventKind.STREAM_ENDED)


@several
def test_promotion_keeps_allocatable(kubelet: MockKubelet) -> None:
    """The newest serves. When it disconnects, the one before is promoted."""
    with (
        hostile.RawPlugin(kubelet.plugin_dir / "0.sock") as first,
        hostile.RawPlugin(kubelet.plugin_dir / "1.sock") as second,
    ):
        third_lists, end = ending(hostile.devices("d0", "d1"))
        with hostile.RawPlugin(kubelet.plugin_dir / "2.sock", lists=third_lists) as third:
            for number in range(3):
                assert hostile.register(kubelet.plugin_socket, f"{number}.sock") is None
                kubelet.wait_for(
                    lambda n=number: len(kubelet.events.recent(EventKind.DEVICES_UPDATED)) == n + 1
                )
            assert kubelet.admit(pod("a", 1, uid="a")).admitted
            seen = allocatables(kubelet)
            end.set()
            promoted = kubelet.wait_for_event(EventKind.PROMOTED, after=0)
            assert promoted.message == f"{R}: plugin 1.sock now serves the resource"
        second.stop()
        kubelet.wait_for(lambda: len(kubelet.events.recent(EventKind.PROMOTED)) == 2)
        assert set(seen) == {2}
        assert kubelet.admit(pod("b", 1)).admitted
        assert (third.allocations, second.allocations, first.allocations) == (
            [("d0",)],
            [],
            [("d1",)],
        )
        first.stop()
        kubelet.wait_for(lambda: kubelet.allocatable() == {R: 0})
        assert kubelet.capacity() == {R: 2}
        assert kubelet.devices("a") == {"main": {R: ["d0"]}}
        rejected = kubelet.admit(pod("c"))
        assert "no healthy devices present" in rejected.message


# -- stop ---------------------------------------------------------------------------------------

STUBBORN = Settings(dial_timeout=50, options_timeout=None)


def assert_stops(kubelet: MockKubelet) -> None:
    stopping = threading.Thread(target=kubelet.stop)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive(), "stop blocks"


@pytest.mark.parametrize("phase", ["absent", "dialing", "options"])
def test_stop_does_not_wait_for_a_registration(start: Start, phase: str) -> None:
    kubelet = start(STUBBORN)
    path = kubelet.plugin_dir / "p.sock"
    called = threading.Event()

    def options(request: bytes, context: hostile.Context) -> bytes:
        called.set()
        return hostile.hang(request, context)

    peer = (
        hostile.RawPlugin(path, options=options)
        if phase == "options"
        else hostile.raw_socket(path if phase == "dialing" else path.with_name("other"))
    )
    with peer, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(_register_or_fail, kubelet)
        if phase == "options":
            assert called.wait(10)
        else:
            assert residue.eventually(lambda: "registration_0" in residue.Residue.now().threads)
        assert_stops(kubelet)
        assert answer.result(10) is not None
    kubelet.check()


def _register_or_fail(kubelet: MockKubelet) -> str | None:
    try:
        return hostile.register(kubelet.plugin_socket, "p.sock")
    except (grpc.RpcError, AssertionError) as error:
        return str(error)  # a broken connection to the kubelet counts as a rejection


def test_stop_during_many_registrations(start: Start) -> None:
    """No error on any thread, and nothing is left over, in five repetitions."""
    for _ in range(5):
        _storm(start())


def _storm(kubelet: MockKubelet) -> None:
    with (
        hostile.RawPlugin(kubelet.plugin_dir / "p.sock", workers=64),
        ThreadPoolExecutor(4) as pool,
    ):
        over = threading.Event()

        def storm() -> None:
            while not over.is_set():
                _register_or_fail(kubelet)

        storms = [pool.submit(storm) for _ in range(4)]
        kubelet.wait_for(lambda: len(kubelet.events.recent(EventKind.REGISTERED)) >= 20)
        assert_stops(kubelet)
        over.set()
        for each in storms:
            each.result(10)
    kubelet.check()


def test_stop_does_not_remove_the_socket_of_another_server(start: Start) -> None:
    kubelet = start()
    successor = kubelet.root / "successor.sock"
    with hostile.raw_socket(successor):
        successor.replace(kubelet.plugin_socket)
        kubelet.stop()
        assert kubelet.plugin_socket.is_socket()


def test_second_start_is_rejected(kubelet: MockKubelet) -> None:
    with pytest.raises(RequestError, match="the kubelet is already running"):
        kubelet.start()
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 2)
