"""Between a scenario's JSON and the values of the mock kubelet."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from devicemanager.core import bitset
from devicemanager.core.devices import Device
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.runoptions import ContainerSettings, RunOptions
from devicemanager.core.topology import Hint, Hints
from devicemanager.kubelet.pods.admission import Admission
from devicemanager.kubelet.wire import settings as wire
from devicemanager.testing import fakes
from devicemanager.testing.fakes import FakeCall, FakePlugin, Preference

__all__ = [
    "RESPONSE",
    "Plain",
    "RecordingPlugin",
    "device",
    "manifest",
    "plain_affinity",
    "plain_answer",
    "plain_hints",
    "plain_options",
]

Plain = dict[str, Any]

RESPONSE: Final = wire.settings_to_bytes(ContainerSettings(envs={"A": "1"}))
"""What a plugin answers that has no response of its own."""
_PREFERENCES: Final[Mapping[str, Preference | None]] = {
    "": None,
    "error": fakes.first,
    "garbage": fakes.garbage,
    "lexical": fakes.first,
    "reverse": fakes.last,
    "short": fakes.one_short,
}


class RecordingPlugin(FakePlugin):
    """A fake that writes its calls down as the vectors have them."""

    def __init__(
        self, name: str, resource: str, described: Mapping[str, Any], log: list[Plain]
    ) -> None:
        preferred = described.get("preferred", "")
        response = described.get("response")
        one = RESPONSE if response is None else base64.b64decode(response)
        super().__init__(
            ResourceName(resource),
            _PREFERENCES[preferred],
            bool(described.get("pre_start")),
            () if described.get("empty_reply") else (one,),
            _error(described.get("allocate_error")),
            _error("no preference for you" if preferred == "error" else None),
            _error(described.get("pre_start_error")),
            lambda call: log.append(_call(resource, call)),
        )
        self.name = name


def _error(text: str | None) -> RpcError | None:
    return RpcError("Unknown", text) if text else None


def _call(resource: str, call: FakeCall) -> Plain:
    about: Plain = {"method": call.method, "resource": resource}
    if call.method != fakes.GET_PREFERRED_ALLOCATION:
        return about | {"devices": sorted(call.device_ids)}
    about |= {"available": sorted(call.available), "size": call.size}
    return about | ({"must_include": sorted(call.must_include)} if call.must_include else {})


def device(device: Mapping[str, Any]) -> Device:
    numa = device.get("numa")
    return Device(DeviceId(device["id"]), device["health"], None if numa is None else tuple(numa))


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


def plain_hints(hints: Mapping[str, Hints | None]) -> Plain:
    return {
        resource: None if found is None else [_hint(hint) for hint in found]
        for resource, found in hints.items()
    }


def _hint(hint: Hint) -> Plain:
    nodes = None if hint.mask is None else list(bitset.numbers(hint.mask))
    return {"nodes": nodes, "preferred": hint.preferred}


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
