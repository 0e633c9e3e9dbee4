"""Direct calls to a plugin, without a pod."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from devicemanager import MockKubelet, RequestError, RpcError, WaitTimeout
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.plugin.simulated import PreferredPolicy, SimulatedPlugin, SimulationSettings
from tests.hostile import hostile

GPU = "vendor.com/gpu"
RAW = "vendor.com/raw"


@pytest.fixture(scope="module")
def kubelet() -> Iterator[MockKubelet]:
    with MockKubelet() as kubelet:
        yield kubelet


@pytest.fixture(scope="module")
def plugin(kubelet: MockKubelet) -> Iterator[SimulatedPlugin]:
    settings = SimulationSettings(
        resource_name=GPU,
        number_devices=2,
        preferred_policy=PreferredPolicy.REVERSE,
        pre_start=True,
    )
    with SimulatedPlugin(settings, kubelet.plugin_dir) as plugin:
        kubelet.wait_for_resource(GPU, 2)
        yield plugin


def test_allocate_sends_ids_and_changes_nothing(
    kubelet: MockKubelet, plugin: SimulatedPlugin
) -> None:
    first, second = (device.id for device in plugin.devices)
    mark = kubelet.mark()
    (settings,) = kubelet.allocate(GPU, {second, first})
    both = kubelet.allocate(GPU, containers=[[second], [first]])
    assert isinstance(settings, ContainerSettings) and len(both) == 2
    requested = [call.device_ids for call in plugin.calls if call.rpc == "Allocate"]
    assert requested == [((first, second),), ((second,), (first,))]
    kubelet.calls.assert_called(GPU, rpc="Allocate", since=mark, times=2)
    assert kubelet.allocatable() == {GPU: 2} and not kubelet.pods()


def test_error_of_the_plugin_has_its_status(kubelet: MockKubelet, plugin: SimulatedPlugin) -> None:
    with pytest.raises(RpcError) as caught:
        kubelet.allocate(GPU, ["no-such-device"])
    assert caught.value.code == "NotFound"
    assert "no-such-device" in caught.value.description


def test_options_preferred_and_pre_start(kubelet: MockKubelet, plugin: SimulatedPlugin) -> None:
    first, second = (device.id for device in plugin.devices)
    assert kubelet.options(GPU) == PluginOptions(True, True)
    assert kubelet.preferred(GPU, {first, second}, size=1) == ((second,),)
    assert kubelet.preferred(GPU, [first, second], [first], size=1) == ((first,),)
    kubelet.pre_start(GPU, [first])
    assert plugin.calls[-1].device_ids == ((first,),)


def test_watch_opens_a_second_stream(kubelet: MockKubelet, plugin: SimulatedPlugin) -> None:
    first, second = plugin.devices
    mark = kubelet.mark()
    with kubelet.watch(GPU) as lists:
        assert [device.id for device in next(lists)] == [first.id, second.id]
        plugin.set_health(second.id, False)
        assert [device.is_healthy for device in next(lists)] == [True, False]
    assert list(lists) == []
    lists.close()
    plugin.set_health(second.id, True)
    kubelet.wait_for_resource(GPU, 2)
    recorded = kubelet.calls(GPU, rpc="ListAndWatch", since=mark)
    assert [call.stream_message for call in recorded].count(None) == 1


def test_watch_times_out_without_a_list(kubelet: MockKubelet, plugin: SimulatedPlugin) -> None:
    lists = kubelet.watch(GPU, timeout=0.01)
    with (
        lists,
        pytest.raises(WaitTimeout, match=r"^waited 0\.01 s for the next device list of vendor.com"),
    ):
        while True:
            next(lists)


def ends(context: hostile.Context) -> Iterator[bytes]:
    yield hostile.devices("d0")
    context.abort(grpc.StatusCode.DATA_LOSS, "lost")


def test_watch_ends_with_the_stream(kubelet: MockKubelet) -> None:
    stays = hostile.lists(hostile.devices("d0"))
    streams = iter([stays, ends, hostile.lists(hostile.devices("d0"), stay=False)])
    path = kubelet.plugin_dir / "raw.sock"
    with hostile.RawPlugin(path, lists=lambda context: next(streams)(context)):
        assert hostile.register(kubelet.plugin_socket, path.name, RAW) is None
        kubelet.wait_for_resource(RAW, 1)
        lists = kubelet.watch(RAW)
        assert len(next(lists)) == 1
        with pytest.raises(RpcError, match=r"^rpc error: code = DataLoss"):
            next(lists)
        assert len(list(kubelet.watch(RAW))) == 1


@pytest.mark.parametrize(
    ("resource", "arguments", "words"),
    [
        ("vendor.com/none", {"ids": ["a"]}, "no plugin of vendor.com/none is connected"),
        (GPU, {"ids": "gpu-0"}, r"expected a list, such as \['gpu-0'\]"),
        (GPU, {}, r"use either ids \(for one container\) or containers"),
        (GPU, {"ids": [], "containers": []}, r"use either ids \(for one container\) or containers"),
    ],
)
def test_allocate_rejects_invalid_arguments(
    kubelet: MockKubelet, plugin: SimulatedPlugin, resource: str, arguments, words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        kubelet.allocate(resource, **arguments)
