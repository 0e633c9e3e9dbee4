"""Pod names in the output of kubectl, and the names of files in an archive."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devicemanager.snapshot import layout
from devicemanager.snapshot.model import SnapshotError
from devicemanager.snapshot.names import _EXPECTED, from_kubectl

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
