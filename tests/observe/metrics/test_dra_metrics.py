"""Metrics of the DRA manager."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devicemanager import MockKubelet, Settings
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.observe.metrics.kubelet import KubeletMetrics
from tests.kubelet.dra.objects import claim, pod


def counts(text):
    """Return the counts of histograms and the values of gauges, by name and labels."""
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.startswith("dra_") and not sample.name.endswith(("_bucket", "_sum"))
    }


@pytest.mark.parametrize(("version", "failed", "succeeded"), [("1.37", 1, 2), ("1.34", 2, 1)])
def test_operations_calls_and_claims(version, failed, succeeded):
    with MockKubelet(settings=Settings(kubelet_version=version)) as kubelet:
        metrics = KubeletMetrics(kubelet)
        assert counts(metrics.text()) == {}
        with SimulatedDriver(kubelet=kubelet) as driver:
            driver.wait_registered()
            driver.faults.call_error = "no"
            kubelet.admit(pod("a", {"x": "a"}), claims=claim("a", "gpu-0"))
            driver.faults.call_error = ""
            kubelet.resync("uid-a")
            kubelet.admit(pod("b", {"x": "b"}), claims=claim("b", "gpu-1"))
            kubelet.terminate("uid-b")
            found = counts(metrics.text())
        metrics.close()
    method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node"
    gpu = "gpu.example.com"
    operations, calls = (
        "dra_operations_duration_seconds_count",
        "dra_grpc_operations_duration_seconds_count",
    )
    assert found == {
        (operations, "true", "PrepareResources"): failed,
        (operations, "false", "PrepareResources"): succeeded,
        # Kubelets before 1.36 have the label is_error the wrong way round.
        (operations, "true" if version == "1.34" else "false", "UnprepareResources"): 1,
        (calls, gpu, "OK", f"{method}PrepareResources"): 2,
        (calls, gpu, "Unknown", f"{method}PrepareResources"): 1,
        (calls, gpu, "OK", f"{method}UnprepareResources"): 1,
        ("dra_resource_claims_in_use", "<any>"): 1,
        ("dra_resource_claims_in_use", gpu): 1,
    }


def test_calls_that_devices_do_not_need_are_counted():
    settings = Settings(kubelet_version="1.37", feature_gates={"DRAOptionalNodeOperations": True})
    skipping = claim("gpu", "gpu-0")
    skipping["status"]["allocation"]["devices"]["results"][0]["skipNodeOperations"] = ["*"]
    with MockKubelet(settings=settings) as kubelet:
        metrics = KubeletMetrics(kubelet)
        kubelet.admit(pod(), claims=skipping)
        kubelet.terminate("uid-train")
        found = counts(metrics.text())
        metrics.close()
    assert found["dra_node_prepare_skips_total", "gpu.example.com"] == 1
    assert found["dra_node_unprepare_skips_total", "gpu.example.com"] == 1
