"""The panes of DRA drivers and ResourceClaims."""

from __future__ import annotations

import attrs

from devicemanager.observe.terminal.rows import Pane
from devicemanager.observe.view import NodeView
from tests.observe.dra import claim, device, driver, slice_, status, waiting
from tests.observe.terminal.views import HOSTILE, assert_fits, small, texts


def shown(view: NodeView, pane: Pane) -> list[str]:
    return texts(view, pane, (110, 12))


def with_dra(*claims) -> NodeView:
    found = status(*claims)
    old = driver(socket="dra-1.sock", connected=False, health_service="v1")
    return attrs.evolve(small(), dra=attrs.evolve(found, drivers=(*found.drivers, old)))


def test_claims_show_pods_and_devices_or_the_reason():
    lines = shown(with_dra(claim(), waiting()), Pane.CLAIMS)
    assert [line.split() for line in lines[2:6]] == [
        ["default/gpu", "prepared", "uid-train", "mock/gpu-0"],
        ["mock/gpu-0", "gpu.example.com,", "prepared", "example.com/gpu=gpu-0"],
        [
            "default/other",
            "no-driver",
            "DRA",
            "driver",
            "gpu.example.com",
            "is",
            "not",
            "registered",
        ],
        ["mock/gpu-1", "gpu.example.com,", "not", "prepared"],
    ]


def test_drivers_show_instances_and_slices():
    lines = shown(with_dra(), Pane.DRIVERS)
    assert [line.split() for line in lines[2:5]] == [
        ["gpu.example.com", "dra.sock", "connected", "v1"],
        ["gpu.example.com", "dra-1.sock", "disconnected", "v1,", "health", "v1"],
        ["slice", "slice-1", "gpu.example.com/mock", "generation", "1,", "1", "device,", "mock"],
    ]


def test_panes_are_hidden_without_dra():
    assert not any("Claims" in line for line in texts(small(), size=(120, 40)))
    assert any("Claims" in line for line in texts(with_dra(), size=(120, 40)))


def test_filter_finds_devices():
    view = with_dra(claim(), waiting())
    lines = texts(view, Pane.CLAIMS, (110, 12), filter="gpu-1")
    assert [line.split()[0] for line in lines[2:4] if line.strip()] == ["mock/gpu-1"]


def test_hostile_names_cannot_leave_their_line():
    claims = [claim(f"{n}{text}", error=text) for n, text in enumerate(HOSTILE)]
    claims += [waiting(text, text=text, devices=(device(text),)) for text in HOSTILE]
    slices = tuple(slice_(text, text, pool=text) for text in HOSTILE)
    view = attrs.evolve(small(), dra=attrs.evolve(status(*claims), slices=slices))
    for pane in (Pane.CLAIMS, Pane.DRIVERS):
        assert_fits(texts(view, pane, (60, 60)), 60, 60)
