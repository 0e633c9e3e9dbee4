"""Resource claims in pod manifests."""

import pytest

from devicemanager.objects import manifests
from devicemanager.objects.manifests import ManifestError
from devicemanager.objects.manifests.claims import read_claim_statuses
from devicemanager.objects.manifests.errors import FieldError


def manifest(pod_claims, *container_claims, init=()):
    def container(name, claims):
        return {"name": name, "image": "i", "resources": {"claims": claims}}

    spec = {
        "resourceClaims": pod_claims,
        "containers": [container(f"c{n}", each) for n, each in enumerate(container_claims)],
        "initContainers": [container(f"i{n}", each) for n, each in enumerate(init)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


GPU = {"name": "gpu", "resourceClaimName": "train"}
NIC = {"name": "nic", "resourceClaimTemplateName": "shared.nic"}


def test_claims_of_pod_and_containers():
    uses = [{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}, {"name": "nic"}]
    pod = manifests.parse(manifest([GPU, NIC], uses, None, init=[[{"name": "nic"}]]))
    assert pod.resource_claims == {"gpu": "train", "nic": None}
    assert [each.claims for each in pod.containers] == [("gpu", "nic"), ()]
    used = [("gpu", "a"), ("gpu", "b"), ("nic", "")]
    assert [[*each.claim_requests] for each in pod.containers] == [used, []]
    assert pod.init_containers[0].claims == ("nic",)


def test_pod_without_claims():
    pod = manifests.parse(manifest(None, None))
    assert (pod.resource_claims, pod.containers[0].claims) == ({}, ())


USES = "spec.containers[0].resources.claims[0]"


@pytest.mark.parametrize(
    ("pod_claims", "uses", "complaint"),
    [
        ("gpu", [], 'spec.resourceClaims: must be a list, not the text "gpu"'),
        (["gpu"], [], 'spec.resourceClaims[0]: must be a mapping, not the text "gpu"'),
        ([{}], [], "spec.resourceClaims[0].name: Required value"),
        ([{**GPU, "name": ""}], [], "spec.resourceClaims[0].name: Required value"),
        ([{**GPU, "name": "G_1"}], [],
         'spec.resourceClaims[0].name: Invalid value: "G_1": a lowercase RFC 1123 label must '
         "consist of lower case alphanumeric characters or '-', and must start and end with an "
         "alphanumeric character"),
        ([GPU, GPU], [], 'spec.resourceClaims[1].name: Duplicate value: "gpu"'),
        ([{"name": "gpu"}], [],
         "spec.resourceClaims[0]: Invalid value: must specify one of: `resourceClaimName`, "
         "`resourceClaimTemplateName`"),
        ([GPU | NIC], [],
         "spec.resourceClaims[0]: Invalid value: at most one of `resourceClaimName` or "
         "`resourceClaimTemplateName` may be given"),
        ([{**GPU, "resourceClaimName": "X"}], [],
         'spec.resourceClaims[0].resourceClaimName: Invalid value: "X": a lowercase RFC 1123 '
         "subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
         "and end with an alphanumeric character"),
        ([{**NIC, "resourceClaimTemplateName": 7}], [],
         "spec.resourceClaims[0].resourceClaimTemplateName: must be a string, not the number 7; "
         "put it in quotes"),
        ([GPU], "gpu", 'spec.containers[0].resources.claims: must be a list, not the text "gpu"'),
        ([GPU], ["gpu"],
         'spec.containers[0].resources.claims[0]: must be a mapping, not the text "gpu"'),
        ([GPU], [{}], f"{USES}.name: Required value"),
        ([GPU], [{"name": ""}], f"{USES}.name: Required value"),
        ([GPU], [{"name": "gpu", "request": 7}],
         f"{USES}.request: must be a string, not the number 7"),
        ([GPU], [{"name": "gpu"}, {"name": "gpu", "request": ""}],
         'spec.containers[0].resources.claims[1]: Duplicate value: "gpu"'),
        ([GPU], [{"name": 7}], f"{USES}.name: must be a string, not the number 7"),
        ([GPU], [{"name": "gpu"}] * 2,
         'spec.containers[0].resources.claims[1]: Duplicate value: "gpu"'),
        ([GPU], [{"name": "nic"}],
         f'{USES}.name: Invalid value: "nic": must be one of the names in pod.spec.resourceClaims'),
    ],
)  # fmt: skip
def test_invalid_claims_are_rejected(pod_claims, uses, complaint):
    with pytest.raises(ManifestError) as caught:
        manifests.parse(manifest(pod_claims, uses))
    assert str(caught.value) == complaint


FIELD = "status.extendedResourceClaimStatus"


def with_status(status):
    return {**manifest(None, None), "status": status}


def test_extended_resources_of_claims_are_read_from_status():
    mappings = [
        {"containerName": "c0", "resourceName": "vendor.com/gpu", "requestName": "r"},
        {"containerName": "c0", "resourceName": "vendor.com/nic"},
    ]
    pod = manifests.parse(
        with_status({"extendedResourceClaimStatus": {"requestMappings": mappings}})
    )
    assert pod.backed == {("c0", "vendor.com/gpu"), ("c0", "vendor.com/nic")}
    assert pod.extended_requests == (("c0", "vendor.com/gpu", "r"), ("c0", "vendor.com/nic", ""))
    assert pod.extended_claim is None
    named = manifests.parse(
        with_status({"extendedResourceClaimStatus": {"resourceClaimName": "p-extended"}})
    )
    assert (named.extended_claim, named.extended_requests) == ("p-extended", ())
    for empty in (None, {}, {"extendedResourceClaimStatus": None}):
        assert manifests.parse(with_status(empty)).backed == frozenset()


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        ([], "status: must be a mapping, not a list"),
        ({"extendedResourceClaimStatus": 1}, f"{FIELD}: must be a mapping, not the number 1"),
        (
            {"extendedResourceClaimStatus": {"requestMappings": {}}},
            f"{FIELD}.requestMappings: must be a list, not a mapping",
        ),
        (
            {"extendedResourceClaimStatus": {"resourceClaimName": 7}},
            f"{FIELD}.resourceClaimName: must be a string, not the number 7",
        ),
        (
            {"extendedResourceClaimStatus": {"requestMappings": [7]}},
            f"{FIELD}.requestMappings[0]: must be a mapping, not the number 7",
        ),
        (
            {"extendedResourceClaimStatus": {"requestMappings": [{}]}},
            f"{FIELD}.requestMappings[0].containerName: Required value",
        ),
        (
            {"extendedResourceClaimStatus": {"requestMappings": [{"containerName": "c"}]}},
            f"{FIELD}.requestMappings[0].resourceName: Required value",
        ),
        (
            {
                "extendedResourceClaimStatus": {
                    "requestMappings": [{"containerName": "c", "resourceName": 7}]
                }
            },
            f"{FIELD}.requestMappings[0].resourceName: must be a string, not the number 7",
        ),
        (
            {
                "extendedResourceClaimStatus": {
                    "requestMappings": [
                        {"containerName": "c", "resourceName": "v.com/r", "requestName": 7}
                    ]
                }
            },
            f"{FIELD}.requestMappings[0].requestName: must be a string, not the number 7",
        ),
    ],
)
def test_invalid_extended_resource_claims_are_rejected(status, complaint):
    with pytest.raises(ManifestError) as caught:
        manifests.parse(with_status(status))
    assert str(caught.value) == complaint


def test_claims_of_templates_are_read_from_status():
    statuses = [{"name": "gpu", "resourceClaimName": "p-gpu-x7k2p"}, {"name": "nic"}]
    found = read_claim_statuses({"resourceClaimStatuses": statuses})
    assert found == {"gpu": "p-gpu-x7k2p", "nic": None}
    for empty in (None, {}, {"resourceClaimStatuses": None}):
        assert read_claim_statuses(empty) == {}


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ({}, "resourceClaimStatuses[0].name: Required value"),
        ({"name": 7}, "resourceClaimStatuses[0].name: must be a string, not the number 7"),
        (
            {"name": "gpu", "resourceClaimName": 7},
            "resourceClaimStatuses[0].resourceClaimName: must be a string, not the number 7",
        ),
    ],
)
def test_invalid_statuses_of_claims_are_rejected(item, complaint):
    with pytest.raises(FieldError) as caught:
        read_claim_statuses({"resourceClaimStatuses": [item]})
    assert str(caught.value) == complaint
