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


def test_claims_have_all_fields():
    assert claim_spec() == {
        "devices": {
            "requests": [
                {
                    "name": "my-request",
                    "exactly": {"deviceClassName": "gpu.example.com", "count": 1},
                }
            ]
        }
    }
    config = parameters_env("nic.example.com", A="1")
    spec = claim_spec("nic", 2, request="r", selector="true", config=config)
    assert spec == {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "nic",
                        "count": 2,
                        "selectors": [{"cel": {"expression": "true"}}],
                    },
                }
            ],
            "config": [
                {
                    "requests": ["r"],
                    "opaque": {"driver": "nic.example.com", "parameters": {"A": "1"}},
                }
            ],
        }
    }
    for made, kind, name, namespace, inner in (
        (external_claim(), "ResourceClaim", "external-claim", "default", claim_spec()),
        (external_claim("c", spec, "ml"), "ResourceClaim", "c", "ml", spec),
        (
            claim_template("t"),
            "ResourceClaimTemplate",
            "t",
            "default",
            {"spec": claim_spec()},
        ),
        (claim_template("t", spec, "ml"), "ResourceClaimTemplate", "t", "ml", {"spec": spec}),
    ):
        assert made == {
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": inner,
        }


def test_classes_and_slices_have_all_fields():
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
    assert device_class() == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {"selectors": selectors},
    }
    config = parameters_env(A="1")
    made = device_class("c", "d", config=config, extended_resource="vendor.com/gpu")
    assert made["metadata"] == {"name": "c"}
    assert made["spec"] == {
        "selectors": [{"cel": {"expression": 'device.driver == "d"'}}],
        "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"A": "1"}}}],
        "extendedResourceName": "vendor.com/gpu",
    }
    assert resource_slice(["a", {"name": "b", "taints": []}]) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "mock-gpu.example.com"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "mock",
            "pool": {"name": "mock", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "a"}, {"name": "b", "taints": []}],
        },
    }
    made = resource_slice([], "d", node="n", pool="p", name="s")
    assert made["metadata"] == {"name": "s"}
    spec = made["spec"]
    assert (spec["driver"], spec["nodeName"], spec["pool"]["name"]) == ("d", "n", "p")


def test_pods_name_their_claims():
    pod, template = pod_inline_multiple("p", claim_spec(count=3), 2, "ml")
    assert template == claim_template("p", claim_spec(count=3), "ml")
    assert pod["metadata"] == {"name": "p", "namespace": "ml"}
    entry = {"name": "my-inline-claim", "resourceClaimTemplateName": "p"}
    assert pod["spec"]["resourceClaims"] == [entry]
    uses = {"claims": [{"name": "my-inline-claim"}]}
    assert [(each["name"], each["resources"]) for each in pod["spec"]["containers"]] == [
        ("with-resource", uses),
        ("with-resource-1", uses),
    ]
    pod, template = pod_inline_multiple()
    assert len(pod["spec"]["containers"]) == 3
    assert (pod["metadata"]["name"], template["metadata"]["name"]) == ("tester", "tester")
    pod, template = pod_inline()
    assert template == claim_template("tester")
    assert pod["metadata"] == {"name": "tester", "namespace": "default"}
    assert len(pod["spec"]["containers"]) == 1
    assert pod_inline("p", None, "ml")[0]["metadata"] == {"name": "p", "namespace": "ml"}
    for pod, claim, name, namespace in (
        (pod_external(), "external-claim", "tester", "default"),
        (pod_external("c", "p", "ml"), "c", "p", "ml"),
    ):
        assert pod["metadata"] == {"name": name, "namespace": namespace}
        entry = {"name": "my-inline-claim", "resourceClaimName": claim}
        assert pod["spec"]["resourceClaims"] == [entry]
        assert len(pod["spec"]["containers"]) == 1
