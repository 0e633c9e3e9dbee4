"""Pods from an API server, which can have fields of later Kubernetes versions."""

import pytest

from devicemanager.objects.manifests import ManifestError, bound_pod, parse


def pod(**container):
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "main", "image": "i", **container}]},
    }


def test_unknown_fields_of_bound_pod_are_ignored():
    source = pod(resources={"limits": {"vendor.com/gpu": 1}, "later": 1}, later=1)
    source["spec"]["later"] = {}
    source["spec"]["initContainers"] = [{"name": "init", "image": "i", "later": 1}]
    known = pod(resources={"limits": {"vendor.com/gpu": 1}})
    known["spec"]["initContainers"] = [{"name": "init", "image": "i"}]
    assert bound_pod(source) == parse({"apiVersion": "v1", "kind": "Pod", **known})


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ({}, "pod None/None: metadata.name: Required value"),
        ({**pod(), "spec": 7}, "pod ns/p: spec: must be a mapping, not the number 7"),
        (
            {**pod(), "spec": {"containers": [7]}},
            "pod ns/p: spec.containers[0]: must be a mapping, not the number 7",
        ),
        (
            {**pod(), "spec": {"containers": {}}},
            "pod ns/p: spec.containers: must be a list, not a mapping",
        ),
        (
            pod(resources=7),
            "pod ns/p: spec.containers[0].resources: must be a mapping, not the number 7",
        ),
    ],
)
def test_malformed_bound_pod_is_named(source, fault):
    with pytest.raises(ManifestError) as caught:
        bound_pod(source)
    assert str(caught.value) == fault
