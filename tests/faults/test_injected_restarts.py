"""Faults that restart the kubelet, its checkpoint or sockets, as a plugin observes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import Event, EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.plugin.simulated import SimulatedPlugin
from podresources.sockets import FileIdentity
from tests.faults.conftest import Outcome, R, register
from tests.hostile import hostile
from tests.hostile.conftest import pod

Simulated = Callable[..., SimulatedPlugin]
S = "example.com/sim"


def test_delete_plugin_socket_makes_the_plugin_reregister(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, simulated: Simulated
) -> None:
    """A correct plugin recreates its socket and re-registers, as the Kubernetes docs require."""
    simulated(S)
    register(kubelet, "p.sock")
    kubelet.wait_for_resource(R, 2)
    latest = kubelet.events.latest
    kubelet.faults.set("delete-plugin-socket", resource=S)
    kubelet.wait_for_event(EventKind.REGISTERED, resource=S, after=latest)
    assert plugin.path.is_socket()
    kubelet.faults.set("delete-plugin-socket", plugin="p.sock")
    assert not plugin.path.exists()
    assert plugin.streams == 1


def test_recreate_kubelet_socket_keeps_connections(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, simulated: Simulated
) -> None:
    """Sockets of plugins and connections to them stay. A plugin that watches kubelet.sock
    re-registers; one that watches only its own socket does not."""
    simulated(S)
    register(kubelet, "p.sock")
    kubelet.wait_for_resource(R, 2)
    paths = plugin.path, kubelet.plugin_socket
    before = [FileIdentity.of(path) for path in paths]
    latest = kubelet.events.latest
    kubelet.faults.set("recreate-kubelet-socket")
    same = [FileIdentity.of(path) == old for path, old in zip(paths, before, strict=True)]
    assert same == [True, False]
    kubelet.wait_for_event(EventKind.REGISTERED, resource=S, after=latest)
    assert kubelet.allocatable()[R] == 2
    assert plugin.streams == 1
    assert register(kubelet, "p.sock") == Outcome("OK", "")


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("version", ["1.32", "1.36"])
def test_restart_keeps_plugin_sockets_if_asked_to(
    make_mock_kubelet: Callable[..., MockKubelet], version: str, keep: bool
) -> None:
    """Other files are removed as in the kubelet's version."""
    own = make_mock_kubelet(Settings(kubelet_version=version, durability="process"))
    (own.plugin_dir / "other").touch()
    with hostile.RawPlugin(own.plugin_dir / "p.sock") as plugin:
        own.faults.set("restart", keep_sockets=keep)
        assert plugin.path.is_socket() is keep
        assert (own.plugin_dir / "other").exists() is (version == "1.36")
        assert keep is False or register(own, "p.sock").code == "OK"


@pytest.mark.parametrize("gap", [0, 1])
def test_restart_twice_restarts_again_after_the_gap(
    kubelet: MockKubelet, clock: ManualClock, simulated: Simulated, gap: float
) -> None:
    simulated(S)
    latest = kubelet.events.latest
    kubelet.faults.set("restart-twice", gap=gap)
    clock.advance(gap)
    kinds = [event.kind for event in kubelet.events.recent() if event.number > latest]
    assert kinds.count(EventKind.STARTED) == 2
    kubelet.wait_for_resource(S, 2)


def test_away_stops_the_kubelet_for_the_given_time(
    kubelet: MockKubelet, clock: ManualClock, simulated: Simulated
) -> None:
    plugin = simulated(S)
    kubelet.admit(pod("one", 1, S))
    latest = kubelet.events.latest
    kubelet.faults.set("away", seconds=60)
    assert not kubelet.plugin_socket.exists()
    clock.advance(59)
    assert not kubelet.plugin_socket.exists()
    clock.advance(1)
    assert kubelet.plugin_socket.exists()
    kubelet.wait_for_event(EventKind.DEVICES_UPDATED, resource=S, after=latest)
    assert [call.rpc for call in plugin.calls].count("ListAndWatch") == 2
    assert [call.rpc for call in plugin.calls].count("Allocate") == 1


def test_restart_during_a_call(kubelet: MockKubelet, simulated: Simulated) -> None:
    plugin = simulated(S)
    latest = kubelet.events.latest
    kubelet.faults.set("restart", at="Allocate")
    kubelet.admit(pod("one", 1, S))
    kubelet.wait_for_event(EventKind.STARTED, after=latest)
    kubelet.wait_for_resource(S, 2)
    assert [call.rpc for call in plugin.calls].count("ListAndWatch") == 2


