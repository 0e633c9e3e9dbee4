"""One suite for both implementations of KubeletInterface: the kubelet and its client."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import pytest

from devicemanager import (
    ManifestError,
    ManualClock,
    MockKubelet,
    Rejected,
    RequestError,
    RpcError,
    WaitTimeout,
)
from devicemanager.claims import ClaimsError, InvalidObject
from devicemanager.control import ControlError, ControlServer, MockKubeletClient
from devicemanager.control.shapes import ContainerState
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.podstatus.containers import ContainerStatus, Running, Terminated
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.events.calls import CallMismatch, Mark
from devicemanager.events.stream import EventKind
from devicemanager.faults import FaultError
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.plugin.simulated import PreferredPolicy
from devicemanager.testing import pod_manifest
from protos import deviceplugin_v1beta1 as dp
from tests.hostile import hostile

if TYPE_CHECKING:
    from devicemanager.kubelet.interface import AdmissionView, KubeletInterface

    def both_implement_it(
        kubelet: MockKubelet, client: MockKubeletClient
    ) -> list[KubeletInterface]:
        return [kubelet, client]


GPU = "vendor.com/gpu"


@pytest.fixture(params=["here", "remote"])
def kubelet(request, mock_kubelet):
    """The kubelet or its client; mock_kubelet is the kubelet behind it."""
    if request.param == "here":
        yield mock_kubelet
        return
    with ControlServer(mock_kubelet) as server:
        yield MockKubeletClient(server.socket_path)


def trained(gpus: int = 2, **more):
    return pod_manifest("train", {GPU: gpus}, uid="train", **more)


def test_pod_from_admission_to_deletion(kubelet, mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 4, env_prefix="GPU")
    kubelet.wait_for_resource(GPU, 4)
    admission: AdmissionView = kubelet.admit(trained())
    admission.raise_for_rejection()
    assert (admission.uid, admission.admitted, admission.reason) == ("train", True, "")
    main = admission.containers["main"]
    assert main.devices == {GPU: ["gpu-mock-0", "gpu-mock-1"]}
    assert main.run_options.envs == {"GPU_0": "/dev/0", "GPU_1": "/dev/1"}
    assert main.oci().config == {"process": {"env": ["GPU_0=/dev/0", "GPU_1=/dev/1"]}}
    assert (main.affinity, main.claims, main.error) == (None, {}, "")
    assert "gpu-mock-0" in admission.explain()
    assert kubelet.devices("train") == {"main": {GPU: ["gpu-mock-0", "gpu-mock-1"]}}
    pod = kubelet.pod("train")
    assert (pod.phase, pod.running) == ("Running", {"main"})
    assert pod.containers[0].limits == pod.containers[0].requests == {GPU: 2}
    assert pod.devices == {"main": {GPU: ("gpu-mock-0", "gpu-mock-1")}}
    assert pod == mock_kubelet.pod("train")
    assert list(kubelet.pods()) == ["train"]
    (status,) = kubelet.allocated_resources_status("train")["main"]
    assert [each.health for each in status.resources] == ["Healthy", "Healthy"]
    (plugin,) = kubelet.plugins()
    assert (plugin.resource, plugin.connected, plugin.capacity) == (GPU, True, 4)
    held = [(each.id, each.pod, each.container) for each in kubelet.inventory() if each.pod]
    assert held == [("gpu-mock-0", "train", "main"), ("gpu-mock-1", "train", "main")]
    assert kubelet.capacity() == kubelet.allocatable() == {GPU: 4}
    assert kubelet.node_status().allocatable == {GPU: 4}
    assert kubelet.start_container("train", "main").envs == main.run_options.envs
    assert kubelet.restart_container("train", "main").envs == main.run_options.envs
    kubelet.terminate("train")
    assert kubelet.pods() == {}
    kubelet.sources_ready()
    kubelet.check()


def test_rejections_and_errors(kubelet, mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 1)
    rejected = kubelet.admit(trained(2))
    assert (rejected.admitted, rejected.reason) == (False, "UnexpectedAdmissionError")
    assert "Requested: 2, Available: 1" in rejected.message
    assert "1 of 1 free" in rejected.explain()
    with pytest.raises(KeyError, match="pod default/train was rejected"):
        rejected.containers["main"]
    with pytest.raises(Rejected, match="Requested: 2"):
        rejected.raise_for_rejection()
    with pytest.raises(
        TypeError,
        match=r"^(an Admission|the result of an admission) has no truth value: .*\.admitted",
    ):
        bool(rejected)
    with pytest.raises(RequestError, match=r"^no pod has the UID 'unknown'"):
        kubelet.terminate("unknown")
    with pytest.raises(RequestError, match=r"^no pod has the UID 'unknown'"):
        kubelet.pod("unknown")
    with pytest.raises(
        RequestError, match=r"^default/train is the name of a pod: use its UID train"
    ):
        kubelet.devices("default/train")
    with pytest.raises(
        ManifestError, match=r'^"nothing" is neither an existing file nor a manifest'
    ):
        kubelet.admit("nothing")
    with pytest.raises(ManifestError, match=r"^spec\.containers"):
        kubelet.admit({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}})
    with pytest.raises(ManifestError, match=r"^missing\.yaml: No such file or directory"):
        kubelet.admit("missing.yaml")
    with pytest.raises(RequestError, match=r"^unknown event 'x'"):
        kubelet.wait_for_event("x")
    with pytest.raises(RequestError, match=r"^invalid resource 'gpu'"):
        kubelet.wait_for_resource("gpu")


def test_finish_ends_a_pod(kubelet, simulated_plugin):
    simulated_plugin(GPU, 2)
    manifest = trained()
    manifest["spec"]["restartPolicy"] = "Never"
    kubelet.admit(manifest, start=False)
    assert kubelet.pod("train").phase == "Pending"
    kubelet.start_container("train", "main")
    assert kubelet.finish("train", {"main": 3}) == "Failed"
    with pytest.raises(
        RequestError, match=r"^pod default/train cannot finish: it has already ended"
    ):
        kubelet.finish("train")


def test_exit_container_and_graceful_deletion(kubelet, mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 2)
    manifest = trained()
    manifest["spec"]["initContainers"] = [{"name": "setup", "image": "a"}]
    kubelet.admit(manifest)
    statuses = kubelet.container_statuses("train")
    assert list(statuses) == ["setup", "main"]
    assert statuses == mock_kubelet.container_statuses("train")
    assert statuses["setup"].state == Terminated(0, "Completed", 1000.0, 1000.0)
    assert statuses["main"] == ContainerStatus("main", Running(1000.0))
    assert kubelet.exit_container("train", "main", 1).state == Running(1000.0)
    waits = kubelet.exit_container("train", "main", 137, reason="OOMKilled")
    assert (waits.state.reason, waits.restart_count) == ("CrashLoopBackOff", 1)
    assert waits.last_termination == Terminated(137, "OOMKilled", 1000.0, 1000.0)
    assert kubelet.container_statuses("train")["main"] == waits
    with pytest.raises(
        RequestError,
        match=r"^container main of pod default/train is waiting: expected a running container",
    ):
        kubelet.exit_container("train", "main")
    kubelet.start_container("train", "main")
    mark = kubelet.mark()
    kubelet.delete("train")
    assert "have 30s to end" in kubelet.wait_for_event("deleting", since=mark, timeout=0).message
    kubelet.delete("train", 4.5)
    kubelet.clock.advance(4)
    assert list(kubelet.pods()) == ["train"]
    kubelet.clock.advance(0.5)
    kubelet.wait_for(lambda: not kubelet.pods())
    with pytest.raises(RequestError, match=r"^no pod has the UID 'train'"):
        kubelet.delete("train")
    with pytest.raises(RequestError, match=r"^no pod has the UID 'train'"):
        kubelet.container_statuses("train")


def test_container_state_must_be_exactly_one():
    with pytest.raises(
        msgspec.ValidationError, match=r"^Expected exactly one of waiting, running and terminated"
    ):
        msgspec.json.decode(b"{}", type=ContainerState)


def test_restart_reboot_stop_and_start(kubelet, mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 2)
    kubelet.admit(trained())
    mark = kubelet.events.latest
    kubelet.restart()
    kubelet.wait_for_resource(GPU, 2)
    assert kubelet.devices("train") == {"main": {GPU: ["gpu-mock-0", "gpu-mock-1"]}}
    assert kubelet.wait_for_event(EventKind.STARTED, after=mark).number > mark
    find = kubelet.wait_for_event
    assert find(pod="train", text="started", since=0, timeout=0).kind == "container-started"
    assert find(text=re.compile(r"^pod .* admitted$"), since=Mark(event=0, call=0), timeout=0)
    assert find(where=lambda event: event.number > 2, after=0, timeout=0).number == 3
    kubelet.reboot()
    assert kubelet.is_serving
    kubelet.stop()
    assert not kubelet.is_serving
    with pytest.raises(RequestError, match=r"^the kubelet is not running"):
        kubelet.capacity()
    kubelet.start()
    with pytest.raises(RequestError, match=r"^the kubelet is already running"):
        kubelet.start()


def test_failed_waits_report_the_events(kubelet):
    with pytest.raises(WaitTimeout) as resource:
        kubelet.wait_for_resource(GPU, timeout=0.01)
    text = str(resource.value)
    assert text.startswith(f"waited 0.01 s for any allocatable devices of {GPU}; no plugin has")
    assert "what did happen:\n  started: kubelet serves" in text
    with pytest.raises(WaitTimeout, match=r"^waited 0\.01 s for the event registered of x/y; "):
        kubelet.wait_for_event("registered", resource="x/y", timeout=0.01)
    with pytest.raises(WaitTimeout, match=r"^waited 0\.01 s for rain; what did happen:\n  started"):
        kubelet.wait_for(lambda: False, timeout=0.01, what="rain")


@pytest.mark.parametrize("timeout", [None, "9", True])
def test_invalid_timeout_is_rejected_at_once(kubelet, timeout):
    for wait in (
        lambda: kubelet.wait_for_resource(GPU, timeout=timeout),
        lambda: kubelet.wait_for(bool, timeout=timeout),
        lambda: kubelet.wait_for_event("admitted", timeout=timeout),
        lambda: kubelet.wait_for_call(rpc="Allocate", timeout=timeout),
    ):
        with pytest.raises(
            RequestError, match=f"^invalid timeout {timeout!r}: expected a number of seconds"
        ):
            wait()
    with pytest.raises(RequestError, match=r"^invalid condition"):
        kubelet.wait_for(kubelet.is_serving)


def test_waits_return_when_fulfilled(kubelet, mock_kubelet, simulated_plugin):
    asked = threading.Event()

    def condition():
        asked.set()
        return bool(mock_kubelet.allocatable())

    with ThreadPoolExecutor() as pool:
        waits = [
            pool.submit(kubelet.wait_for, condition),
            pool.submit(kubelet.wait_for_event, "registered", after=0),
            pool.submit(kubelet.wait_for_resource, GPU, 2),
        ]
        assert asked.wait(10)
        simulated_plugin(GPU, 2)
        assert [wait.result() for wait in waits][1].resource == GPU


def test_wait_for_call_criteria(kubelet, mock_kubelet, simulated_plugin):
    beginning = kubelet.mark()
    plugin = simulated_plugin(GPU, 2, pre_start=True)
    first = plugin.devices[0].id
    mark = kubelet.mark()
    with ThreadPoolExecutor() as pool:
        wait = pool.submit(kubelet.wait_for_call, GPU, rpc="PreStartContainer", since=mark)
        kubelet.admit(trained(1))
        assert wait.result() == mock_kubelet.calls(rpc="PreStartContainer")[0]
    find = kubelet.wait_for_call
    (allocate,) = mock_kubelet.calls(rpc="Allocate")
    assert find(device_ids={first}, since=mark, timeout=0) == allocate
    assert find(code="OK", plugin="gpu.sock", since=mark, timeout=0) == allocate
    asked = {"container_requests": [{"devices_ids": [first]}]}
    assert find(request=asked, since=mark, timeout=0) == allocate
    register = find(GPU, where=lambda call: call.rpc == "Register", since=beginning, timeout=0)
    assert register == mock_kubelet.calls(rpc="Register")[0]
    assert find(response={"container_responses": [{}]}, since=beginning, timeout=0) == allocate
    with pytest.raises(
        WaitTimeout, match=r"^waited 0\.01 s for the call\(rpc='Allocate'\); "
    ) as no:
        find(rpc="Allocate", timeout=0.01)  # later than now
    assert "\n  -- matched from here --\n" in f"{no.value}\n"
    with pytest.raises(WaitTimeout):
        find(code="Unavailable", since=beginning, timeout=0)
    with pytest.raises(WaitTimeout):
        find(where=lambda call: False, since=beginning, timeout=0)
    with pytest.raises(RequestError, match=r"^unknown RPC 'x'"):
        find(rpc="x")
    with pytest.raises(RequestError, match="use a set of ids"):
        find(device_ids=first)


def test_wait_for_call_counts_calls_since_the_request(
    client, mock_kubelet, simulated_plugin, monkeypatch
):
    simulated_plugin(GPU, 1)
    look, looked = mock_kubelet.wait_for_call, threading.Event()

    def looks(*criteria, **more):
        try:
            return look(*criteria, **more)
        finally:
            looked.set()

    monkeypatch.setattr(mock_kubelet, "wait_for_call", looks)
    with ThreadPoolExecutor() as pool:
        wait = pool.submit(client.wait_for_call, rpc="GetDevicePluginOptions")
        assert looked.wait(10)
        mock_kubelet.options(GPU)  # no event comes with it
        assert wait.result() == mock_kubelet.calls.all()[-1]


def test_structured_claims(kubelet, mock_kubelet):
    from devicemanager.claims import SimulatedHardware, simulated_classes

    for pool in SimulatedHardware(gpu=1).pools("mock"):
        kubelet.publish(pool)
    for each in simulated_classes():
        kubelet.define(each)
    assert [pool.name for pool in mock_kubelet.claims.pools()]
    with pytest.raises(InvalidObject):
        kubelet.claim({"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaim"})
    with pytest.raises(ClaimsError):
        kubelet.publish("missing.yaml")


def test_events_and_clock(kubelet, mock_kubelet):
    assert kubelet.events.recent() == mock_kubelet.events.recent()
    assert kubelet.events.recent(EventKind.ADMITTED) == ()
    assert kubelet.events.latest == mock_kubelet.events.latest
    assert (kubelet.clock.time(), kubelet.clock.monotonic()) == (1000.0, 1000.0)
    kubelet.clock.advance(5)
    assert mock_kubelet.clock.monotonic() == 1005.0


def test_calls(kubelet, mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 2)
    mark = kubelet.mark()
    kubelet.admit(trained())
    (allocate,) = kubelet.calls(GPU, rpc="Allocate", since=mark)
    assert allocate.device_ids == {"gpu-mock-0", "gpu-mock-1"}
    assert allocate == mock_kubelet.calls.all()[-1]
    assert kubelet.calls.all() == mock_kubelet.calls.all()
    assert kubelet.calls.latest == allocate.number > mark.call
    assert kubelet.calls.dropped == 0
    (stream,) = kubelet.calls.in_progress
    assert (stream.resource, stream.rpc) == (GPU, "ListAndWatch")
    kubelet.calls.assert_called(rpc="Register", times=1)
    kubelet.calls.assert_not_called(rpc="PreStartContainer")
    with pytest.raises(CallMismatch, match="gpu-mock-1"):
        kubelet.calls.assert_called(rpc="Allocate", device_ids={"gpu-mock-0"})
    with pytest.raises(RequestError, match=r"^unknown RPC 'x'"):
        kubelet.calls(rpc="x")


def test_direct_calls(kubelet, simulated_plugin):
    plugin = simulated_plugin(
        GPU, 2, env_prefix="GPU", preferred_policy=PreferredPolicy.REVERSE, pre_start=True
    )
    first, second = (device.id for device in plugin.devices)
    assert kubelet.options(GPU) == PluginOptions(True, True)
    (settings,) = kubelet.allocate(GPU, {second, first})
    assert settings.envs == {"GPU_0": "/dev/0", "GPU_1": "/dev/1"}
    assert isinstance(settings, ContainerSettings)
    assert isinstance(settings.devices, tuple)
    assert len(kubelet.allocate(GPU, containers=[(second, first), {first}])) == 2
    assert plugin.calls[-1].device_ids == ((second, first), (first,))
    assert kubelet.preferred(GPU, {first, second}, size=1) == ((second,),)
    assert kubelet.preferred(GPU, [first, second], [first], size=1) == ((first,),)
    kubelet.pre_start(GPU, iter([second, first]))
    assert (plugin.calls[-1].rpc, plugin.calls[-1].device_ids) == (
        "PreStartContainer",
        ((first, second),),
    )
    assert kubelet.pods() == {}
    with pytest.raises(
        RpcError, match=r"^rpc error: code = NotFound desc = unknown device no-such-device"
    ) as caught:
        kubelet.allocate(GPU, ["no-such-device"])
    assert caught.value.code == "NotFound"
    assert caught.value.description in str(caught.value)
    with pytest.raises(RequestError, match=r"^no plugin of vendor\.com/none is connected"):
        kubelet.options("vendor.com/none")
    with pytest.raises(
        RequestError,
        match=r"^invalid arguments: use either ids \(for one container\) or containers",
    ):
        kubelet.allocate(GPU)
    with pytest.raises(RequestError, match=r"expected a list, such as \['gpu-0'\]"):
        kubelet.allocate(GPU, "gpu-0")


def test_invalid_plugin_response_raises_wire_error(kubelet):
    response = dp.ContainerAllocateResponse(typed_devices=[dp.TypedDevice()])
    path = kubelet.plugin_dir / "raw.sock"
    with hostile.RawPlugin(path, lists=hostile.TWO_DEVICES, allocate=hostile.answering(response)):
        assert hostile.register(kubelet.plugin_socket, path.name, GPU) is None
        kubelet.wait_for_resource(GPU, 2)
        with pytest.raises(WireError, match=r"^typed device 0 .* has an unknown kind"):
            kubelet.allocate(GPU, ["d0"])


def test_faults(kubelet, mock_kubelet, simulated_plugin):
    fault = kubelet.faults.set("fail-call", rpc="Allocate", text="a, b=c", times=1)
    assert kubelet.faults.list() == (fault,) == mock_kubelet.faults.list()
    simulated_plugin(GPU, 1)
    assert "a, b=c" in kubelet.admit(trained(1)).message
    assert [each.is_spent for each in kubelet.faults.list()] == [True]
    assert kubelet.calls(rpc="Allocate")[0].fault == "fault 1, fail-call"
    kubelet.faults.set("reject-register:times=2")
    assert (kubelet.faults.clear(fault.id), kubelet.faults.clear("reject-register")) == (1, 1)
    assert kubelet.faults.clear() == 0
    with pytest.raises(FaultError, match=r"^unknown fault 'x'"):
        kubelet.faults.set("x")
    with pytest.raises(RequestError, match=r"^unknown fault 1: no faults are set"):
        kubelet.faults.clear(1)


def test_paths(kubelet, mock_kubelet):
    for name in (
        "root",
        "plugin_dir",
        "plugin_socket",
        "pod_resources_socket",
        "plugins_registry_dir",
        "checkpoint_path",
        "claims_state_path",
    ):
        assert getattr(kubelet, name) == getattr(mock_kubelet, name)


def test_check_raises_the_first_error_on_a_server_thread(make_mock_kubelet):
    kubelet = make_mock_kubelet()

    def fail(*_):
        raise ValueError("broken")

    kubelet.manager.plugins.connect = fail
    with ControlServer(kubelet) as server, hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        client = MockKubeletClient(server.socket_path)
        assert hostile.register(kubelet.plugin_socket, "p.sock") is not None
        with pytest.raises(
            ControlError, match=r"^a server thread of the kubelet failed: ValueError\('broken'\)$"
        ):
            client.check()
        client.check()


def test_system_clock_cannot_be_advanced(make_mock_kubelet):
    kubelet = make_mock_kubelet()
    assert not isinstance(kubelet.clock, ManualClock)
    with (
        ControlServer(kubelet) as server,
        pytest.raises(RequestError, match="run --clock manual"),
    ):
        MockKubeletClient(server.socket_path).clock.advance(1)


def test_closing_the_client_leaves_the_kubelet_running(server, mock_kubelet):
    with MockKubeletClient(mock_kubelet.root) as client:
        assert client.is_serving
    assert mock_kubelet.is_serving
