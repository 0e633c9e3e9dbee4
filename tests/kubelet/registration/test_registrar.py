"""Registrations when the machine has no resources left for one more plugin."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import grpc
import pytest

from devicemanager.core.ids import ResourceName
from devicemanager.events.stream import Event, EventKind, EventStream
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.registration.connection import Connection
from devicemanager.kubelet.registration.dialer import Dialer
from devicemanager.kubelet.registration.registrar import (
    Registrar,
    RegistrationRejected,
    Texts,
    _check,
)
from devicemanager.kubelet.settings import Settings
from tests.hostile import hostile, residue

R = ResourceName(hostile.RESOURCE)


@pytest.fixture
def manager() -> DeviceManager:
    clock = ManualClock()
    return DeviceManager(clock=clock, events=EventStream(clock))


@pytest.fixture
def registrar(manager: DeviceManager) -> Iterator[Registrar]:
    made = Registrar(manager.plugins, Settings(), manager.events, lambda error: None)
    yield made
    made.stop()


@pytest.fixture
def plugin(directory: Path) -> Iterator[hostile.RawPlugin]:
    with hostile.RawPlugin(directory / "p.sock") as served:
        yield served


def test_registration_is_rejected_if_no_thread_can_be_started(
    manager: DeviceManager,
    registrar: Registrar,
    plugin: hostile.RawPlugin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    closed: list[Path] = []

    def close(connection: Connection) -> None:
        closed.append(connection.path)

    monkeypatch.setattr(Connection, "run", run)
    monkeypatch.setattr(Connection, "close", close)
    with pytest.raises(
        RegistrationRejected, match=r"^the kubelet cannot start a thread: can't start new thread$"
    ):
        registrar.run(registrar.connect(R, plugin.path, "p.sock")).result(20)
    assert not manager.events.recent(EventKind.REGISTERED)
    assert closed == [plugin.path]


def test_plugin_needs_only_one_thread(
    registrar: Registrar, plugin: hostile.RawPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    started: list[str] = []

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    async def nothing() -> None:
        pass

    registrar.run(nothing()).result(20)  # the loop's thread runs now
    monkeypatch.setattr(threading.Thread, "start", note)
    registrar.run(registrar.connect(R, plugin.path, "p.sock")).result(20)
    kubelet_threads = [name for name in started if name.startswith(("list-", "registration"))]
    spun = [
        name for name in started if name.endswith("(_run)")
    ]  # gRPC's thread for the future of a call
    assert (kubelet_threads, spun) == (["list-p.sock"], [])


@attrs.define
class DialedBy(Dialer):
    """Serves every socket at once, by the process of this ID."""

    pid: int

    async def dial(self, path: Path, seconds: float) -> int:
        return self.pid


@pytest.mark.parametrize(
    ("pid", "limited"),
    [(0, False), (os.getpid(), False), (1, True)],
    ids=["unknown", "our own", "another"],  # a process ID that does not exist
)
def test_registrations_of_a_process_are_limited(
    manager: DeviceManager, plugin: hostile.RawPlugin, pid: int, limited: bool
) -> None:
    settings = Settings(max_registrations_per_process=1)
    registrar = Registrar(manager.plugins, settings, manager.events, lambda error: None)
    registrar.dialer = DialedBy(pid)
    try:
        first = registrar.connect(R, plugin.path, "p.sock")
        registrar.run(first).result(20)
        second = registrar.run(registrar.connect(R, plugin.path, "q.sock"))
        if limited:
            with pytest.raises(
                RegistrationRejected, match=r"^process 1 already has 1 registration"
            ):
                second.result(20)
            (registered,) = manager.state.endpoints.connected()
            registrar.deregister(registered.id)
            assert residue.eventually(lambda: not manager.state.endpoints.connected())
            second = registrar.run(registrar.connect(R, plugin.path, "q.sock"))
        second.result(20)
    finally:
        manager.close()
        registrar.stop()


def test_processes_that_fork_leave_registrations_to_others(
    manager: DeviceManager, plugin: hostile.RawPlugin
) -> None:
    settings = Settings(max_registrations=10)
    registrar = Registrar(manager.plugins, settings, manager.events, lambda error: None)
    taken: list[int] = []
    try:
        for pid in range(1, 6):
            registrar.dialer = DialedBy(pid)
            for number in range(20):
                socket = f"{pid}-{number}.sock"
                try:
                    registrar.run(registrar.connect(R, plugin.path, socket)).result(20)
                except RegistrationRejected as rejected:
                    message = str(rejected)
                    break
            taken.append(number)
        # Each process gets a quarter of what the earlier ones have left.
        assert taken == [2, 2, 2, 1, 1]
        assert message == (
            "process 5 has 1 registration and can have no more: all processes have 8, and the "
            "limit is 10 (Settings.max_registrations); one process can have at most a quarter of "
            "the registrations that are left"
        )
        # Re-registration is always possible.
        registrar.run(registrar.connect(R, plugin.path, "5-0.sock")).result(20)
        registrar.dialer = DialedBy(0)
        for number in range(2):
            registrar.run(registrar.connect(R, plugin.path, f"0-{number}.sock")).result(20)
        with pytest.raises(RegistrationRejected, match=r"Settings.max_registrations\)"):
            registrar.run(registrar.connect(R, plugin.path, "0-2.sock")).result(20)
        registrar.dialer = DialedBy(os.getpid())
        registrar.run(registrar.connect(R, plugin.path, "own.sock")).result(20)
    finally:
        manager.close()
        registrar.stop()


def test_plugin_without_options_counts_for_its_process(
    manager: DeviceManager, directory: Path
) -> None:
    called, answer = threading.Event(), threading.Event()

    def options(request: bytes, context: hostile.Context) -> bytes:
        called.set()
        assert answer.wait(20)
        context.abort(grpc.StatusCode.INTERNAL, "on purpose")

    settings = Settings(max_registrations_per_process=1)
    registrar = Registrar(manager.plugins, settings, manager.events, lambda error: None)
    registrar.dialer = DialedBy(1)
    full = "^process 1 already has 1 registration: the limit is 1 "
    try:
        with hostile.RawPlugin(directory / "p.sock", options=options) as plugin:
            slow = registrar.run(registrar.connect(R, plugin.path, "p.sock"))
            assert called.wait(20)
            for name in ("q.sock", "r.sock"):
                with pytest.raises(RegistrationRejected, match="^" + full):
                    registrar.run(registrar.connect(R, plugin.path, name)).result(20)
            answer.set()
            with pytest.raises(RegistrationRejected, match="on purpose"):
                slow.result(20)
        with hostile.RawPlugin(directory / "s.sock") as plugin:
            registrar.run(registrar.connect(R, plugin.path, "s.sock")).result(20)
            # The same plugin again replaces it.
            registrar.run(registrar.connect(R, plugin.path, "s.sock")).result(20)
    finally:
        answer.set()
        manager.close()
        registrar.stop()


@attrs.define
class Blocked:
    """Blocks the publisher of the event that a plugin has registered."""

    reached: threading.Event = attrs.field(factory=threading.Event)
    go_on: threading.Event = attrs.field(factory=threading.Event)

    def __call__(self, event: Event) -> None:
        if event.kind is EventKind.REGISTERED:
            self.reached.set()
            assert self.go_on.wait(20)


def test_plugin_registered_too_late_is_disconnected(
    manager: DeviceManager,
    registrar: Registrar,
    plugin: hostile.RawPlugin,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The kubelet stops, or the socket vanishes, while the manager registers the plugin."""
    held = Blocked()
    manager.events.subscribe(held)
    registering = registrar.run(registrar.connect(R, plugin.path, "p.sock"))
    assert held.reached.wait(20)
    registrar.interrupt()
    assert registering.cancelled()
    held.go_on.set()
    # The event is published last.
    assert residue.eventually(lambda: bool(manager.events.recent(EventKind.STREAM_ENDED)))
    assert not manager.state.endpoints.connected()
    (ended,) = manager.events.recent(EventKind.STREAM_ENDED)
    assert "ListAndWatch stream of p.sock ended" in ended.message
    assert not caplog.records


