"""Descriptions of ResourceSlices, and the line with the details of a claim."""

from __future__ import annotations

import pytest

from devicemanager.core.dra.report import (
    ClaimState,
    ResourceClaimInfo,
    ResourceSliceInfo,
    slice_info,
    slice_nodes,
)

EMPTY = ResourceSliceInfo(
    name="", driver="", pool="", generation=0, nodes="-", devices=(), counter_sets=()
)


def test_slice_has_all_fields():
    found = slice_info(
        {
            "metadata": {"name": "s", "generateName": "unused-"},
            "spec": {
                "driver": "gpu.example.com",
                "pool": {"name": "node-1", "generation": 7},
                "nodeName": "node-1",
                "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
                "sharedCounters": [{"name": "memory"}, {"name": "cores"}],
            },
        }
    )
    assert found == ResourceSliceInfo(
        name="s",
        driver="gpu.example.com",
        pool="node-1",
        generation=7,
        nodes="node-1",
        devices=("gpu-0", "gpu-1"),
        counter_sets=("memory", "cores"),
    )


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"metadata": None, "spec": None},
        {"metadata": {}, "spec": {"pool": None, "devices": None, "sharedCounters": None}},
        {"metadata": {"name": None}, "spec": {"driver": None, "pool": {"name": None}}},
    ],
)
def test_slice_may_lack_any_field(found):
    assert slice_info(found) == EMPTY


def test_slice_without_a_name_has_the_prefix_of_its_name():
    assert slice_info({"metadata": {"generateName": "s-"}}).name == "s-"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"nodeName": "n", "allNodes": True}, "n"),
        ({"nodeName": ""}, "-"),
        ({"allNodes": True}, "all"),
        ({"allNodes": False}, "-"),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, "selector"),
        ({"perDeviceNodeSelection": True}, "per device"),
        ({}, "-"),
    ],
)
def test_nodes_of_a_slice(spec, text):
    assert slice_nodes(spec) == text
    assert slice_info({"spec": spec}).nodes == text


@pytest.mark.parametrize(
    ("text", "error", "details"),
    [
        ("it failed: broken", "broken", "it failed: broken"),
        ("prepared", "broken", "broken"),
        ("prepared", "", "prepared"),
    ],
)
def test_details_name_the_error(text, error, details):
    info = ResourceClaimInfo(
        namespace="ns",
        name="c",
        uid="u",
        state=ClaimState.PREPARED,
        text=text,
        error=error,
        pods=(),
        held=False,
        prepared=False,
        unpreparing=False,
        drivers=(),
        devices=(),
    )
    assert (info.title, info.details) == ("ns/c", details)
