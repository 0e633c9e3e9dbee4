"""ResourceClaims and other objects of resource.k8s.io: accepted forms, versions and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from devicemanager.objects.manifests import ManifestError
from devicemanager.objects.manifests.resource_claims import read_dra_objects, read_resource_claims
from tests.claims.dra.objects import slice_
from tests.kubelet.dra.objects import claim, pod

V1 = "resource.k8s.io/v1"
SLICE = {"apiVersion": V1, "kind": "ResourceSlice", **slice_("gpu-0")}
CLASS = {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
TEMPLATE = {
    "apiVersion": V1,
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "t", "namespace": "ml"},
    "spec": {"spec": {}},
}


def beta1(*requests: dict[str, Any]) -> dict[str, Any]:
    spec = {"devices": {"requests": list(requests)}}
    return claim(spec=spec) | {"apiVersion": "resource.k8s.io/v1beta1"}


def with_result(**fields: Any) -> dict[str, Any]:
    return claim(status={"allocation": {"devices": {"results": [fields]}}})


def changed_slice(**spec: Any) -> dict[str, Any]:
    return {**SLICE, "spec": {**SLICE["spec"], **spec}}


def test_claims_are_read_from_each_form(tmp_path: Path) -> None:
    one, two = claim("a", "gpu-0"), claim("b")
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump_all([pod(), one, CLASS, two]))
    for source in (path, path.read_text(), [one, two], [one, [yaml.safe_dump(two)]]):
        assert read_resource_claims(source) == (one, two)
    assert read_resource_claims(one) == (one,)


def test_claims_of_other_versions_are_converted_to_v1() -> None:
    assert read_resource_claims(claim() | {"apiVersion": "resource.k8s.io/v1beta2"}) == (claim(),)
    first = [{"name": "a", "deviceClassName": "c"}]
    [found] = read_resource_claims(
        beta1(
            {"name": "gpu", "deviceClassName": "c", "count": 2},
            {"name": "nic", "firstAvailable": first},
        )
    )
    assert found["apiVersion"] == V1
    assert found["spec"]["devices"]["requests"] == [
        {"name": "gpu", "exactly": {"deviceClassName": "c", "count": 2}},
        {"name": "nic", "firstAvailable": first},
    ]
    assert read_resource_claims({**beta1(), "spec": {}})[0]["spec"] == {}


def test_all_kinds_are_read(tmp_path: Path) -> None:
    objects = (claim(), SLICE, CLASS, TEMPLATE)
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    for source in (path, path.read_text(), objects, [objects[:1], [*objects[1:]]]):
        assert read_dra_objects(source) == objects


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_type_of_a_client_object_is_its_version(version: str) -> None:
    from kubernetes import client

    made = getattr(client, f"{version.capitalize()}ResourceClaim")(
        metadata=client.V1ObjectMeta(name="gpu"), spec={"devices": {}}
    )
    (found,) = read_resource_claims(made)
    assert found == {
        "apiVersion": V1,
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu"},
        "spec": {"devices": {}},
    }
    with pytest.raises(ManifestError, match=r"^expected a ResourceClaim, not V1Pod$"):
        read_resource_claims(client.V1Pod())
    with pytest.raises(
        ManifestError, match=r"^ApiClient is not an object|^cannot convert ApiClient"
    ):
        read_resource_claims(client.ApiClient())


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ({"kind": "Pod"}, 'expected kind: ResourceClaim, not the text "Pod"'),
        (
            5,
            "invalid ResourceClaim: expected a dict, YAML text, a path or a client's object, not "
            "the number 5",
        ),
        (
            claim() | {"apiVersion": "v1"},
            "ResourceClaim: apiVersion must be one of resource.k8s.io/v1, "
            "resource.k8s.io/v1beta2, resource.k8s.io/v1beta1",
        ),
        (claim() | {"metadata": {}}, "ResourceClaim: metadata.name is required"),
        (claim() | {"metadata": {"name": 1}}, "ResourceClaim: metadata.name is required"),
        (claim() | {"metadata": []}, "ResourceClaim: metadata must be a mapping, not a list"),
        (
            claim(metadata={"namespace": 1}),
            "ResourceClaim gpu: metadata.namespace must be a string",
        ),
        (
            claim() | {"metadata": {"name": "gpu", "uid": 1}},
            "ResourceClaim gpu: metadata.uid must be a string",
        ),
        (claim() | {"status": 1}, "ResourceClaim gpu: status must be a mapping, not the number 1"),
        (
            claim(status={"reservedFor": [{"uid": 1}]}),
            "ResourceClaim gpu: status.reservedFor[0].uid must be a string",
        ),
        (
            claim(status={"reservedFor": {}}),
            "ResourceClaim gpu: status.reservedFor must be a list of mappings",
        ),
        (
            claim(status={"allocation": 1}),
            "ResourceClaim gpu: status: allocation must be a mapping, not the number 1",
        ),
        (
            claim(status={"allocation": {"devices": []}}),
            "ResourceClaim gpu: status.allocation: devices must be a mapping, not a list",
        ),
        (
            claim(status={"allocation": {"devices": {"results": [1]}}}),
            "ResourceClaim gpu: status.allocation.devices.results must be a list of mappings",
        ),
        *(
            (
                with_result(**{"pool": "p", field: []}),
                f"ResourceClaim gpu: status.allocation.devices.results[0].{field} must be a string",
            )
            for field in ("driver", "pool", "device", "request")
        ),
        (
            with_result(driver="d"),
            "ResourceClaim gpu: status.allocation.devices.results[0].pool is required: use the "
            "name of the pool in the ResourceSlices of the driver",
        ),
    ],
)
def test_invalid_claim_is_one_line(source: Any, error: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_resource_claims(source)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ([5], "expected an object of resource.k8s.io/v1, not the number 5"),
        (
            {"kind": "Pod"},
            'invalid kind the text "Pod": use one of ResourceClaim, ResourceSlice, DeviceClass, '
            "ResourceClaimTemplate",
        ),
        (
            CLASS | {"apiVersion": "resource.k8s.io/v1beta1"},
            "DeviceClass: apiVersion must be resource.k8s.io/v1",
        ),
        (CLASS | {"metadata": {"name": ""}}, "DeviceClass: metadata.name is required"),
        (CLASS | {"spec": []}, "DeviceClass: spec must be a mapping, not a list"),
        (
            TEMPLATE | {"metadata": {"name": "t", "namespace": 1}},
            "ResourceClaimTemplate t: metadata.namespace must be a string",
        ),
        (changed_slice(driver=1), "ResourceSlice s: spec.driver must be a string"),
        (changed_slice(nodeName=1), "ResourceSlice s: spec.nodeName must be a string"),
        (changed_slice(pool=[]), "ResourceSlice s: spec: pool must be a mapping, not a list"),
        (changed_slice(pool={"name": 1}), "ResourceSlice s: spec.pool.name must be a string"),
        (
            changed_slice(pool={"generation": "1"}),
            "ResourceSlice s: spec.pool.generation must be a whole number",
        ),
        (
            changed_slice(devices=[{"name": 1}]),
            "ResourceSlice s: spec.devices[0].name must be a string",
        ),
        (
            changed_slice(sharedCounters=[{"name": 1}]),
            "ResourceSlice s: spec.sharedCounters[0].name must be a string",
        ),
    ],
)
def test_invalid_object_is_one_line(source: Any, error: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_dra_objects(source)
    assert str(caught.value) == error
