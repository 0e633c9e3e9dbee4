"""Plugins of the NRI runtime of a mock kubelet."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from devicemanager import MockKubelet, RequestError, StartError
from devicemanager.core.runoptions import DeviceSpec, Mount, RunOptions
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.nri import NriRuntime, plugins
from devicemanager.kubelet.nri.connection import CallFailed, Connection, Disconnected
from devicemanager.kubelet.nri.containers import adjust, adjusted_options
from protos import nri_v1alpha1 as nri
from tests.kubelet.dra.objects import claim, pod
from tests.timing import wait_until

_NAMES = {number: name for name, number in nri.Event.items()}


def _pod() -> dict[str, Any]:
    """Return a pod with the UID ``p``."""
    containers = [{"name": "main", "image": "i"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"containers": containers},
    }


class FakePlugin:
    """A plugin that records its calls. ``responses`` by method replace empty ones."""

    def __init__(
        self,
        path: Path,
        index: str = "10",
        base: str = "fake",
        **responses: Callable[[Any], Any],
    ) -> None:
        self.calls: list[str] = []
        self._responses = responses
        self._connected = socket.socket(socket.AF_UNIX)
        self._connected.connect(str(path))
        methods = nri.DESCRIPTOR.services_by_name["Plugin"].methods_by_name
        handlers = {name: self._handler(name) for name in methods}
        self.connection = Connection(self._connected, handlers, serves="Plugin", calls="Runtime")
        self.reader = threading.Thread(target=self.connection.serve, daemon=True)
        self.reader.start()
        request = nri.RegisterPluginRequest(plugin_name=base, plugin_idx=index)
        self.connection.call("RegisterPlugin", request, 10)

    def _handler(self, name: str) -> Callable[[Any], Any]:
        empty = {"StateChange": nri.Empty}.get(name) or getattr(nri, f"{name}Response")

        def handle(request: Any) -> Any:
            shown = _NAMES[request.event] if name == "StateChange" else name
            self.calls.append(shown)
            respond = self._responses.get(name)
            return empty() if respond is None else respond(request)

        return handle


@pytest.fixture
def lines() -> list[str]:
    """The lines that the runtime reports."""
    return []


@pytest.fixture
def runtime(tmp_path: Path, lines: list[str]) -> Iterator[NriRuntime]:
    (tmp_path / "cdi").mkdir()
    with NriRuntime(tmp_path / "n" / "nri.sock", [tmp_path / "cdi"], report=lines.append) as made:
        yield made


@pytest.fixture
def kubelet(runtime: NriRuntime) -> Iterator[MockKubelet]:
    with MockKubelet(runtime=runtime) as made:
        yield made


@pytest.fixture
def plugin(runtime: NriRuntime) -> Callable[..., FakePlugin]:
    def make(**options: Any) -> FakePlugin:
        made = FakePlugin(runtime.path, **options)
        assert runtime.wait_plugin("fake")
        return made

    return make


def on_two_cpus(_: Any) -> nri.CreateContainerResponse:
    response = nri.CreateContainerResponse()
    response.adjust.linux.resources.cpu.cpus = "0-1"
    response.adjust.env.add(key="SET", value="yes")
    return response


def test_plugin_sees_the_life_of_a_container(
    kubelet: MockKubelet, runtime: NriRuntime, plugin: Any, lines: list[str]
) -> None:
    seen = plugin(CreateContainer=on_two_cpus)
    admission = kubelet.admit(_pod())
    assert admission.containers["main"].run_options.envs == {"SET": "yes"}
    assert runtime.container("p", "main").cpus == "0-1"
    assert "NRI plugin 10-fake: cpus 0-1, env SET" in lines[-1]
    kubelet.restart()
    kubelet.terminate("p")
    assert seen.calls == [
        "Configure", "Synchronize", "RUN_POD_SANDBOX", "CreateContainer", "POST_CREATE_CONTAINER",
        "START_CONTAINER", "POST_START_CONTAINER", "StopContainer", "REMOVE_CONTAINER",
        "STOP_POD_SANDBOX", "REMOVE_POD_SANDBOX",
    ]  # fmt: skip
    with pytest.raises(KeyError):
        runtime.container("p", "main")


def test_container_has_the_environment_of_cdi_devices(
    kubelet: MockKubelet, runtime: NriRuntime, plugin: Any, tmp_path: Path
) -> None:
    plugin()
    with SimulatedDriver("gpu.example.com", kubelet=kubelet) as driver:
        driver.wait_registered()
        allocated = claim("c", "gpu-0")
        assert "unresolvable CDI devices" in (
            kubelet.admit(pod("p", {"gpu": "c"}), claims=allocated).containers["main"].error
        )
        [name] = kubelet.claim_info("default", "c").devices[0].cdi_devices
        kind, _, device = name.partition("=")
        edits = {"env": ["GPU=0"]}
        devices = [{"name": device, "containerEdits": edits}]
        spec = {"cdiVersion": "0.3.0", "kind": kind, "devices": devices}
        (tmp_path / "cdi" / "gpu.json").write_text(json.dumps(spec))
        kubelet.resync("uid-p")
        assert runtime.container("uid-p", "main").env == ("GPU=0",)


def test_error_of_create_container_fails_the_start(
    kubelet: MockKubelet, plugin: Any, runtime: NriRuntime
) -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("no CPUs are left")

    plugin(CreateContainer=refuse)
    admission = kubelet.admit(_pod())
    assert admission.containers["main"].error == (
        "NRI plugin 10-fake: CreateContainer failed: no CPUs are left"
    )
    with pytest.raises(KeyError):
        runtime.container("p", "main")
    kubelet.terminate("p")


def test_plugin_that_does_not_respond_is_disconnected(
    kubelet: MockKubelet, plugin: Any, runtime: NriRuntime, lines: list[str]
) -> None:
    blocked = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(blocked.set)
        plugin(CreateContainer=lambda _: blocked.wait(30) and nri.CreateContainerResponse())
        assert not kubelet.admit(_pod()).containers["main"].error
        assert runtime.plugins() == ()
    assert any("CreateContainer: no response within 2 s" in line for line in lines)


def test_new_plugin_gets_all_containers_and_changes_them(
    kubelet: MockKubelet, plugin: Any, runtime: NriRuntime
) -> None:
    kubelet.admit(_pod())

    def move(request: Any) -> nri.SynchronizeResponse:
        response = nri.SynchronizeResponse()
        for each in request.containers:
            update = response.update.add(container_id=each.id)
            update.linux.resources.cpu.mems = "1"
        return response

    made = plugin(Synchronize=move)
    found = runtime.container("p", "main")
    assert found.mems == "1"
    update = nri.ContainerUpdate(container_id=found.id)
    update.linux.resources.memory.limit.value = 100
    request = nri.UpdateContainersRequest(
        update=[update, nri.ContainerUpdate(container_id="other")]
    )
    response = made.connection.call("UpdateContainers", request, 10)
    assert [each.container_id for each in response.failed] == ["other"]
    assert runtime.container("p", "main").memory_limit == 100


def test_plugins_are_called_in_the_order_of_their_indexes(
    kubelet: MockKubelet, runtime: NriRuntime, plugin: Any
) -> None:
    def then(cpus: str) -> Callable[[Any], Any]:
        def create(request: Any) -> nri.CreateContainerResponse:
            response = nri.CreateContainerResponse()
            before = request.container.linux.resources.cpu.cpus
            response.adjust.linux.resources.cpu.cpus = f"{before},{cpus}".strip(",")
            return response

        return create

    plugin(index="20", CreateContainer=then("1"))
    FakePlugin(runtime.path, index="10", CreateContainer=then("0"))
    kubelet.events.wait_for(lambda: len(runtime.plugins()) == 2, 10)
    kubelet.admit(_pod())
    assert runtime.container("p", "main").cpus == "0,1"


def test_plugin_subscribes_to_events(kubelet: MockKubelet, plugin: Any) -> None:
    made = plugin(
        Configure=lambda _: nri.ConfigureResponse(
            events=1 << nri.Event.Value("STOP_POD_SANDBOX") - 1
        )
    )
    kubelet.admit(_pod())
    kubelet.terminate("p")
    assert made.calls == ["Configure", "Synchronize", "STOP_POD_SANDBOX"]


def test_containers_exit_and_restart(
    kubelet: MockKubelet, plugin: Any, runtime: NriRuntime
) -> None:
    made = plugin()
    manifest = _pod()
    manifest["spec"]["initContainers"] = [{"name": "init", "image": "i"}]
    kubelet.admit(manifest)
    assert made.calls.count("CreateContainer") == 2 and made.calls.count("StopContainer") == 1
    first = runtime.container("p", "main").id
    kubelet.exit_container("p", "main", 1)
    assert made.calls.count("CreateContainer") == 3 and made.calls.count("StopContainer") == 2
    assert runtime.container("p", "main").id != first
    kubelet.recreate_sandbox("p")
    assert made.calls.count("RUN_POD_SANDBOX") == 2 and made.calls.count("STOP_POD_SANDBOX") == 1


def test_reboot_disconnects_plugins(kubelet: MockKubelet, plugin: Any, runtime: NriRuntime) -> None:
    made = plugin()
    kubelet.admit(_pod())
    first = runtime.container("p", "main").id
    kubelet.reboot()
    made.reader.join(10)
    assert not made.reader.is_alive()
    assert runtime.container("p", "main").id != first
    with pytest.raises(Disconnected):
        made.connection.call("UpdateContainers", nri.UpdateContainersRequest(), 1)


@pytest.mark.parametrize("index", ["1", "abc", ""])
def test_invalid_plugins_are_rejected(runtime: NriRuntime, index: str) -> None:
    with pytest.raises(CallFailed, match=f"invalid plugin index '{index}': expected two digits"):
        FakePlugin(runtime.path, index=index)


@pytest.mark.parametrize("base", ["", "a/b", "a\nb", "\x1b[2J", "n" * 254])
def test_invalid_names_are_rejected_in_one_line(runtime: NriRuntime, base: str) -> None:
    with pytest.raises(CallFailed, match=r"^invalid plugin name [^\n\x1b]*: expected at most 253 "):
        FakePlugin(runtime.path, base=base)


def test_texts_of_plugins_stay_on_one_line(
    kubelet: MockKubelet, plugin: Any, runtime: NriRuntime, lines: list[str]
) -> None:
    def create(_: Any) -> nri.CreateContainerResponse:
        response = nri.CreateContainerResponse()
        response.adjust.linux.resources.cpu.cpus = "0\npod default/q admitted\x1b[2J"
        return response

    def fail(_: Any) -> Any:
        raise ValueError("a\nb" + "c" * 5000)

    plugin(CreateContainer=create)
    kubelet.admit(_pod())
    assert "\\x1b[2J" in lines[-1]
    FakePlugin(runtime.path, base="second", CreateContainer=fail)
    assert runtime.wait_plugin("second")
    kubelet.exit_container("p", "main", 1)
    assert not any("\n" in line or "\x1b" in line for line in lines)
    failed = kubelet.pod("p").containers[0].reason
    assert "\n" not in failed and len(failed) < 3000


class _FailingListener(socket.socket):
    """A socket whose first ``accept`` fails, as without free descriptors."""

    failures: ClassVar[list[int]] = []

    def accept(self) -> Any:
        if self.failures:
            raise OSError(self.failures.pop(), "no descriptor is free")
        return super().accept()


def test_plugins_connect_after_a_failure_to_accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_FailingListener, "failures", [errno.EMFILE])
    monkeypatch.setattr(
        plugins, "socket", SimpleNamespace(**{**vars(socket), "socket": _FailingListener})
    )
    with NriRuntime(tmp_path / "nri.sock") as runtime:
        FakePlugin(runtime.path)
        assert runtime.wait_plugin("fake")


def test_number_of_connections_is_limited(
    runtime: NriRuntime, plugin: Any, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_MOST_CONNECTIONS", 1)
    plugin()
    for _ in range(3):
        with connected(runtime.path) as rejected:
            assert rejected.recv(1) == b""
    assert lines[1:] == [
        "an NRI plugin was disconnected: 1 connections are open, which is the limit"
    ]
    assert runtime.plugins() == ("10-fake",)


def test_connections_that_do_not_register_do_not_lock_out_plugins(
    runtime: NriRuntime, plugin: Any, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_MOST_CONNECTIONS", 2)
    monkeypatch.setattr(plugins, "_REGISTRATION_SECONDS", 600.0)
    with (
        connected(runtime.path) as first,
        connected(runtime.path) as second,
        connected(runtime.path),
    ):
        assert first.recv(1) == b""  # the runtime has closed the oldest connection
        plugin()
        assert second.recv(1) == b"" and runtime.plugins() == ("10-fake",)
    assert not any("did not register" in line for line in lines)


def test_silent_connection_has_no_thread_after_its_end(runtime: NriRuntime) -> None:
    before = threading.active_count()
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(str(runtime.path))
    wait_until(lambda: threading.active_count() <= before)


def test_updates_leave_nothing_and_are_one_line_for_each_container(
    kubelet: MockKubelet, plugin: Any, runtime: NriRuntime, lines: list[str]
) -> None:
    made = plugin()
    kubelet.admit(_pod())
    found = runtime.container("p", "main")
    update = nri.ContainerUpdate(container_id=found.id)
    # A plugin of a newer NRI version sends fields that this version does not know.
    update.linux.resources.MergeFromString(b"\xfa\x7f\xe8\x07" + b"x" * 1000)
    update.linux.resources.cpu.cpus = "0-1"
    before = len(lines)
    for _ in range(3):
        request = nri.UpdateContainersRequest(update=[update] * 100)
        assert not made.connection.call("UpdateContainers", request, 10).failed
    assert lines[before:] == ["container main was updated by an NRI plugin: cpus 0-1"] * 3
    [message] = runtime._all().containers
    assert message.ByteSize() < 1000 and message.linux.resources.cpu.cpus == "0-1"


@contextlib.contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(10)
        made.connect(str(path))
        yield made


def test_plugin_that_hangs_in_synchronize_delays_no_pod(
    kubelet: MockKubelet, runtime: NriRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REQUEST_SECONDS", 60.0)
    called, go_on, seen = threading.Event(), threading.Event(), []

    def synchronize(request: Any) -> nri.SynchronizeResponse:
        seen.append([each.name for each in request.containers])
        called.set()
        go_on.wait(10)
        return nri.SynchronizeResponse()

    FakePlugin(runtime.path, Synchronize=synchronize)
    assert called.wait(10)
    kubelet.admit(_pod())
    assert seen == [[]] and runtime.plugins() == ()
    go_on.set()
    assert runtime.wait_plugin("fake")
    assert seen == [[], ["main"]]


def test_plugin_is_disconnected_if_containers_always_change(
    kubelet: MockKubelet, runtime: NriRuntime, lines: list[str]
) -> None:
    numbers = iter(range(100))

    def synchronize(_: Any) -> nri.SynchronizeResponse:
        name = f"p{next(numbers)}"
        kubelet.admit(_pod() | {"metadata": {"name": name, "uid": name}})
        return nri.SynchronizeResponse()

    made = FakePlugin(runtime.path, Synchronize=synchronize)
    made.reader.join(30)
    assert next(numbers) == 10 and runtime.plugins() == ()
    wait_until(lambda: any("containers changed during each of 10 calls" in each for each in lines))


def test_unknown_methods_are_rejected(runtime: NriRuntime, plugin: Any) -> None:
    made = plugin()
    made.connection._called = nri.DESCRIPTOR.services_by_name["Plugin"]
    with pytest.raises(CallFailed, match="unknown method Synchronize"):
        made.connection.call("Synchronize", nri.SynchronizeRequest(), 10)


def test_second_runtime_on_a_socket_is_an_error(runtime: NriRuntime) -> None:
    with pytest.raises(StartError, match=r"nri\.sock"):
        NriRuntime(runtime.path).start()


def test_adjustments_replace_and_remove() -> None:
    change = nri.ContainerAdjustment(annotations={"-old": "", "new": "1"})
    change.env.add(key="A", value="2")
    change.env.add(key="-B")
    change.mounts.add(destination="/data", source="/srv", options=["ro"])
    change.mounts.add(destination="-/gone")
    change.linux.devices.add(path="/dev/x", type="c", major=1, minor=3)
    change.CDI_devices.add(name="a.b/c=d")
    container = nri.Container(env=["A=1", "B=1", "C=1"], annotations={"old": "0"})
    container.mounts.add(destination="/gone", source="/tmp")
    adjust(container, change)
    assert list(container.env) == ["C=1", "A=2"] and container.annotations == {"new": "1"}
    assert [each.destination for each in container.mounts] == ["/data"]
    gone = Mount(container_path="/gone", host_path="/tmp")
    options = RunOptions(envs={"A": "1", "B": "1"}, mounts=(gone,), annotations={"old": "0"})
    assert adjusted_options(options, change) == RunOptions(
        envs={"A": "2"},
        mounts=(Mount(container_path="/data", host_path="/srv", read_only=True),),
        devices=(DeviceSpec(container_path="/dev/x", host_path="/dev/x", permissions="rwm"),),
        annotations={"new": "1"},
        cdi_devices=("a.b/c=d",),
    )


def test_error_of_a_stop_has_no_effect(kubelet: MockKubelet, plugin: Any, lines: list[str]) -> None:
    def fail(_: Any) -> Any:
        raise ValueError("unknown container")

    plugin(StopContainer=fail)
    kubelet.admit(_pod())
    kubelet.terminate("p")
    assert "NRI plugin 10-fake: StopContainer failed: unknown container" in lines
    with pytest.raises(RequestError):
        kubelet.terminate("p")
