"""Container starts: reuse, restarts, changed requests, PreStartContainer, late allocations."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from devicemanager.core.errors import AllocationError, RequestError, RpcError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Pod
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing import pod_manifest
from devicemanager.testing.fakes import ALLOCATE, PRE_START_CONTAINER, FakeCall, first
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tests.helpers import container, device, devices, pod
from tests.hostile import hostile
from tests.node import GPU, NIC, Node, allocations

# -- init containers ------------------------------------------------------------------------


def test_devices_of_init_containers_are_reused() -> None:
    node = Node()
    plugin = node.plugin(devices(*"abcd"))
    spec = pod(
        "p",
        container("x", gpu=1),
        container("y", gpu=2),
        init=[container("i", gpu=2), container("j", gpu=1)],
    )
    assert node.admit(spec, start=True).admitted
    # j takes some of i's devices, x the rest of the pool, y what is left and one more.
    assert allocations(plugin) == [("a", "b"), ("a",), ("a",), ("b", "c")]
    assert node.manager.capacity().allocatable == {GPU: 4}
    assert node.admit(pod("q", gpu=1)).admitted
    assert node.devices("q") == {"app": {GPU: ["d"]}}
    node.manager.self_check()


def test_sidecar_keeps_its_devices() -> None:
    node = Node()
    plugin = node.plugin(devices(*"abc"))
    spec = pod(
        "p",
        container("app", gpu=2),
        init=[container("i", gpu=1), container("side", restartable=True, gpu=1)],
    )
    assert node.admit(spec).admitted
    # The sidecar removes the init container's device from the pool.
    assert allocations(plugin) == [("a",), ("a",), ("b", "c")]


def test_devices_are_not_reused_across_pods() -> None:
    node = Node()
    node.plugin(devices("a"))
    node.admit(pod("p", container("app"), init=[container("init", gpu=1)]), start=True)
    assert "Requested: 1, Available: 0" in node.admit(pod("q", gpu=1)).message
    node.terminate("p")
    assert node.admit(pod("r", gpu=1)).admitted


# -- restarts and changed requests ------------------------------------------------------------


def test_restarted_container_keeps_its_devices() -> None:
    node = Node()
    plugin = node.plugin(devices("a", "b"))
    before = node.admit(pod("p", gpu=1), start=True).containers["app"].options
    plugin.send_list([device("a", health="Unhealthy"), device("b")])
    assert node.start("p") == before
    plugin.leave()
    assert node.start("p") == before
    assert allocations(plugin) == [("a",)]
    assert node.devices("p") == {"app": {GPU: ["a"]}}


@pytest.mark.parametrize("running", [True, False])
def test_readmission_with_a_changed_request(running: bool) -> None:
    node = Node()
    node.plugin(devices("a", "b"))
    node.admit(pod("p", gpu=1), start=True)
    node.new_process(reboot=not running)
    node.plugin(devices("a", "b"))
    # The kubelet knows the pod only from the checkpoint, and its spec has changed.
    node.forget_pods()
    if not running:
        node.pods.containers_stop()
    admission = node.admit(pod("p", gpu=2))
    assert (admission.reason, admission.message) == (
        "UnexpectedAdmissionError",
        'Allocate failed due to pod "p" container "app" changed request for resource '
        '"vendor.com/gpu" from 1 to 2, which is unexpected',
    )
    assert node.devices("p") == {"app": {GPU: ["a"]}}


# -- PreStartContainer --------------------------------------------------------------------------


def test_pre_start_is_called_before_every_start() -> None:
    node = Node()
    gpu = node.plugin(devices("a", "b"), pre_start_required=True)
    nic = node.plugin(devices("n"), NIC, "nic.sock")
    node.admit(pod("p", gpu=2, nic=1), start=True)
    node.start("p")
    pre_start = FakeCall(PRE_START_CONTAINER, ("a", "b"))
    assert gpu.calls == [FakeCall(ALLOCATE, ("a", "b")), pre_start, pre_start]
    assert nic.calls == [FakeCall(ALLOCATE, ("n",))]


def test_pre_start_is_not_called_for_a_limit_of_zero() -> None:
    node = Node()
    plugin = node.plugin(devices("a"), pre_start_required=True)
    assert node.admit(pod("p", gpu=0), start=True).containers["app"].error == ""
    assert plugin.calls == []


def test_pre_start_error_prevents_the_start() -> None:
    node = Node()
    plugin = node.plugin(
        devices("a"), pre_start_required=True, pre_start_error=RpcError("Internal", "too hot")
    )
    admission = node.admit(pod("p", gpu=1), start=True)
    text = (
        "device plugin PreStartContainer rpc failed with err: "
        "rpc error: code = Internal desc = too hot"
    )
    assert (admission.admitted, admission.containers["app"].error) == (True, text)
    assert node.pods.known("p").phase == "Pending"
    assert node.messages(EventKind.CONTAINER_FAILED) == [
        f"pod default/p container app did not start: {text}"
    ]
    with pytest.raises(AllocationError, match="too hot"):
        node.start("p")
    plugin.pre_start_error = None
    node.start("p")
    assert node.pods.known("p").phase == "Running"


def test_failed_init_container_stops_later_containers() -> None:
    node = Node()
    plugin = node.plugin(
        devices("a"), pre_start_required=True, pre_start_error=RpcError("Internal", "no")
    )
    spec = pod("p", container("app", gpu=1), init=[container("init", gpu=1)])
    outcomes = node.admit(spec, start=True).containers
    assert [bool(outcomes[name].error) for name in ("init", "app")] == [True, False]
    assert outcomes["app"].options is None
    assert [call.method for call in plugin.calls].count(PRE_START_CONTAINER) == 1


def test_pre_start_of_a_stopped_plugin_fails() -> None:
    node = Node()
    plugin = node.plugin(devices("a"), pre_start_required=True)
    node.admit(pod("p", gpu=1))
    plugin.leave()
    with pytest.raises(
        AllocationError,
        match=r"^device plugin PreStartContainer rpc failed with err: "
        r"endpoint plugin\.sock has been stopped$",
    ):
        node.start("p")


def test_removed_resource_prevents_the_start() -> None:
    node = Node()
    plugin = node.plugin(devices("a"))
    node.admit(pod("p", gpu=1), start=True)
    plugin.leave()
    node.clock.advance(300.1)
    assert node.manager.removed() == {GPU}
    with pytest.raises(AllocationError) as rejected:
        node.start("p")
    text = "endpoint not found in cache for a registered resource: vendor.com/gpu"
    assert str(rejected.value) == text


# -- late allocation -------------------------------------------------------------------------------


def early(node: Node, spec: Pod) -> None:
    """A pod that is admitted before its plugin has registered."""
    assert node.admit(spec, start=True).admitted
    assert node.devices(spec.uid) == {}
    assert [event.is_warning for event in node.events.recent(EventKind.UNKNOWN_RESOURCE)] == [True]


def test_missing_devices_are_allocated_at_container_start() -> None:
    node = Node()
    early(node, pod("p", gpu=1))
    plugin = node.plugin(devices("a", "b"), preference=first)
    options = node.start("p")
    assert dict(options.envs) == {"A": "1"}
    assert node.devices("p") == {"app": {GPU: ["a"]}}
    assert node.entries() == {("p", "app", GPU)}
    node.start("p")
    assert allocations(plugin) == [("a",)]


def test_late_allocation_with_too_few_devices_fails() -> None:
    node = Node()
    early(node, pod("p", gpu=2))
    plugin = node.plugin(devices("a"))
    with pytest.raises(AllocationError) as rejected:
        node.start("p")
    assert str(rejected.value) == (
        "requested number of devices unavailable for vendor.com/gpu. Requested: 2, Available: 1"
    )
    node.manager.self_check()
    # The pod remains, and its container can be started again.
    assert node.pods.known("p").is_active
    plugin.send_list(devices("a", "b"))
    node.start("p")
    assert node.devices("p") == {"app": {GPU: ["a", "b"]}}


def test_pre_start_without_devices_fails_before_allocate() -> None:
    node = Node()
    early(node, pod("p", gpu=1))
    plugin = node.plugin(devices("a"), pre_start_required=True)
    with pytest.raises(AllocationError) as rejected:
        node.start("p")
    assert str(rejected.value) == (
        "no devices found allocated in local cache for pod p, container app, "
        "resource vendor.com/gpu"
    )
    assert plugin.calls == []


def test_failed_checkpoint_write_prevents_the_start() -> None:
    node = Node()
    early(node, pod("p", gpu=1))
    node.plugin(devices("a"))
    node.store.broken = True
    with pytest.raises(
        AllocationError, match=r'^failed to write checkpoint file "kubelet_internal'
    ):
        node.start("p")
    assert node.devices("p") == {}
    node.store.broken = False
    node.start("p")
    assert node.devices("p") == {"app": {GPU: ["a"]}}


def test_start_of_unknown_container_or_failed_pod_is_an_error() -> None:
    node = Node()
    node.plugin(devices("a"))
    node.admit(pod("p", gpu=1))
    with pytest.raises(
        RequestError, match=r"^unknown container 'y' of pod default/p: use one of app"
    ):
        node.start("p", "y")
    node.admit(pod("q", gpu=1))
    with pytest.raises(
        RequestError,
        match=r"^cannot start a container: pod default/q has failed: Allocate failed due to",
    ):
        node.start("q")
    assert node.manager.holdings(PodUid("q")).get(ContainerName("app")) is None


# -- over a real connection -----------------------------------------------------------------------


@contextlib.contextmanager
def slow_to_prepare(path: Path) -> Iterator[None]:
    """A plugin that requires PreStartContainer and never responds to it."""

    def options(request: bytes, context: Any) -> bytes:
        return dp.DevicePluginOptions(pre_start_required=True).SerializeToString()

    handlers = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(options),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            lambda request, context: hostile.TWO_DEVICES(context)
        ),
        "Allocate": grpc.unary_unary_rpc_method_handler(hostile.ONE_RESPONSE),
        "PreStartContainer": grpc.unary_unary_rpc_method_handler(hostile.hang),
    }
    service = dp_grpc.LIST_AND_WATCH.split("/")[1]
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(sockets.target(path))
        server.start()
        try:
            yield
        finally:
            server.stop(0).wait()


def test_pre_start_has_a_timeout() -> None:
    assert Settings().pre_start_timeout == 30.0
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    try:
        with (
            MockKubelet(root, Settings(pre_start_timeout=0.2)) as kubelet,
            slow_to_prepare(kubelet.plugin_dir / "p.sock"),
        ):
            assert hostile.register(kubelet.plugin_socket, "p.sock") is None
            kubelet.wait_for_resource(hostile.RESOURCE, 2)
            spec = pod_manifest("p", {hostile.RESOURCE: 1})
            error = kubelet.admit(spec).containers["main"].error
            assert error == (
                "device plugin PreStartContainer rpc failed with err: "
                "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
            )
        kubelet.check()
    finally:
        shutil.rmtree(root)
