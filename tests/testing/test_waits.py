"""Waits of the factories for their plugins and drivers, and their texts, without a kubelet."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager import ManualClock, WaitTimeout
from devicemanager.core.errors import InternalError, RequestError
from devicemanager.driver.simulated import DriverFaults
from devicemanager.events.stream import EventStream
from devicemanager.testing import drivers, factories, replays, traces

GPU = "vendor.com/gpu"


class Context:
    """Plugin or driver that notes when it is entered and left."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments, self.options = arguments, options
        self.done: list[Any] = []
        self.registers = True
        self.devices = [SimpleNamespace(healthy=each) for each in (True, False, True)]
        self.sockets = SimpleNamespace(service_socket=Path("/dra.sock"))
        self.faults: Any = "faults"

    def __enter__(self) -> Context:
        self.done.append("enter")
        return self

    def __exit__(self, *_: object) -> None:
        self.done.append("exit")

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> None:
        self.done.append(("stop", self.faults))

    def wait_registered(self, timeout: float) -> bool:
        self.done.append(f"registered within {timeout:g}")
        return self.registers


class Kubelet:
    """Kubelet that notes what a factory waits for."""

    def __init__(self) -> None:
        self.plugin_dir = Path("/plugins")
        self.events = EventStream(ManualClock())
        self.waits: list[Any] = []
        self.is_done: Any = None

    def mark(self) -> str:
        return "mark"

    def wait_for_resource(self, *arguments: Any, **options: Any) -> None:
        self.waits.append((*arguments, options))

    wait_for_event = wait_for_resource

    def wait_for(self, condition: Any, timeout: float, what: str) -> None:
        self.is_done = condition
        self.waits.append((timeout, what))


def test_plugin_is_created_and_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factories, "SimulatedPlugin", Context)
    kubelet: Any = Kubelet()
    other: Any = Kubelet()
    other.plugin_dir = Path("/other")
    with factories.SimulatedPluginFactory(kubelet) as factory:
        plugin: Any = factory()
        chosen, directory = plugin.arguments
        assert (chosen.resource_name, chosen.number_devices, directory) == (
            GPU,
            2,
            Path("/plugins"),
        )
        assert (chosen.plugin_name, chosen.device_id_prefix, chosen.node_name) == (
            "gpu",
            "gpu",
            "mock",
        )
        assert kubelet.waits == [(GPU, 2, {"timeout": 10.0})]
        assert plugin.done == ["enter", "registered within 10"]
        plugin = factory("v.com/x", 5, kubelet=other, timeout=3, plugin_name="p", node_name="n")
        chosen, directory = plugin.arguments
        assert (chosen.plugin_name, chosen.device_id_prefix, chosen.node_name) == ("p", "x", "n")
        assert (chosen.number_devices, directory) == (5, Path("/other"))
        assert other.waits == [("v.com/x", 2, {"timeout": 3})]
        plugin = factory(timeout=None)
        assert plugin.done == ["enter"] and len(kubelet.waits) == 1
    assert plugin.done == ["enter", "exit"]


def test_plugin_that_does_not_register_is_a_timeout() -> None:
    plugin: Any = Context()
    plugin.registers = False
    text = r"^waited 2 s for the plugin of vendor.com/gpu to be registered$"
    kubelet: Any = Kubelet()
    with pytest.raises(WaitTimeout, match=text):
        factories._wait(plugin, kubelet, GPU, 2.0)
    plugin.resource, plugin.speed = GPU, None
    with pytest.raises(WaitTimeout, match=r"^waited 0.5 s for vendor.com/gpu to be registered$"):
        replays._wait(plugin, kubelet, 0, 0.5)


def test_driver_is_awaited_and_stopped_without_its_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "SimulatedDriver", Context)
    kubelet: Any = Kubelet()
    other: Any = Kubelet()
    with drivers.SimulatedDriverFactory(kubelet) as factory:
        driver: Any = factory()
        assert driver.arguments == ("gpu.example.com", 8, kubelet)
        options = {"text": "/dra.sock", "since": "mark", "timeout": 10.0}
        assert kubelet.waits == [("driver-connected", options)]
        last: Any = factory("d", 3, kubelet=other, timeout=4, uid="2")
        assert (last.arguments, last.options) == (("d", 3, other), {"uid": "2"})
        assert other.waits == [("driver-connected", options | {"timeout": 4})]
        assert (factory("d", timeout=None).done, len(kubelet.waits)) == (["start"], 1)
    assert driver.done == last.done == ["start", ("stop", DriverFaults())]


