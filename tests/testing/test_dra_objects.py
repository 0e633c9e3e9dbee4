"""Objects of DRA with the names of Kubernetes' builder: valid, and usable from pod to devices."""

from __future__ import annotations

import pytest

from devicemanager.apiserver.offline import check_objects
from devicemanager.apiserver.resources import ResourceRules
from devicemanager.claims.errors import DoesNotFit
from devicemanager.testing import (
    claim_spec,
    claim_template,
    device_class,
    external_claim,
    parameters_env,
    pod_external,
    pod_inline,
    pod_inline_multiple,
    resource_slice,
)


def test_api_server_accepts_all_objects():
    config = parameters_env(user_a="b")
    spec = claim_spec(count=2, selector="device.driver != ''", config=config)
    found = [
        device_class(config=config, extended_resource="vendor.com/gpu"),
        external_claim(spec=spec),
        claim_template("t", spec),
        resource_slice(["gpu-0", {"name": "gpu-1", "attributes": {"model": {"string": "A"}}}]),
    ]
    report = check_objects(found, ResourceRules([]))
    assert report.problems == []
    assert report.checked == 4
    assert config["opaque"]["parameters"] == {"user_a": "b"}


def test_pods_get_devices(mock_kubelet, simulated_driver):
    simulated_driver(devices=3)
    devices = resource_slice(["gpu-0", "gpu-1", "gpu-2"])
    mock_kubelet.resource_claims.load([device_class(), devices, external_claim()])
    pod, template = pod_inline_multiple(spec=claim_spec(count=2))
    mock_kubelet.resource_claims.load(template)
    mock_kubelet.admit(pod)
    (first, other) = sorted(mock_kubelet.dra_status().claims, key=lambda each: len(each.devices))
    assert (first.name, first.state) == ("external-claim", "not-allocated")
    assert len(other.devices) == 2
    (info,) = mock_kubelet.pods().values()
    assert [len(each.cdi_devices) for each in info.containers] == [2, 2, 2]
    mock_kubelet.admit(pod_external(name="external"))
    pod, template = pod_inline("third")
    mock_kubelet.resource_claims.load(template)
    with pytest.raises(DoesNotFit, match=r"allocated to another claim: gpu\.example\.com/mock/gpu"):
        mock_kubelet.admit(pod)
