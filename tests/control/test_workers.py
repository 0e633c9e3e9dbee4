"""Operations that hang do not delay those which show or end them."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from devicemanager import RequestError
from devicemanager.control import ControlServer, MockKubeletClient
from devicemanager.control.nodes.operations import TABLE as NODES
from devicemanager.control.operation import Workers
from devicemanager.control.operations import TABLE
from devicemanager.control.router import WORKERS
from devicemanager.control.shapes import SetFault
from devicemanager.testing import pod_manifest
from tests.timing import wait_until

GPU = "vendor.com/gpu"
HUNG = WORKERS + 4


@contextlib.contextmanager
def hung_pods(kubelet, client, simulated_plugin):
    """Admit more pods than a group of quick workers has threads; their plugin hangs in Allocate."""
    simulated_plugin(GPU, HUNG)
    client.wait_for_resource(GPU, HUNG)
    # By the kubelet's clock, which stands still.
    kubelet.faults.set("delay-call", rpc="Allocate", seconds=3600)
    with ThreadPoolExecutor(HUNG + 1) as pool:
        try:
            pods = [
                pool.submit(client.admit, pod_manifest(f"hung-{n}", {GPU: 1}, uid=f"hung-{n}"))
                for n in range(HUNG)
            ]
            wait_until(lambda: len(kubelet.calls.unanswered()) == HUNG)
            yield pool, pods
        finally:
            kubelet.faults.clear()


def test_pods_whose_plugin_hangs_delay_no_other_operation(
    mock_kubelet, server, client, simulated_plugin
):
    with hung_pods(mock_kubelet, client, simulated_plugin) as (pool, pods):

        def soon(act, *arguments, **options):
            return pool.submit(act, *arguments, **options).result(30)

        assert soon(lambda: client.is_serving)
        assert len(soon(client.pods)) == HUNG
        assert soon(client.admit, pod_manifest("other", {}, uid="other")).admitted
        soon(client.terminate, "hung-0", "other")
        assert "hung-0" not in soon(client.pods)
        assert soon(client.faults.set, "delay-register", seconds=1).id
        assert soon(client.faults.clear, "delay-register") == 1
        soon(client.stop)
        assert not soon(lambda: client.is_serving)
        # Released by the stop, which cancels calls to plugins.
        with contextlib.suppress(RequestError):
            pods[1].result(30)


def test_queue_for_long_operations_delays_no_other_operation(
    mock_kubelet, monkeypatch, simulated_plugin
):
    monkeypatch.setattr("devicemanager.control.router.LONG_WORKERS", 2)
    with ControlServer(mock_kubelet) as server, ThreadPoolExecutor(4) as pool:
        client = MockKubeletClient(server.socket_path)
        simulated_plugin(GPU, 4)
        mock_kubelet.wait_for_resource(GPU, 4)
        mock_kubelet.faults.set("delay-call", rpc="Allocate", seconds=3600)
        try:
            manifests = [pod_manifest(f"p{n}", {GPU: 1}, uid=f"p{n}") for n in range(3)]
            pods = [pool.submit(client.admit, manifest) for manifest in manifests]
            wait_until(lambda: len(mock_kubelet.calls.unanswered()) == 2)
            assert pool.submit(client.faults.clear).result(30) == 1
            # The third one had to wait for one of the others.
            assert [pod.result(30).admitted for pod in pods] == [True] * 3
        finally:
            mock_kubelet.faults.clear()


@pytest.mark.parametrize("table", [TABLE, NODES])
def test_workers_of_reads_and_ends(table):
    for operation in table:
        if operation.method == "GET":
            assert operation.workers({}) is Workers.QUICK
        if operation.method == "DELETE":
            assert operation.workers({}) is not Workers.LONG


@pytest.mark.parametrize(
    ("fault", "workers"),
    [
        (SetFault(spec="delay-call:seconds=1"), Workers.QUICK),
        (SetFault(spec="restart:at=list"), Workers.LONG),
        (SetFault(kind="restart"), Workers.LONG),
        (SetFault(kind="no-such-fault"), Workers.QUICK),
    ],
)
def test_faults_that_act_on_the_kubelet_are_long(fault, workers):
    assert TABLE["setFault"].workers({"body": fault}) is workers
