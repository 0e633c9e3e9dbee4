"""Starting, stopping, restarting and rebooting, in any order and from any thread."""

from __future__ import annotations

import concurrent.futures
import itertools
import linecache
import os
import random
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from devicemanager import EventKind, MockKubelet, RequestError, Settings
from devicemanager.core.devices import Device
from devicemanager.core.errors import RpcError, StartError, StopError
from devicemanager.core.ids import DeviceId
from devicemanager.events.stream import EventStream
from devicemanager.kubelet import process
from devicemanager.kubelet.lifecycle import Lifecycle
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.pods.workers import PodWorkers
from devicemanager.kubelet.registration.server import RegistrationServer
from devicemanager.kubelet.registration.watcher import PluginWatcher
from devicemanager.objects import manifests
from devicemanager.testing import pod_manifest
from devicemanager.testing.fakes import FakeCall, FakePlugin
from podresources.server import PodResourcesServer
from tests.hostile import hostile

GPU = hostile.RESOURCE


# -- one process at a time --------------------------------------------------------------------


@attrs.define(eq=False)
class Process:
    """A process that records whether it runs, and fails on request."""

    running: list[Process]
    fails_to_start: bool = False
    fails_to_stop: bool = False
    socket: Path = Path("/r/kubelet.sock")

    def start(self) -> None:
        assert not self.running, "two processes at a time"
        if self.fails_to_start:
            raise StartError("no")
        self.running.append(self)

    def stop(self) -> None:
        self.running.remove(self)
        if self.fails_to_stop:
            raise StopError("no")


