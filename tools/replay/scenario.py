"""Convert between the JSON of a scenario and the values of the mock kubelet."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from devicemanager.core import bitset, messages
from devicemanager.core.devices import Device
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.core.topology import Hint, Hints
from devicemanager.kubelet.wire import settings as wire
from devicemanager.testing import fakes
from devicemanager.testing.fakes import FakeCall, FakePlugin, Preference

Plain = dict[str, Any]

RESPONSE: Final = wire.settings_to_bytes(ContainerSettings(envs={"A": "1"}))
"""Allocate response of plugins whose scenario has none."""
PREFERENCES: Final[Mapping[str, Preference | None]] = {
    "": None,
    "error": fakes.first,
    "garbage": fakes.garbage,
    "lexical": fakes.first,
    "reverse": fakes.last,
    "short": fakes.one_short,
}


class ScenarioPlugin(FakePlugin):
    """Fake plugin as a scenario describes it. ``record`` is called before each response."""

    def __init__(
        self,
        name: str,
        resource: str,
        described: Mapping[str, Any],
        record: Callable[[FakeCall], None],
    ) -> None:
        preferred = described.get("preferred", "")
        super().__init__(
            ResourceName(resource),
            PREFERENCES[preferred],
            bool(described.get("pre_start")),
            () if described.get("empty_reply") else (response_of(described),),
            _error(described.get("allocate_error")),
            _error("no preference for you" if preferred == "error" else None),
            _error(described.get("pre_start_error")),
            record,
        )
        self.name = name

    def leave(self, cause: str = "the plugin ended") -> None:
        """End the process of the plugin: later calls fail to connect to its socket."""
        super().leave(cause)
        text = messages.NOT_CONNECTED.format(path=f"DIR/{self.name}", error="connection refused")
        self.allocate_error = self.preference_error = self.pre_start_error = RpcError(
            "Unavailable", text
        )
        self.before_answer = lambda _: None  # the process records no calls


def _error(text: str | None) -> RpcError | None:
    return RpcError("Unknown", text) if text else None


def response_of(described: Mapping[str, Any]) -> bytes:
    """Return the container response of a plugin."""
    text = described.get("response")
    return RESPONSE if text is None else base64.b64decode(text)


def device_of(device: Mapping[str, Any]) -> Device:
    """Return a device of a list."""
    numa = device.get("numa")
    return Device(DeviceId(device["id"]), device["health"], None if numa is None else tuple(numa))


def manifest(pod: Mapping[str, Any]) -> Plain:
    """Return the manifest of a pod."""
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


def plain_call(call: FakeCall) -> Plain:
    """Return a call of a plugin as the vectors describe it."""
    plain: Plain = {"method": call.method}
    if call.method != fakes.GET_PREFERRED_ALLOCATION:
        return plain | {"devices": sorted(call.device_ids)}
    plain |= {"available": sorted(call.available), "size": call.size}
    return plain | ({"must_include": sorted(call.must_include)} if call.must_include else {})


def plain_hints(hints: Mapping[str, Hints | None]) -> Plain:
    """Return topology hints as the vectors describe them."""
    return {
        resource: None if found is None else [_hint(hint) for hint in found]
        for resource, found in hints.items()
    }


def affinity_of(hint: Hint | None) -> Plain | None:
    """Return the affinity of a container as the vectors describe it."""
    return None if hint is None or hint.mask is None else _hint(hint)


def _hint(hint: Hint) -> Plain:
    nodes = None if hint.mask is None else list(bitset.numbers(hint.mask))
    return {"nodes": nodes, "preferred": hint.preferred}
