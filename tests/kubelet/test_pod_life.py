"""Containers that exit and pods that are deleted, on a kubelet with a plugin."""

from __future__ import annotations

import pytest

from devicemanager import ManualClock, MockKubelet, RequestError
from devicemanager.core.podstatus.containers import Running, Terminated, Waiting
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest

GPU = "vendor.com/gpu"


def test_back_off_and_deletion_follow_the_clock() -> None:
    clock = ManualClock(1000.0)
    settings = SimulationSettings(resource_name=GPU, number_devices=1, pre_start=True)
    with MockKubelet(clock=clock) as kubelet, SimulatedPlugin(settings, kubelet.plugin_dir):
        kubelet.wait_for_resource(GPU, 1)
        manifest = pod_manifest("train", {GPU: 1}, uid="train")
        manifest["spec"]["terminationGracePeriodSeconds"] = 5
        kubelet.admit(manifest)
        mark = kubelet.mark()
        assert isinstance(kubelet.exit_container("train", "main", 1).state, Running)
        status = kubelet.exit_container("train", "main", 137, reason="OOMKilled")
        assert isinstance(status.state, Waiting)
        assert status.last_termination == Terminated(137, "OOMKilled", 1000.0, 1000.0)
        clock.advance(10)
        kubelet.expect(
            "container-exited",
            "PreStartContainer",
            "container-back-off",
            "PreStartContainer",
            "container-started",
            since=mark,
        )
        assert kubelet.container_statuses("train")["main"].restart_count == 2

        kubelet.delete("train")
        kubelet.restart()
        kubelet.wait_for_resource(GPU, 1)
        clock.advance(4)
        assert not kubelet.admit(pod_manifest("other", {GPU: 1})).admitted
        clock.advance(1)
        assert "train" not in kubelet.pods()
        assert kubelet.admit(pod_manifest("another", {GPU: 1})).admitted
        for method in (
            kubelet.delete,
            kubelet.container_statuses,
            lambda uid: kubelet.exit_container(uid, "main"),
        ):
            with pytest.raises(RequestError, match=r"^no pod has the UID"):
                method("train")