class AnyOrder(RuleBasedStateMachine):
    """The running process is the one of the last call that succeeded."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[Process] = []
        self.next = Process(self.running)
        self.events = EventStream()
        self.life = Lifecycle(self.events, lambda: self.next, lambda _: None)
        self.expected: Process | None = None

    @rule(start=st.booleans(), stop=st.booleans())
    def choose(self, start: bool, stop: bool) -> None:
        self.next = Process(self.running, start, stop)

    @rule()
    def start(self) -> None:
        try:
            self.life.start()
            assert self.expected is None
            self.expected = self.next
        except RequestError:
            assert self.expected is not None
        except StartError:
            assert self.next.fails_to_start and self.expected is None
        self.next = attrs.evolve(self.next)

    @rule()
    def stop(self) -> None:
        before, self.expected = self.expected, None
        try:
            self.life.stop()
        except StopError:
            assert before is not None and before.fails_to_stop

    @rule()
    def replace(self) -> None:
        before, self.expected = self.expected, None
        between: list[int] = []
        try:
            self.life.replace(lambda: between.append(len(self.running)))
            self.expected = self.next
        except StartError:
            assert self.next.fails_to_start
        except StopError:
            assert before is not None and before.fails_to_stop
        assert between in ([], [0])
        self.next = attrs.evolve(self.next)

    @invariant()
    def running_process_is_known(self) -> None:
        assert self.running == ([] if self.expected is None else [self.expected])
        assert self.life.process is self.expected

    @invariant()
    def starts_and_stops_alternate(self) -> None:
        kinds = [event.kind for event in self.events.recent()]
        assert kinds[::2] == [EventKind.STARTED] * len(kinds[::2])
        assert kinds[1::2] == [EventKind.STOPPED] * len(kinds[1::2])


TestAnyOrder = AnyOrder.TestCase


def test_concurrent_starts_start_one_process():
    """One succeeds, the other is rejected without affecting it."""
    for _ in range(10):
        kubelet = MockKubelet()
        together = threading.Barrier(2)

        def start(kubelet: MockKubelet = kubelet, together: threading.Barrier = together) -> str:
            together.wait()
            try:
                kubelet.start()
            except RequestError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(2) as pool:
            answers = sorted(pool.map(lambda _: start(), range(2)))
        assert answers == ["", "the kubelet is already running: stop it first"]
        assert kubelet.plugin_socket.is_socket()
        kubelet.close()
        assert not kubelet.root.exists()


def test_random_calls_from_four_threads():
    """In the end it runs, and its state is consistent."""
    kubelet = MockKubelet()
    errors: list[BaseException] = []

    def call_at_random(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(6):
            try:
                getattr(kubelet, chosen.choice(["start", "stop", "restart", "reboot"]))()
                kubelet.admit(pod_manifest(f"p{seed}-{chosen.random()}"))
            except RequestError:
                continue  # it is already running, or another thread has stopped it
            except BaseException as error:
                errors.append(error)
                raise

    threads = [threading.Thread(target=call_at_random, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not errors and not any(thread.is_alive() for thread in threads)
    kubelet.restart()
    assert kubelet.plugin_socket.is_socket() and kubelet.pod_resources_socket.is_socket()
    kubelet.manager.self_check()
    kinds = [e.kind for e in kubelet.events.recent(EventKind.STARTED, EventKind.STOPPED)]
    assert kinds == [EventKind.STARTED, EventKind.STOPPED] * (len(kinds) // 2) + kinds[-1:]
    assert kinds[-1] is EventKind.STARTED
    kubelet.close()
    kubelet.check()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_mode_of_sockets_does_not_depend_on_the_umask(mask):
    with MockKubelet() as kubelet:
        kubelet.stop()
        before = os.umask(mask)
        try:
            kubelet.start()
        finally:
            os.umask(before)
        for path in (kubelet.plugin_socket, kubelet.pod_resources_socket):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660


# -- stop and start ------------------------------------------------------------------------


def test_servers_start_in_parallel_and_kubelet_sock_appears_last(monkeypatch):
    """gRPC sleeps for a millisecond when a server starts."""
    ready = threading.Event()
    registration, pod_resources = RegistrationServer.start, PodResourcesServer.start
    watcher = PluginWatcher.start
    kubelet = MockKubelet()
    seen = []

    def note(name):
        served = kubelet.plugin_socket, kubelet.pod_resources_socket
        seen.append((name, [socket.exists() for socket in served]))

    def start_registration(server, before_published):
        def hold():
            ready.set()
            before_published()
            note("registration")

        registration(server, hold)

    def start_pod_resources(server):
        assert ready.wait(10), "the Registration service waits for PodResources"
        note("pod resources")
        pod_resources(server)

    def start_watcher(each):
        note("watcher")
        watcher(each)

    monkeypatch.setattr(RegistrationServer, "start", start_registration)
    monkeypatch.setattr(PodResourcesServer, "start", start_pod_resources)
    monkeypatch.setattr(PluginWatcher, "start", start_watcher)
    with kubelet:
        note("started")
    assert seen == [
        ("pod resources", [False, False]),
        ("watcher", [False, True]),
        ("registration", [False, True]),
        ("started", [True, True]),
    ]


@pytest.mark.parametrize("part", [PodResourcesServer, PluginWatcher])
@pytest.mark.parametrize("error", [KeyboardInterrupt, StartError])
def test_failed_start_publishes_no_socket(monkeypatch, part, error):
    def fail(_):
        raise error("planted")

    with MockKubelet() as kubelet:
        kubelet.stop()
        monkeypatch.setattr(part, "start", fail)
        with pytest.raises(error, match=r"^planted$"):
            kubelet.start()
        assert not list(kubelet.plugin_dir.iterdir())
        assert not kubelet.pod_resources_socket.exists()
        monkeypatch.undo()
        kubelet.start()


class Interrupt:
    """Raises KeyboardInterrupt at the ``at``-th line of ``_serve`` and of the futures in it."""

    FILES = (process.__file__, concurrent.futures._base.__file__)

    def __init__(self, at):
        self.left = at

    def __call__(self, frame, event, _):
        code = frame.f_code
        if code.co_filename not in self.FILES:
            return None
        line = linecache.getline(code.co_filename, frame.f_lineno).strip()
        # Python reports a `with` line again when it leaves the block: no interrupt can occur there.
        if event == "line" and not line.startswith(("with ", "try:")):
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def test_start_interrupted_at_any_line_leaves_nothing():
    kubelet = MockKubelet()
    kubelet.start()
    kubelet.stop()

    def start(at, ended):
        sys.settrace(Interrupt(at))
        try:
            kubelet.start()
        except KeyboardInterrupt as interrupt:
            ended.append(interrupt)
        finally:
            sys.settrace(None)

    for at in itertools.count():
        ended = []
        thread = threading.Thread(target=start, args=(at, ended), daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive(), f"interrupted at line {at}, the start does not end"
        if not ended:
            break
        assert not list(kubelet.plugin_dir.iterdir())
        assert not kubelet.pod_resources_socket.exists()
    assert at > 20
    kubelet.close()


def test_stop_and_start_keep_directory_and_devices():
    with MockKubelet() as kubelet:
        root = kubelet.root
        with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
            assert hostile.register(kubelet.plugin_socket, "p.sock") is None
            kubelet.wait_for_resource(GPU, 2)
            uid = kubelet.admit(pod_manifest("train", {GPU: 1})).uid
            kubelet.stop()
            assert root.is_dir()
            kubelet.start()
            assert kubelet.root == root
            assert kubelet.devices(uid) == {"main": {GPU: ["d0"]}}
            # As after a restart, all pods are known, and devices of others are free.
            assert kubelet.manager.is_sources_ready
    assert not root.exists()


def test_restart_frees_devices_of_unknown_pods(tmp_path):
    first = MockKubelet(tmp_path)
    with first, hostile.RawPlugin(first.plugin_dir / "p.sock"):
        assert hostile.register(first.plugin_socket, "p.sock") is None
        first.wait_for_resource(GPU, 2)
        uid = first.admit(pod_manifest("train", {GPU: 1})).uid
    with MockKubelet(tmp_path) as second:
        assert second.manager.pods() == {uid}
        second.restart()
        assert second.manager.pods() == frozenset()


def test_pod_that_was_not_started_is_admitted_again():
    """It has no running container, and its plugin has not re-registered: it is rejected."""
    with MockKubelet() as kubelet:
        with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
            assert hostile.register(kubelet.plugin_socket, "p.sock") is None
            kubelet.wait_for_resource(GPU, 2)
            uid = kubelet.admit(pod_manifest("train", {GPU: 1}), start=False).uid
            kubelet.stop()
        kubelet.start()
        assert kubelet.pods()[uid].phase == "Failed"


def test_paths_are_known_before_the_start():
    kubelet = MockKubelet()
    assert kubelet.plugin_dir.is_absolute() and kubelet.root.is_dir()
    before = kubelet.root
    with kubelet:
        assert kubelet.root == before
    with kubelet:
        assert kubelet.root == before and kubelet.plugin_socket.is_socket()


def test_existing_directory_is_not_used_as_temporary_root():
    kubelet = MockKubelet()
    kubelet.close()
    kubelet.root.mkdir()
    with pytest.raises(StartError, match=f"^cannot create directory {kubelet.root}: File exists$"):
        kubelet.start()
    kubelet.root.rmdir()


def test_second_with_block_does_not_close_a_running_kubelet():
    with MockKubelet() as kubelet:
        with pytest.raises(RequestError, match=r"^the kubelet is already running"), kubelet:
            pass
        assert kubelet.capacity() == {}


def test_event_callback_cannot_stop_the_kubelet(caplog):
    """It would wait for the thread that it runs on."""
    with MockKubelet() as kubelet:
        kubelet.events.subscribe(lambda event: kubelet.stop())
        assert kubelet.admit(pod_manifest("a")).admitted
        assert "cannot start or stop the kubelet in an event callback" in caplog.text
        assert kubelet.capacity() == {}


def test_stop_during_readmission_rejects_no_pod():
    """The next start admits it."""
    pods = PodStore()
    uid = workers_of(pods, FakePlugin(GPU)).admit(TRAIN, start=False).uid
    plugin = FakePlugin(GPU)
    second_manager = DeviceManager()
    second = workers_of(pods, plugin, second_manager)

    def stop(_: FakeCall) -> None:
        second_manager.close()
        raise RpcError("Canceled", "the connection is closing")

    plugin.before_answer = stop
    second.readmit()
    assert plugin.calls and pods.known(uid).phase == "Pending"
    workers_of(pods, FakePlugin(GPU)).readmit()
    assert pods.known(uid).phase == "Running"


TRAIN = manifests.parse(pod_manifest("train", {GPU: 1}))


def workers_of(
    pods: PodStore, plugin: FakePlugin, manager: DeviceManager | None = None
) -> PodWorkers:
    """Return the workers of a kubelet process with one plugin of one device."""
    manager = manager or DeviceManager()
    plugin.register(manager.plugins)
    plugin.send_list([Device(DeviceId("d0"))])
    return PodWorkers(pods, manager, Settings(), EventStream())