def test_stop_waits_for_a_registration_in_progress(
    manager: DeviceManager,
    registrar: Registrar,
    plugin: hostile.RawPlugin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Blocked()
    manager.events.subscribe(held)
    join = Connection.join
    ended: list[bool] = []

    def wait(connection: Connection) -> None:
        held.go_on.set()
        join(connection)
        ended.append(bool(manager.events.recent(EventKind.STREAM_ENDED)))

    monkeypatch.setattr(Connection, "join", wait)
    registrar.run(registrar.connect(R, plugin.path, "p.sock"))
    assert held.reached.wait(20)
    registrar.stop()
    held.go_on.set()  # in any case
    assert ended == [True]


@pytest.mark.parametrize(
    ("resource", "versions", "text"),
    [
        (
            "gpu",
            ("v1", 'v"2'),
            'requested API version "v1,v\\"2" is not supported by kubelet. '
            'Supported version is ["v1beta1"]',
        ),
        ("gpu", ("v1", "v1beta1"), 'the ResourceName "gpu" is invalid'),
        ('g"u', ("v1beta1",), 'the ResourceName "g\\"u" is invalid'),
        ("g" * 600, ("v1beta1",), f'the ResourceName "{"g" * 512}..." is invalid'),
    ],
)
def test_version_is_checked_before_the_name(
    resource: str, versions: tuple[str, ...], text: str
) -> None:
    with pytest.raises(RegistrationRejected) as raised:
        _check(ResourceName(resource), versions, Texts())
    assert str(raised.value) == text
    _check(ResourceName("vendor.com/gpu"), ("v1beta1",), Texts())
