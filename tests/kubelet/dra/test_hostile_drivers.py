"""Drivers with responses that are too large, and processes with too many drivers."""

from __future__ import annotations

from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.registration.dialer import Dialer
from tests.kubelet.dra.objects import claim, pod
from tests.kubelet.dra.test_kubelet_checks import NIC, cached, error_of


class LongNames(SimulatedDriver):
    """Driver whose devices have CDI devices of 300,000 bytes."""

    def _message(self, device):
        message = super()._message(device)
        message.cdi_device_ids[:] = ["x" * 300_000]
        return message


def test_large_response_is_one_line_and_others_are_prepared(node):
    node.driver(NIC)
    kubelet = node.kubelet
    with LongNames(kubelet=kubelet):
        kubelet.wait_for_event("driver-connected", resource="gpu.example.com", after=0)
        kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
        kubelet.admit(pod("good", {"x": "nic"}), claims=claim("nic", "nic-0", driver=NIC))
    assert error_of(kubelet) == (
        "prepare dynamic resources: NodePrepareResources: rpc error: code = ResourceExhausted "
        "desc = the response has 300043 bytes: the limit is 262144"
    )
    assert kubelet.pod("uid-good").running
    assert cached(kubelet) == {"gpu": ({"uid-train"}, []), "nic": ({"uid-good"}, ["nic-0"])}


def test_response_with_too_many_devices_fails_its_claim(node):
    driver, kubelet = node.driver(), node.kubelet
    driver.faults.duplicate = 1024
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert error_of(kubelet) == (
        "prepare dynamic resources: NodePrepareResources failed for ResourceClaim gpu: "
        "the response has 1025 devices: the limit is 1024"
    )
    assert cached(kubelet) == {"gpu": ({"uid-train"}, [])}


def test_process_with_too_many_drivers_is_retried_rarely(nodes, monkeypatch):
    async def dial(*_):
        return 1  # another process

    monkeypatch.setattr(Dialer, "dial", dial)
    node = nodes(max_registrations_per_process=1)
    first, kubelet = node.driver(), node.kubelet
    second = SimulatedDriver(NIC, kubelet=kubelet)
    node.stack.callback(second.stop)
    second.start()
    rejected = kubelet.wait_for_event("registration-rejected", after=0)
    assert "process 1 already has 1 registration: the limit is 1 " in rejected.message
    kubelet.wait_for(lambda: len(second.sockets.statuses) == 1)
    mark = kubelet.mark()
    first.stop()
    kubelet.wait_for_event("driver-deregistered", since=mark)
    node.clock.advance(121)
    assert len(second.sockets.statuses) == 1
    kubelet.wait_for(lambda: node.clock.advance(1) or len(second.sockets.statuses) == 2)
    assert second.sockets.statuses[1] == (True, "")


def test_processes_that_fork_share_a_limit(nodes, monkeypatch):
    processes = iter(range(1, 100))

    async def dial(*_):
        return next(processes)

    monkeypatch.setattr(Dialer, "dial", dial)
    node = nodes(max_registrations=1)
    node.driver()
    second = SimulatedDriver(NIC, kubelet=node.kubelet)
    node.stack.callback(second.stop)
    second.start()
    rejected = node.kubelet.wait_for_event("registration-rejected", after=0)
    assert "process 2 has 0 registrations and can have no more: " in rejected.message
