"""Lines of ``run`` and ``join`` as text and as JSON, field by field."""

from __future__ import annotations

import json
import re
from typing import Any

from devicemanager.cli.kubelet_log import KubeletLog, _devices_text
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.pods.admission import ContainerOutcome

EVENT = Event(100.5, EventKind.REJECTED, "no room", "vendor.com/gpu", "uid", {"requested": 2})


def as_json(log: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(log)
    assert data.pop("schema") == "devicemanager.run/v1"
    assert data.pop("time") > 0
    return data


def test_event_as_json_and_text() -> None:
    lines: list[str] = []
    KubeletLog(True, lines.append).event(EVENT)
    KubeletLog(False, lines.append).event(EVENT)
    KubeletLog(False, lines.append).event(Event(100.0, EventKind.STARTED, "up"))
    assert json.loads(lines[0])["time"] == 100.5
    assert as_json(lines[0]) == {
        "kind": "rejected",
        "message": "no room",
        "warning": True,
        "resource": "vendor.com/gpu",
        "pod": "uid",
        "details": {"requested": 2},
    }
    assert re.fullmatch(r"\d\d:\d\d:40\.500 warning: rejected: no room\n", lines[1])
    assert re.fullmatch(r"\d\d:\d\d:40\.000 started: up\n", lines[2])


def test_messages_of_the_command_as_json_and_text() -> None:
    lines: list[str] = []
    for log in (KubeletLog(True, lines.append), KubeletLog(False, lines.append)):
        log.say("ready", "serving", socket="/a")
        log.warn("manifest", "empty")
    assert as_json(lines[0]) == {"kind": "ready", "message": "serving", "socket": "/a"}
    assert as_json(lines[1]) == {"kind": "manifest", "message": "empty", "warning": True}
    assert [line.partition(" ")[2] for line in lines[2:]] == [
        "serving\n",
        "warning: manifest: empty\n",
    ]


def test_dropped_lines_are_counted() -> None:
    text = "3 lines missing here: standard output was not read in time"
    assert as_json(KubeletLog(True).dropped(3)) == {
        "kind": "output-dropped",
        "message": text,
        "warning": True,
        "dropped": 3,
    }
    shown = KubeletLog(False).dropped(3).partition(" ")[2]
    assert shown == f"warning: output-dropped: {text}\n"


def test_devices_of_a_container_are_those_of_plugins_and_of_claims() -> None:
    held = {
        ResourceName(name): AllocatedDevices({0: frozenset(map(DeviceId, ids))}, None)
        for name, ids in (("v.com/nic", ["n-1"]), ("v.com/gpu", ["g-2", "g-1"]))
    }
    claims = {"b": ("p/d-1", "p/d-0"), "a": ("p/d-2",)}
    given = ContainerOutcome("main", held, claims=claims)
    assert _devices_text(given) == (
        "v.com/gpu g-1,g-2; v.com/nic n-1; claim a p/d-2; claim b p/d-1,p/d-0"
    )
    assert _devices_text(ContainerOutcome("main", {})) == "no devices"