def test_away_does_not_start_a_kubelet_that_was_stopped(
    make_mock_kubelet: Callable[..., MockKubelet],
) -> None:
    clock = ManualClock()
    own = make_mock_kubelet(clock=clock)
    own.faults.set("away", seconds=60)
    own.stop()
    clock.advance(60)
    assert not own.plugin_socket.exists()
    with pytest.raises(RequestError, match=r"^the kubelet is not running"):
        own.faults.set("end-list-stream")
    own.start()
    assert own.plugin_socket.exists()


def test_away_does_not_restart_a_kubelet_that_was_started(
    make_mock_kubelet: Callable[..., MockKubelet],
) -> None:
    clock = ManualClock()
    own = make_mock_kubelet(clock=clock)
    own.faults.set("away", seconds=60)
    own.stop()
    own.start()
    latest = own.events.latest
    clock.advance(60)
    assert own.is_serving
    assert own.events.latest == latest


def test_stop_cancels_the_timer_of_away(
    make_mock_kubelet: Callable[..., MockKubelet],
) -> None:
    def timers() -> int:
        return sum(thread.name == "timer" for thread in threading.enumerate())

    before = timers()
    own = make_mock_kubelet()
    own.faults.set("away", seconds=600)
    assert timers() == before + 1
    own.stop()
    assert timers() == before


@pytest.mark.parametrize("starts_again", [False, True])
def test_restart_twice_does_not_undo_a_stop(
    make_mock_kubelet: Callable[..., MockKubelet], starts_again: bool
) -> None:
    """The user stops the kubelet between the two restarts, and perhaps starts it again."""
    own = make_mock_kubelet()
    own.admit(pod("one", 0))

    def change() -> None:
        unsubscribe()
        own.stop()
        if starts_again:
            own.start()

    def on_event(event: Event) -> None:
        if event.kind is EventKind.ADMITTED:
            thread = threading.Thread(target=change)
            thread.start()
            thread.join()

    latest = own.events.latest
    unsubscribe = own.events.subscribe(on_event)
    with pytest.raises(RequestError, match=r"^the kubelet was stopped"):
        own.faults.set("restart-twice", gap=0)
    assert own.is_serving is starts_again
    kinds = [event.kind for event in own.events.recent() if event.number > latest]
    assert kinds.count(EventKind.STOPPED) == 2


def test_restart_between_register_and_first_list_up_to_1_24(
    make_mock_kubelet: Callable[..., MockKubelet],
) -> None:
    """In these versions Register returns before the plugin is dialed."""
    own = make_mock_kubelet(Settings(kubelet_version="1.24", durability="process"))
    latest = own.events.latest
    own.faults.set("restart", at="registered", keep_sockets=True)
    with hostile.RawPlugin(own.plugin_dir / "p.sock") as plugin:
        assert register(own, "p.sock") == Outcome("OK", "")
        own.wait_for_event(EventKind.STARTED, after=latest)
        assert plugin.streams == 0


def test_lose_checkpoint_loses_allocations(kubelet: MockKubelet, simulated: Simulated) -> None:
    """The kubelet calls Allocate again for a pod that has its devices."""
    plugin = simulated(S)
    kubelet.admit(pod("one", 1, S, uid="one"))
    kubelet.faults.set("lose-checkpoint", times=1)
    latest = kubelet.events.latest
    kubelet.restart()
    kinds = [event.kind for event in kubelet.events.recent() if event.number > latest]
    assert EventKind.CHECKPOINT_LOADED not in kinds
    assert kubelet.devices("one") == {}
    kubelet.wait_for_resource(S, 2)
    kubelet.start_container("one", "main")
    assert [call.rpc for call in plugin.calls].count("Allocate") == 2


def test_truncate_checkpoint_damages_the_file(kubelet: MockKubelet, simulated: Simulated) -> None:
    """The kubelet notices the damage, sets the file aside and starts without allocations."""
    simulated(S)
    kubelet.admit(pod("one", 1, S, uid="one"))
    whole = kubelet.checkpoint_path.read_bytes()
    kubelet.faults.set("truncate-checkpoint", times=1)
    latest = kubelet.events.latest
    kubelet.restart()
    event = kubelet.wait_for_event(EventKind.CHECKPOINT_SET_ASIDE, after=latest)
    aside = event.message.partition("renamed to ")[2].partition(",")[0]
    assert Path(aside).read_bytes() == whole[: len(whole) // 2]
    assert kubelet.devices("one") == {}


@pytest.mark.parametrize("kind", ["lose-checkpoint", "truncate-checkpoint"])
def test_checkpoint_faults_need_no_checkpoint(
    make_mock_kubelet: Callable[..., MockKubelet], kind: str
) -> None:
    own = make_mock_kubelet(start=False)
    own.faults.set(kind)
    own.start()
    assert own.is_serving
    (fired,) = own.events.recent(EventKind.FAULT)
    assert fired.message == f"injected: {kind}"
