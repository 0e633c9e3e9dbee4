"""Manifests of ``pod_manifest`` are valid."""

import pytest

from devicemanager.objects import manifests
from devicemanager.testing import pod_manifest


def names(containers):
    return [container.name for container in containers]


def test_one_container():
    pod = manifests.parse(pod_manifest("train", {"vendor.com/gpu": 2, "cpu": "500m"}))
    assert (pod.namespace, pod.name, names(pod.containers)) == ("default", "train", ["main"])
    assert pod.containers[0].limits == {"vendor.com/gpu": 2, "cpu": 500}


def test_several_containers():
    pod = manifests.parse(
        pod_manifest("a", {"v.com/g": 1}, {"v.com/g": 2}, init=[{"v.com/g": 3}, {}], namespace="ml")
    )
    assert pod.namespace == "ml"
    assert names(pod.containers) == ["main", "main-2"]
    assert names(pod.init_containers) == ["init", "init-2"]
    assert [c.limits.get("v.com/g") for c, _ in pod.all_containers()] == [3, None, 1, 2]


def test_container_without_limits():
    assert manifests.parse(pod_manifest("a")).containers[0].limits == {}


@pytest.mark.parametrize("uid", ["6ba7b810", None])
def test_the_uid(uid):
    pod = manifests.parse(pod_manifest("a", uid=uid))
    assert pod.uid == (uid or manifests.stable_uid("default", "a"))
