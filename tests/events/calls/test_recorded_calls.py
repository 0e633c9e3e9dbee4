"""All calls between a kubelet and plugins are recorded, in both directions."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from devicemanager import MockKubelet, Settings
from devicemanager.plugin.simulated import PreferredPolicy, SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from protos import pluginregistration_v1 as pr
from tests.hostile import hostile

GPU = "vendor.com/gpu"


@pytest.fixture(scope="module")
def kubelet() -> Iterator[MockKubelet]:
    with MockKubelet(settings=Settings(dial_timeout=0.2)) as kubelet:
        yield kubelet


@pytest.fixture
def plugin(kubelet: MockKubelet) -> Iterator[SimulatedPlugin]:
    settings = SimulationSettings(
        resource_name=GPU,
        number_devices=2,
        pre_start=True,
        preferred_policy=PreferredPolicy.LEXICAL,
    )
    mark = kubelet.mark()
    with SimulatedPlugin(settings, kubelet.plugin_dir) as plugin:
        kubelet.wait_for_resource(GPU, 2)
        # The first list can arrive before the response to Register is sent and recorded.
        kubelet.wait_for(lambda: bool(kubelet.calls(GPU, rpc="Register", since=mark)))
        yield plugin


def test_calls_of_plugin_and_of_pod_are_recorded(
    kubelet: MockKubelet, plugin: SimulatedPlugin
) -> None:
    mark = kubelet.mark()
    admission = kubelet.admit(pod_manifest("train", {GPU: 1}))
    assert [call.rpc for call in kubelet.calls(since=mark)] == [
        "GetPreferredAllocation",
        "Allocate",
        "PreStartContainer",
    ]
    (device,) = admission.containers["main"].devices[GPU]
    kubelet.calls.assert_called(GPU, rpc="Allocate", device_ids={device}, since=mark, times=1)
    (allocated,) = kubelet.calls(rpc="Allocate", since=mark)
    assert allocated.response is not None
    assert len(allocated.response["container_responses"]) == 1
    assert {call.rpc for call in kubelet.calls(GPU)[:3]} == {
        "GetDevicePluginOptions",
        "Register",
        "ListAndWatch",
    }
    registered = kubelet.calls(GPU, rpc="Register")[0]
    assert registered.direction == "to-kubelet"
    assert registered.request["resource_name"] == GPU
    assert registered.response_bytes == b""
    assert {call.plugin for call in kubelet.calls(GPU)} == {registered.request["endpoint"]}
    kubelet.terminate(admission.uid)


def test_list_and_end_of_stream_are_recorded(kubelet: MockKubelet, plugin: SimulatedPlugin) -> None:
    mark = kubelet.mark()
    plugin.remove(plugin.devices[0].id)
    kubelet.wait_for_resource(GPU, 1)
    (listed,) = kubelet.calls(GPU, rpc="ListAndWatch", since=mark)
    assert listed.stream_message == 2 and listed.response is not None
    assert len(listed.response["devices"]) == 1
    plugin.stop()
    kubelet.wait_for(lambda: len(kubelet.calls(GPU, since=mark)) == 2)
    ended = kubelet.calls(GPU, since=mark)[-1]
    assert (ended.rpc, ended.response, ended.stream_message) == ("ListAndWatch", None, None)
    assert (ended.code, ended.message) == ("OK", "")


def test_rejected_registration_is_recorded(kubelet: MockKubelet) -> None:
    mark = kubelet.mark()
    rejection = hostile.register(kubelet.plugin_socket, "none.sock", "vendor.com/none")
    (call,) = kubelet.calls("vendor.com/none", since=mark)
    assert (call.rpc, call.code, call.plugin) == ("Register", "Unknown", "none.sock")
    assert rejection is not None and call.message in str(rejection)


def test_registration_that_the_plugin_gives_up_is_recorded(kubelet: MockKubelet) -> None:
    mark = kubelet.mark()
    kubelet.faults.set("delay-register", seconds=0.5, times=1)
    request = dp.RegisterRequest(
        version="v1beta1", endpoint="late.sock", resource_name="vendor.com/late"
    )
    with (
        hostile.RawPlugin(kubelet.plugin_dir / "late.sock"),
        grpc.insecure_channel(sockets.target(kubelet.plugin_socket)) as channel,
    ):
        with pytest.raises(grpc.RpcError):
            dp_grpc.RegistrationStub(channel).Register(request, timeout=0.1)
        kubelet.wait_for(lambda: bool(kubelet.calls(rpc="Register", since=mark)))
        (call,) = kubelet.calls(rpc="Register", since=mark)
        assert (call.code, call.message) == ("Canceled", "the plugin gave up the call")


def test_huge_resource_name_is_cut(kubelet: MockKubelet) -> None:
    mark = kubelet.mark()
    hostile.register(kubelet.plugin_socket, "x.sock", "vendor.com/" + "x" * 100_000)
    (call,) = kubelet.calls(rpc="Register", since=mark)
    assert len(call.request_bytes) < 2000
    assert call.request["resource_name"].endswith("x...")


def test_handshake_of_watched_plugin_is_recorded(kubelet: MockKubelet) -> None:
    mark = kubelet.mark()
    resource = "vendor.com/watched"
    info = pr.PluginInfo(type="DevicePlugin", name=resource, supported_versions=["v1beta1"])
    path = kubelet.plugins_registry_dir / "w.sock"
    with hostile.RawPlugin(path, info=hostile.constant(info.SerializeToString())):
        kubelet.wait_for(lambda: bool(kubelet.calls(rpc="NotifyRegistrationStatus", since=mark)))
    calls = [call for call in kubelet.calls(since=mark) if call.rpc != "ListAndWatch"]
    assert [(call.rpc, call.resource) for call in calls] == [
        ("GetInfo", None),
        ("GetDevicePluginOptions", resource),
        ("NotifyRegistrationStatus", resource),
    ]
    assert calls[0].request_bytes == b""
    assert calls[0].response is not None and calls[0].response["name"] == resource
    assert calls[2].request == {"plugin_registered": True, "error": ""}
    assert {call.plugin for call in calls} == {str(path)}


def failing(request: bytes, context: hostile.Context) -> bytes:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more of these")


def without_text(request: bytes, context: hostile.Context) -> bytes:
    context.abort(grpc.StatusCode.ABORTED, "")


def garbage(request: bytes, context: hostile.Context) -> bytes:
    return b"\xff\xff"


@pytest.mark.parametrize(
    ("allocate", "code", "message", "response"),
    [
        (failing, "ResourceExhausted", "no more of these", None),
        (without_text, "Aborted", "", None),
        (garbage, "Internal", "Exception deserializing response!", {"undecodable": "//8="}),
    ],
    ids=["status", "no text", "garbage"],
)
def test_failed_allocate_is_recorded_with_its_status(
    kubelet: MockKubelet, allocate: hostile.Unary, code: str, message: str, response: object
) -> None:
    listed = hostile.lists(hostile.devices("d0"))
    path = kubelet.plugin_dir / "raw.sock"
    with hostile.RawPlugin(path, lists=listed, allocate=allocate):
        assert hostile.register(kubelet.plugin_socket, path.name, "vendor.com/raw") is None
        kubelet.wait_for_resource("vendor.com/raw", 1)
        mark = kubelet.mark()
        assert not kubelet.admit(pod_manifest(code.lower(), {"vendor.com/raw": 1})).admitted
        (call,) = kubelet.calls(rpc="Allocate", since=mark)
        assert (call.code, call.message, call.response) == (code, message, response)


def test_log_survives_kubelet_restart(kubelet: MockKubelet, plugin: SimulatedPlugin) -> None:
    mark = kubelet.mark()
    kubelet.restart()
    kubelet.wait_for_resource(GPU, 2)
    end, *_ = kubelet.calls(GPU, rpc="ListAndWatch", since=mark)
    assert end.stream_message is None
    kubelet.wait_for_call(GPU, rpc="Register", since=mark)


def test_nothing_is_recorded_if_no_calls_are_stored() -> None:
    with MockKubelet(settings=Settings(calls_kept=0)) as kubelet:
        with SimulatedPlugin(SimulationSettings(resource_name=GPU), kubelet.plugin_dir):
            kubelet.wait_for_resource(GPU)
        assert kubelet.calls.latest == 0
        with pytest.raises(AssertionError, match=r"Settings.calls_kept is 0"):
            kubelet.calls.assert_called(rpc="Register")
