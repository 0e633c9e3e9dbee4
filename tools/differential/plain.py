"""Convert the mock kubelet's results to the format of the reference."""

from __future__ import annotations

import re
from typing import Any, Final

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from devicemanager.core.runoptions import RunOptions
from devicemanager.kubelet.pods.admission import Admission
from tools.differential.plugins import code_of
from tools.replay.scenario import Plain, affinity_of

_ENDPOINT: Final = re.compile(r"endpoint \S+ has|endpoint &\{.*\} has")


def plain_text(text: str) -> str:
    """Return a text without the address of an endpoint, which Go prints."""
    return _ENDPOINT.sub("endpoint * has", text)


def plain_affinity(admission: Admission) -> Plain:
    """Return the hint to which each container of an admitted pod is aligned."""
    # Only the explanation contains the whole hint.
    explanation = admission.explanation
    assert explanation is not None
    merged = {step.container: step.merge.affinity for step in explanation.steps if step.merge}
    return {name: affinity_of(merged.get(name, merged.get(None))) for name in admission.containers}


def plain_options(options: RunOptions) -> Plain:
    return {
        "Envs": [{"Name": name, "Value": value} for name, value in options.envs.items()],
        "Mounts": [
            {
                "ContainerPath": mount.container_path,
                "HostPath": mount.host_path,
                "ReadOnly": mount.read_only,
            }
            for mount in options.mounts
        ],
        "Devices": [
            {
                "PathInContainer": device.container_path,
                "PathOnHost": device.host_path,
                "Permissions": device.permissions,
            }
            for device in options.devices
        ],
        "Annotations": [
            {"Name": name, "Value": value} for name, value in options.annotations.items()
        ],
        "CDIDevices": [{"Name": name} for name in options.cdi_devices],
    }


def plain_answer(method: Any, request: Message) -> Plain:
    try:
        answer = method(request)
    except grpc.RpcError as error:
        return {"error": str(error.details()), "code": code_of(error)}
    plain: Plain = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    return plain
