"""Pods between the form of Kubernetes' JSON and core/v1 bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podresources.pods_api import pod_from_bytes, pod_to_bytes

POD: dict[str, Any] = {
    "metadata": {
        "name": "train",
        "namespace": "ml",
        "uid": "u",
        "deletionTimestamp": "2026-01-02T03:04:05Z",
        "deletionGracePeriodSeconds": 0,
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "i",
                "resources": {
                    "limits": {"cpu": "500m", "vendor.com/gpu": "2"},
                    "requests": {"cpu": "250m"},
                    "claims": [{"name": "c"}],
                },
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "nodeName": "mock",
        "initContainers": [{"name": "side", "resources": {}, "restartPolicy": "Always"}],
        "resourceClaims": [{"name": "c", "resourceClaimName": "shared"}, {"name": "d"}],
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": "1970-01-01T00:00:00Z",
                "reason": "r",
                "message": "ü",
            }
        ],
        "startTime": "2026-01-02T03:04:05Z",
        "containerStatuses": [
            {
                "name": "main",
                "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": None}},
                "lastState": {},
                "ready": False,
                "restartCount": 0,
                "imageID": "",
                "started": False,
                "allocatedResourcesStatus": [
                    {
                        "name": "vendor.com/gpu",
                        "resources": [{"resourceID": "a", "health": "Healthy"}],
                    }
                ],
            }
        ],
        "qosClass": "Burstable",
    },
}


def test_pod_survives_the_round_trip() -> None:
    """Also what is zero, empty or unknown."""
    assert pod_from_bytes(pod_to_bytes(POD)) == POD


def test_bytes_have_the_numbers_of_kubernetes() -> None:
    given_pod = {
        "metadata": {"name": "n", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"x": "1"}}}]},
        "status": {"startTime": "1970-01-01T00:00:01Z"},
    }
    assert pod_to_bytes(given_pod).hex() == (
        "0a060a016e2a0175"  # metadata (1): name (1), uid (5)
        "1211120f0a0163"  # spec (2): containers (2): name (1)
        "420a0a080a017812030a0131"  # resources (8): limits (1): x, a Quantity with string (1)
        "1a063a0408011000"  # status (3): startTime (7): seconds (1), nanos (2)
    )


@pytest.mark.parametrize(
    ("where", "pod"),
    [("Pod", {"kind": "Pod"}), ("PodSpec", {"spec": {"volumes": []}})],
)
def test_unknown_field_is_an_error(where: str, pod: dict[str, Any]) -> None:
    field = "volumes" if where == "PodSpec" else "kind"
    with pytest.raises(ValueError, match=rf"^core_v1\.proto has no field {field} in {where}$"):
        pod_to_bytes(pod)


def test_other_bytes_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"^not a core/v1 Pod: "):
        pod_from_bytes(b"\xff")


def test_unknown_fields_are_skipped() -> None:
    # Field 35 of PodSpec, setHostnameAsFQDN, is not in core_v1.proto.
    data = pod_to_bytes({"metadata": {"uid": "u"}}) + b"\x12\x03\x98\x02\x01"
    assert pod_from_bytes(data) == {"metadata": {"uid": "u"}, "spec": {}}


_TEXT = st.text(max_size=8)
_AMOUNTS = st.dictionaries(_TEXT, _TEXT, min_size=1, max_size=3)
_TIMES = st.datetimes().map(lambda time: time.replace(microsecond=0).isoformat() + "Z")


@given(_TEXT, _AMOUNTS, _TIMES, st.integers(0, 255))
def test_any_values_survive_the_round_trip(
    text: str, amounts: dict[str, str], time: str, code: int
) -> None:
    terminated = {"exitCode": code, "finishedAt": time, "message": text}
    pod = {
        "metadata": {"name": text, "labels": amounts},
        "spec": {"containers": [{"name": text, "resources": {"limits": amounts}}] * 2},
        "status": {"containerStatuses": [{"state": {"terminated": terminated}}]},
    }
    assert pod_from_bytes(pod_to_bytes(pod)) == pod
