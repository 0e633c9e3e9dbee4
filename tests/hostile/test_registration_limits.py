"""Limits of what one plugin can cost: threads, descriptors, memory, the time of others.

| attack | test |
|---|---|
| 1,000 registrations that never complete | test_plugin_registers_beside_a_thousand_pending_ones |
| more registrations of one process than allowed | test_registrations_per_process_are_limited |
| a client that reads no response | test_client_that_reads_nothing_does_not_block_others |
| no descriptors left | test_descriptors_are_reserved_for_admissions |
| any number of connections, silent or with an HTTP/2 preface | test_number_of_connections_is_limited |
| names of megabytes, any number of names | test_long_names_are_truncated_in_rejections, test_number_of_counters_is_limited |
| a callback that ends with SystemExit | test_event_callback_that_exits_does_not_block_the_plugin |
"""  # noqa: E501

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import attrs
import grpc
import pytest

from devicemanager.events.stream import Event, EventKind, EventStream
from devicemanager.io.idle_pool import IdlePool
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.registration import event_loop as loop_module
from devicemanager.kubelet.registration.connection import Connection
from devicemanager.kubelet.registration.event_loop import LoopThread, Running
from devicemanager.kubelet.registration.registrar import Registrar
from devicemanager.kubelet.settings import Settings
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tests.hostile import hostile, residue
from tests.hostile.conftest import IMPATIENT, Start, pod
from tests.paths import ROOT
from tools.attack import http2

R = hostile.RESOURCE
PATIENT = Settings(dial_timeout=300.0, options_timeout=300.0, pod_resources_qps=None)


