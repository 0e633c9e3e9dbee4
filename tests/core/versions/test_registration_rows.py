"""Registration just below and at the version of each difference."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from devicemanager import EventKind, MockKubelet, Settings
from devicemanager.core.api.deviceplugin import DEVICE_PLUGIN
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import EndpointError
from devicemanager.core.ids import ResourceName
from devicemanager.testing.fakes import FakePlugin
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from protos import pluginregistration_v1 as pr
from tests.helpers import devices
from tests.hostile import hostile
from tests.node import GPU, Node

R = hostile.RESOURCE
Make = Callable[..., MockKubelet]


@pytest.fixture
def kubelet(make_mock_kubelet: Make) -> Make:
    def make(version: str, **fields: object) -> MockKubelet:
        return make_mock_kubelet(Settings(kubelet_version=version, durability="process", **fields))

    return make


@pytest.mark.parametrize("version", ["1.24", "1.25"])
def test_r1_plugin_registers_before_it_serves(kubelet: Make, version: str) -> None:
    node = kubelet(version, dial_timeout=0.01)
    dialed = "failed to dial device plugin: context deadline exceeded"
    answer = hostile.register(node.plugin_socket, "missing.sock")
    assert answer == (None if version == "1.24" else dialed)
    rejected = node.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
    assert f"'missing.sock' rejected: {dialed}" in rejected.message
    # Both versions validate version and name before Register returns.
    assert "is not supported by kubelet" in str(
        hostile.register(node.plugin_socket, "p.sock", version="v9")
    )
    # An invalid file name is detected in the background, too.
    assert (hostile.register(node.plugin_socket, "../p.sock") is None) is (version == "1.24")


@pytest.mark.parametrize(
    ("version", "options", "count"),
    [("1.24", PluginOptions(pre_start_required=True), 0), ("1.25", PluginOptions(False, True), 1)],
)
def test_r2_source_of_the_options(
    kubelet: Make, version: str, options: PluginOptions, count: int
) -> None:
    calls = []

    def answer(request: bytes, context: hostile.Context) -> bytes:
        calls.append(request)
        found = dp.DevicePluginOptions(get_preferred_allocation_available=True)
        return bytes(found.SerializeToString())

    node = kubelet(version)
    with (
        hostile.RawPlugin(node.plugin_dir / "p.sock", options=answer),
        grpc.insecure_channel(sockets.target(node.plugin_socket)) as channel,
    ):
        request = dp.RegisterRequest(
            version="v1beta1",
            endpoint="p.sock",
            resource_name=R,
            options=dp.DevicePluginOptions(pre_start_required=True),
        )
        dp_grpc.RegistrationStub(channel).Register(request, timeout=20)
        node.wait_for_resource(R)
        serving = node.manager.state.endpoints.serving(ResourceName(R))
    assert serving is not None and serving.options == options
    assert len(calls) == count


def info(endpoint: str) -> hostile.Unary:
    answer = pr.PluginInfo(
        type=DEVICE_PLUGIN, name=R, endpoint=endpoint, supported_versions=["v1beta1"]
    )
    return hostile.constant(answer.SerializeToString())


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (
            "1.24",
            "failed to dial device plugin with socketPath /missing.sock: "
            "failed to dial device plugin: context deadline exceeded",
        ),
        ("1.25", "failed to dial device plugin: context deadline exceeded"),
    ],
)
def test_r8_status_sent_to_a_watched_plugin(kubelet: Make, version: str, text: str) -> None:
    node = kubelet(version, dial_timeout=0.3)
    path = node.plugins_registry_dir / "p.sock"
    with hostile.RawPlugin(path, info=info("/missing.sock")) as plugin:
        node.wait_for(lambda: bool(plugin.notified))
    prefix = "RegisterPlugin error -- plugin registration failed with err: "
    assert plugin.notified[0].error == prefix + text


GIVEN_UP = "plugin p.sock: not retried until its socket is replaced"


@pytest.mark.parametrize(("version", "attempts"), [("1.35", 1), ("1.36", 2)])
def test_d4_watched_plugin_that_fails_once(kubelet: Make, version: str, attempts: int) -> None:
    requests = []

    def options(request: bytes, context: hostile.Context) -> bytes:
        requests.append(request)
        if len(requests) == 1:
            context.abort(grpc.StatusCode.INTERNAL, "not yet")
        return b""

    node = kubelet(version)
    path = node.plugins_registry_dir / "p.sock"
    with hostile.RawPlugin(path, info=info(""), options=options):
        node.wait_for_event(EventKind.REGISTRATION_REJECTED, after=0)
        if attempts == 2:
            node.wait_for_resource(R, 2)
        else:
            node.wait_for(lambda: GIVEN_UP in node.events.recent()[-1].message)
    assert len(requests) == attempts


@pytest.mark.parametrize(("version", "allocatable"), [("1.36", 0), ("1.37", 2)])
def test_r4_newest_of_two_plugins_disconnects(version: str, allocatable: int) -> None:
    node = Node(kubelet_version=version)
    old = node.plugin(devices("a", "b"), name="old.sock")
    new = node.plugin(devices("a"), name="new.sock")
    assert old.closed is (version == "1.36")
    new.leave()
    counts = node.manager.capacity()
    assert (counts.capacity[GPU], counts.allocatable[GPU]) == (allocatable or 1, allocatable)


@pytest.mark.parametrize(
    ("version", "replaced"),
    [
        ("1.36", ["new.sock replaces old.sock, whose connection is closed"]),
        ("1.37", []),
    ],
)
def test_r4_event_names_the_replaced_plugin(version: str, replaced: list[str]) -> None:
    node = Node(kubelet_version=version)
    node.plugin(devices("a"), name="old.sock")
    node.plugin(devices("a"), name="new.sock")
    assert node.messages(EventKind.REPLACED) == [f"{GPU}: {text}" for text in replaced]


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_r5_same_socket_again_with_all_quirks(version: str) -> None:
    node = Node(kubelet_version=version, quirks="reference")
    node.plugin(devices("a"))
    again = FakePlugin(GPU)
    if version == "1.36":
        again.register(node.manager.plugins)
        return
    with pytest.raises(EndpointError, match=r"^device plugin already connected: plugin\.sock$"):
        again.register(node.manager.plugins)
