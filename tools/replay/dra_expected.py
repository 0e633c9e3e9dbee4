"""Recorded results of a kubelet version in a scenario of the DRA manager."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from devicemanager.core.versions.behaviour import resolve
from devicemanager.core.versions.version import KubeletVersion

Json = Mapping[str, Any]

_BY_DEFAULT = ("1.36.3", "1.37.2")


def expected_steps(vector: Json, version: KubeletVersion) -> list[dict[str, Any]] | None:
    """Return the expected result of each step; None if the scenario was not recorded for the
    version."""
    ran = [KubeletVersion.parse(each) for each in vector.get("kubelet", _BY_DEFAULT)]
    if version.minor not in [each.minor for each in ran]:
        return None
    steps = [dict(each) for each in vector["expect"]]
    for number, step in vector.get(f"expect_1.{version.minor}", {}).items():
        if len(ran) > 1:
            steps[int(number)] = dict(step)
    if not resolve(version).dra_stores_share_id:
        steps = [_without_shares(op, step) for op, step in zip(vector["ops"], steps, strict=True)]
    return steps


def _without_shares(op: Json, step: dict[str, Any]) -> dict[str, Any]:
    """Return the result without share IDs, for a kubelet that does not store them. Recordings are
    the same for all kubelets, and contain the IDs."""
    for listed in step.get("dynamic_resources", ()):
        for device in listed["claim_resources"]:
            device.pop("share_id", None)
    if op["op"] == "file" and step.get("file") == op["file"]:
        return step
    if step.get("claims"):
        claims = _stripped(step["claims"])
        return {**step, "claims": claims, "checksum": crc32(_data(claims).encode())}
    if step.get("file") and "ClaimInfoStateList" in step["file"]:
        claims = json.loads(json.loads(step["file"])["Data"])["ClaimInfoStateList"]
        data = _data(_stripped(claims))
        text = f'{{"Data":{_go(data)},"Checksum":{crc32(data.encode())}}}'
        return {**step, "file": text}
    return step


def _stripped(claims: Any) -> Any:
    return claims and json.loads(
        json.dumps(claims),
        object_hook=lambda fields: {k: v for k, v in fields.items() if k != "ShareID"},
    )


def _data(claims: Any) -> str:
    return _go(
        {
            "kind": "DRACheckpoint",
            "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
            "ClaimInfoStateList": claims,
        }
    )


def _go(value: Any) -> str:
    """Return a value as JSON, in the form that Go writes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda char: f"\\u{ord(char[0]):04x}", text)