@pytest.mark.parametrize("first", [http2.PREFACE + http2.settings(), http2.PREFACE[:5]])
def test_number_of_connections_is_limited(
    start: Start, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    """On either socket. Accepted connections stay, and pods are still admitted."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    kubelet = start()
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"), contextlib.ExitStack() as stack:
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R)
        for path in (kubelet.plugin_socket, kubelet.pod_resources_socket):
            peers = [stack.enter_context(_connected(path, first)) for _ in range(100)]
            assert residue.eventually(lambda peers=peers: _closed(peers) >= 100 - 64)
            assert _closed(peers) < 100
        assert kubelet.admit(pod("p")).admitted


def _connected(path: Path, first: bytes) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(str(path))
    peer.setblocking(False)
    with contextlib.suppress(BrokenPipeError):
        peer.sendall(first)
    return peer


def _closed(peers: list[socket.socket]) -> int:
    return sum(map(_is_closed, peers))


def _is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_plugin_registers_beside_a_thousand_pending_ones(start: Start) -> None:
    """A correct plugin registers while all others still wait, without a thread for each."""
    kubelet = start(PATIENT)
    os.mkfifo(kubelet.plugin_dir / "fifo.sock")
    channel = grpc.insecure_channel(sockets.target(kubelet.plugin_socket))
    stub = dp_grpc.RegistrationStub(channel)
    with (
        channel,
        hostile.raw_socket(kubelet.plugin_dir / "silent.sock"),
        hostile.RawPlugin(kubelet.plugin_dir / "good.sock"),
    ):
        before = threading.active_count()
        bad = [
            stub.Register.future(request(f"{kind}.sock", f"example.com/{kind}{number}"))
            for number in range(334)
            for kind in ("absent", "fifo", "silent")
        ]
        assert hostile.register(kubelet.plugin_socket, "good.sock") is None
        kubelet.wait_for_resource(R, 2)
        assert kubelet.admit(pod("a", 2)).admitted
        assert not any(each.done() for each in bad)
        assert threading.active_count() < before + 40
        kubelet.stop()


def request(endpoint: str, name: str = R) -> dp.RegisterRequest:
    return dp.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=name)


# Serves device plugins on the given sockets until its input ends.
PLUGINS = """
import contextlib, pathlib, sys
from tests.hostile import hostile
with contextlib.ExitStack() as stack:
    for path in sys.argv[1:]:
        stack.enter_context(hostile.RawPlugin(pathlib.Path(path)))
    print("serving", flush=True)
    sys.stdin.read()
"""


def test_registrations_per_process_are_limited(start: Start) -> None:
    kubelet = start(Settings(max_registrations_per_process=2))
    paths = [str(kubelet.plugin_dir / f"{number}.sock") for number in range(4)]
    root = ROOT
    with subprocess.Popen(
        [sys.executable, "-c", PLUGINS, *paths],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"serving\n"
        for number in range(2):
            name = f"example.com/r{number}"
            assert hostile.register(kubelet.plugin_socket, f"{number}.sock", name) is None
        rejection = hostile.register(kubelet.plugin_socket, "2.sock", "example.com/r2")
        assert rejection == (
            f"process {process.pid} already has 2 registrations: the limit is 2 "
            "(Settings.max_registrations_per_process)"
        )
        # Re-registration does not count, and other processes are not affected.
        assert hostile.register(kubelet.plugin_socket, "1.sock", "example.com/r1") is None
        with hostile.RawPlugin(kubelet.plugin_dir / "other.sock"):
            assert hostile.register(kubelet.plugin_socket, "other.sock") is None
            kubelet.wait_for_resource(R, 2)
            process.stdin.close()
            process.wait(20)


def test_client_that_reads_nothing_does_not_block_others(start: Start) -> None:
    """Its window is closed, so the kubelet cannot send responses. Other clients get theirs."""
    kubelet = start()
    with (
        hostile.RawPlugin(kubelet.plugin_dir / "p.sock", workers=64),
        contextlib.ExitStack() as stack,
    ):
        for number in range(40):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(kubelet.plugin_socket))
            client.sendall(hostile.closed_window(request("p.sock", f"example.com/r{number}")))
        kubelet.wait_for(lambda: len(kubelet.events.recent(EventKind.REGISTERED)) == 40)
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None


def test_descriptors_are_reserved_for_admissions(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = start(attrs.evolve(PATIENT, dial_timeout=1.0))
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        # The kernel uses the lowest free number next.
        with Path(os.devnull).open() as free:
            limit = free.fileno()
        with monkeypatch.context() as patched:
            patched.setattr(resource, "getrlimit", lambda _: (limit, limit))
            rejection = hostile.register(kubelet.plugin_socket, "p.sock")
        assert rejection == "failed to dial device plugin: context deadline exceeded"
        event = kubelet.events.recent(EventKind.REGISTRATION_REJECTED)[-1]
        assert f"nearly all of {limit} file descriptors are in use" in event.message
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None


# -- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1000, 4_000_000])
@pytest.mark.parametrize("character", ["x", "é", "\n"])
def test_long_names_are_truncated_in_rejections(
    kubelet: MockKubelet, length: int, character: str
) -> None:
    """The rejection fits into gRPC's metadata and is stored truncated."""
    name = character * (length // len(character.encode()))
    for version, endpoint in (("v1beta1", "p.sock"), (name, "p.sock"), ("v1beta1", f"/{name}")):
        resource_name = R if endpoint != "p.sock" or version != "v1beta1" else name
        rejection = hostile.register(kubelet.plugin_socket, endpoint, resource_name, version)
        assert rejection is not None and 0 < len(rejection) < 1500
    events = kubelet.events.recent(EventKind.REGISTRATION_REJECTED)
    assert len(events) == 3
    assert all(len(each.message) < 5000 for each in events)
    assert all(len(each.resource or "") < 600 for each in events)


def test_long_error_of_a_plugin_is_truncated(kubelet: MockKubelet) -> None:
    """With the kubelet's text added, it would exceed the limit of a gRPC client."""

    def options(request: bytes, context: hostile.Context) -> bytes:
        context.abort(grpc.StatusCode.INTERNAL, "x" * 7_900)

    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock", options=options):
        rejection = hostile.register(kubelet.plugin_socket, "p.sock")
    assert rejection is not None and rejection.endswith("xxx...")


def registrar_of(manager: DeviceManager) -> Registrar:
    return Registrar(manager.plugins, IMPATIENT, EventStream(), lambda error: None)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> IdlePool[Running]:
    """A pool of idle loops for this test alone."""
    own: IdlePool[Running] = IdlePool(1, loop_module._end)
    monkeypatch.setattr(loop_module, "loops", own)
    return own


def test_stopped_loop_runs_no_task() -> None:
    async def task() -> None:
        raise AssertionError

    loop = LoopThread()
    loop.stop()
    assert loop.run(task()).cancelled()


@pytest.mark.usefixtures("loops")
def test_loop_without_a_thread_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def task() -> int:
        return 1

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loop = LoopThread()
    before = residue.Residue.now()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread") as caught:
            loop.run(task())
    assert not residue.Residue.now().surplus(before)
    assert caught.tb is not None, "it refers to the call's variables"
    assert loop.run(task()).result(20) == 1
    loop.stop()


def test_reused_loop_has_no_tasks_of_its_first_user(loops: IdlePool[Running]) -> None:
    """All its tasks are cancelled, and the next user gets the same thread."""
    began: SimpleQueue[threading.Thread] = SimpleQueue()
    ends: list[str] = []

    async def task() -> None:
        began.put(threading.current_thread())
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("first")

    async def tasks() -> int:
        return len(asyncio.all_tasks())

    before = residue.Residue.now()
    with loops.enabled():
        first, second = LoopThread(), LoopThread()
        unfinished = first.run(task())
        thread = began.get(timeout=20)
        first.stop()
        assert unfinished.cancelled()
        assert ends == ["first"]
        assert first.run(tasks()).cancelled()
        assert second.run(tasks()).result(20) == 1
        second.run(task())
        assert began.get(timeout=20) is thread
        gc.collect()  # asyncio has only weak references to tasks
        second.stop()
        assert ends == ["first", "first"]
    assert not thread.is_alive()
    assert not residue.Residue.now().surplus(before)


def test_task_that_ignores_cancellation_does_not_block_stop(
    loops: IdlePool[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is not reused."""
    began: SimpleQueue[threading.Thread] = SimpleQueue()

    async def task() -> None:
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                began.put(threading.current_thread())
                await asyncio.Event().wait()

    monkeypatch.setattr("devicemanager.kubelet.registration.event_loop._CANCEL_SECONDS", 0.1)
    with loops.enabled():
        loop = LoopThread()
        loop.run(task())
        thread = began.get(timeout=20)
        loop.stop()
        assert residue.eventually(lambda: not thread.is_alive())


# -- BaseExceptions ---------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [EventKind.REGISTERED, EventKind.DEVICES_UPDATED, EventKind.STREAM_ENDED]
)
def test_event_callback_that_exits_does_not_block_the_plugin(
    kubelet: MockKubelet, kind: EventKind
) -> None:
    """Register returns, lists are read, and nothing blocks."""

    def exiting(event: Event) -> None:
        if event.kind is kind:
            raise SystemExit(3)

    unsubscribe = kubelet.events.subscribe(exiting)
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 2)
    kubelet.wait_for(lambda: kubelet.allocatable() == {R: 0})
    unsubscribe()


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_reader_that_exits_closes_the_connection(root: Path, ends: type[BaseException]) -> None:
    errors: list[BaseException] = []
    causes: list[str] = []

    def on_list(columns: object) -> None:
        raise ends

    with hostile.RawPlugin(root / "p.sock") as plugin:
        connection = Connection(plugin.path, IMPATIENT)
        connection.watch(on_list, causes.append, errors.append)
        assert [type(each) for each in errors] == [ends]
        assert causes == [f"a bug of the device manager: {ends()!r}"]
        assert residue.eventually(lambda: residue.connections(root) == 1)  # the listening one
