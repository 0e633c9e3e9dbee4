"""Pod names in the output of kubectl, and the names of files in an archive."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devicemanager.snapshot import layout
from devicemanager.snapshot.model import SnapshotError
from devicemanager.snapshot.names import _EXPECTED, from_claims, from_kubectl
from podresources import Container, Pod
from podresources.values import DynamicResource
from tests.snapshot.made_up import claim

STATIC = {"kubernetes.io/config.mirror": "of-the-node"}


def pod(uid: Any = "u", name: Any = "a", **more: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": name, **more}}


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (pod(), {"u": "default/a"}),
        ({"items": [pod(), pod("v", "b", namespace="x")]}, {"u": "default/a", "v": "x/b"}),
        ({"items": []}, {}),
        (pod(annotations=STATIC), {"u": "default/a", "of-the-node": "default/a"}),
        (pod(annotations={"kubernetes.io/config.mirror": 7}), {"u": "default/a"}),
        (pod(annotations="x"), {"u": "default/a"}),
    ],
)
def test_names_by_uid(content: Any, names: dict[str, str]) -> None:
    assert from_kubectl(json.dumps(content).encode(), "f") == names


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no list of pods"),
        (b'{"items": 7}', "no list of pods"),
        (b'{"items": [7]}', "a pod without name or UID"),
        (json.dumps(pod(uid=7)).encode(), "a pod without name or UID"),
        (json.dumps(pod(name=None)).encode(), "a pod without name or UID"),
    ],
)
def test_other_data_is_rejected(data: bytes, problem: str) -> None:
    assert _EXPECTED == "expected the output of `kubectl get pods --all-namespaces -o json`"
    with pytest.raises(SnapshotError) as raised:
        from_kubectl(data, "pods.json")
    assert str(raised.value) == f"pods.json: {problem}: {_EXPECTED}"


def user(name: str, *claims: str, namespace: str = "ml") -> Pod:
    used = tuple(DynamicResource(claim, namespace) for claim in claims)
    return Pod(name, namespace, (Container("first"), Container("second", dynamic_resources=used)))


@pytest.mark.parametrize(
    ("pods", "names"),
    [
        ([user("a", "one"), user("b", "two")], {"u-a": "ml/a"}),
        ([user("a", "one", "one")], {"u-a": "ml/a"}),
        ([user("a", "one"), user("b", "one")], {}),
        ([user("a", "one", namespace="x")], {}),
        ([user("b", "two")], {}),
        ([], {}),
    ],
)
def test_a_claim_names_its_only_pod(pods: list[Pod], names: dict[str, str]) -> None:
    # Two pods hold the second claim, and no pod holds the third one.
    claims = [claim("one", "u-a"), claim("two", "u-b", "u-c"), claim("three")]
    assert from_claims(claims, pods) == names


def test_files_of_an_archive_have_fixed_names() -> None:
    """Archives of older releases must stay readable."""
    assert (layout.SCHEMA, layout.DIRECTORY) == ("devicemanager.snapshot/v1", "snapshot")
    assert layout.FILES == (
        "snapshot.json",
        "pod-resources.json",
        "allocatable.json",
        "kubelet_internal_checkpoint",
        "cpu_manager_state",
        "memory_manager_state",
        "dra_manager_state",
        "dra_health_state",
        "sockets.json",
        "numa.json",
        "kubelet-config.json",
        "pods.json",
    )
    limits = (layout.MAX_FILE, layout.MAX_UNPACKED, layout.MAX_PACKED, layout.MAX_MEMBERS)
    assert limits == (64 << 20, 128 << 20, 64 << 20, 64)
