"""Convert between the JSON of a scenario and the values of the mock kubelet."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from devicemanager.core.errors import RpcError
from devicemanager.core.ids import ResourceName
from devicemanager.core.runoptions import RunOptions
from devicemanager.kubelet.pods.admission import Admission
from devicemanager.testing.fakes import FakePlugin
from tools.replay.admission import PREFERENCES, RESPONSE, plain_call

Plain = dict[str, Any]


class RecordingPlugin(FakePlugin):
    """Fake plugin that logs its calls in the format of the vectors."""

    def __init__(
        self, name: str, resource: str, described: Mapping[str, Any], log: list[Plain]
    ) -> None:
        preferred = described.get("preferred", "")
        response = described.get("response")
        one = RESPONSE if response is None else base64.b64decode(response)
        super().__init__(
            ResourceName(resource),
            PREFERENCES[preferred],
            bool(described.get("pre_start")),
            () if described.get("empty_reply") else (one,),
            _error(described.get("allocate_error")),
            _error("no preference for you" if preferred == "error" else None),
            _error(described.get("pre_start_error")),
            lambda call: log.append(plain_call(resource, call)),
        )
        self.name = name


def _error(text: str | None) -> RpcError | None:
    return RpcError("Unknown", text) if text else None


def manifest(pod: Mapping[str, Any]) -> Plain:
    spec: Plain = {
        "restartPolicy": "Never",
        "containers": [_container(each) for each in pod.get("containers") or ()],
    }
    if inits := pod.get("init_containers"):
        spec["initContainers"] = [
            _container(each) | ({"restartPolicy": "Always"} if each.get("restartable") else {})
            for each in inits
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod["uid"], "namespace": "default", "uid": pod["uid"]},
        "spec": spec,
    }


def _container(container: Mapping[str, Any]) -> Plain:
    limits = {name: str(value) for name, value in (container.get("limits") or {}).items()}
    return {"name": container["name"], "image": "none", "resources": {"limits": limits}}


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
