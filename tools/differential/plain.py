"""Convert results of the mock kubelet to the form in which the reference prints them."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from devicemanager.core.runoptions import RunOptions
from devicemanager.kubelet.pods.admission import Admission
from tools.replay.scenario import Plain


def plain_affinity(admission: Admission) -> Plain:
    return {
        name: None if outcome.affinity is None else {"nodes": list(outcome.affinity)}
        for name, outcome in admission.containers.items()
    }


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
        return {"error": str(error.details())}
    plain: Plain = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    return plain
