"""The field allocatedResourcesStatus of a container."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager.core.status import allocated_resources_status
from tests.helpers import device, device_list

GPU, NIC = "v/gpu", "v/nic"
LIST = device_list([device("b"), device("a", health="Unhealthy"), device("c", health="odd")])


def status(devices: dict[str, Any], quirks: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the health of devices a, b, c and x of each resource."""
    held: Any = SimpleNamespace(ids=frozenset("xcab"))
    allocated: Any = {"app": {GPU: held, NIC: held}, "none": {}}
    found = allocated_resources_status(allocated, devices.get, quirks)  # type: ignore[arg-type]
    return {
        name: {
            each.name: {one.resource_id: one.health.value for one in each.resources}
            for each in by_resource
        }
        for name, by_resource in found.items()
    }


def test_health_is_that_of_the_current_list() -> None:
    unknown = dict.fromkeys("abcx", "Unknown")
    gpus = {"a": "Unhealthy", "b": "Healthy", "c": "Unhealthy", "x": "Unknown"}
    found = status({GPU: LIST})
    assert found == {"app": {GPU: gpus, NIC: unknown}, "none": {}}
    assert [*found["app"]] == [GPU, NIC]
    assert [*found["app"][GPU]] == ["a", "b", "c", "x"]


def test_with_quirk_a_vanished_device_is_healthy() -> None:
    healthy = dict.fromkeys("abcx", "Healthy")
    gpus = {"a": "Unhealthy", "b": "Healthy", "c": "Unhealthy", "x": "Healthy"}
    assert status({GPU: LIST}, frozenset({"Q9"}))["app"] == {GPU: gpus, NIC: healthy}


@pytest.mark.parametrize(("quirks", "health"), [((), "Unhealthy"), (("Q9",), "Healthy")])
def test_devices_of_a_disconnected_plugin(quirks: tuple[str, ...], health: str) -> None:
    gone = LIST.disconnected()
    assert status({GPU: gone}, frozenset(quirks))["app"][GPU]["b"] == health