@pytest.mark.parametrize(
    ("speed", "lists", "count", "what"),
    [
        (None, ["a", "a", "b", "a"], 3, "3 lists"),
        (None, ["a", "a"], 1, "1 list"),
        (2.0, ["a", "b"], 1, "1 list"),
    ],
)
def test_replay_waits_for_the_lists_that_differ(
    speed: float | None, lists: list[str], count: int, what: str
) -> None:
    plugin: Any = Context()
    plugin.resource, plugin.speed, plugin.first_lists = GPU, speed, lists
    kubelet: Any = Kubelet()
    kubelet.events.publish("devices-updated", "before", resource=GPU)
    replays._wait(plugin, kubelet, kubelet.events.latest, 7.0)
    assert kubelet.waits == [(7.0, f"{what} of {GPU}")]
    for _ in range(count):
        assert not kubelet.is_done()
        kubelet.events.publish("devices-updated", "other", resource="vendor.com/nic")
        kubelet.events.publish("registered", "no list", resource=GPU)
        assert not kubelet.is_done()
        kubelet.events.publish("devices-updated", "now", resource=GPU)
    assert kubelet.is_done()


def test_replay_is_checked_unless_the_test_does_not_want_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Replay(Context):
        resource, speed, first_lists = GPU, None, ("a",)

        def check(self) -> None:
            self.done.append("check")

    monkeypatch.setattr(replays, "ReplayPlugin", Replay)
    kubelet: Any = Kubelet()
    other: Any = Kubelet()
    other.plugin_dir = Path("/other")
    with replays.ReplayPluginFactory(kubelet) as factory:
        first: Any = factory("r.ndjson", GPU, speed=2.0)
        assert first.arguments == ("r.ndjson", Path("/plugins"))
        assert first.options == {"resource": GPU, "speed": 2.0}
        assert kubelet.waits == [(10.0, f"1 list of {GPU}")]
        last: Any = factory("r.ndjson", kubelet=other, check=False, timeout=3)
        assert (last.arguments[1], last.options) == (
            Path("/other"),
            {"resource": None, "speed": None},
        )
        assert other.waits == [(3, f"1 list of {GPU}")]
        factory.check()
    assert first.done == ["enter", "registered within 10", "check", "exit"]
    assert last.done == ["enter", "registered within 3", "exit"]


class Derived(RequestError):
    """Error of a user's class."""


@pytest.mark.parametrize(
    ("error", "hidden"),
    [
        (RequestError("no"), True),
        (WaitTimeout("no"), True),
        (InternalError("bug"), False),
        (Derived("mine"), False),
        (ValueError("bug"), False),
    ],
)
def test_frames_are_hidden_for_errors_on_purpose(error: Exception, hidden: bool) -> None:
    assert traces._is_on_purpose(SimpleNamespace(value=error)) is hidden  # type: ignore[arg-type]


def test_only_frames_of_this_project_are_hidden() -> None:
    root = Path(traces.__file__).parents[2]
    paths = {
        f"{root}/devicemanager/kubelet/mock.py": True,
        f"{root}/checkpoint/store.py": True,
        f"{root}/podresources/client.py": True,
        "<attrs generated init devicemanager.x>": True,
        f"{root}/tests/test_it.py": False,
        f"{root}/devicemanager_of_a_user/x.py": False,
        "/other/devicemanager/x.py": False,
    }
    frames = {path: SimpleNamespace(f_globals={}) for path in paths}
    info: Any = SimpleNamespace(
        traceback=[SimpleNamespace(path=path, frame=frame) for path, frame in frames.items()]
    )
    traces.hide_our_frames(info)
    for path, hidden in paths.items():
        wanted = {"__tracebackhide__": traces._is_on_purpose} if hidden else {}
        assert frames[path].f_globals == wanted
