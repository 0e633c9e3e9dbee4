"""Explanations as data and as text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.devices import Device
from devicemanager.core.explanation.data import as_dict
from devicemanager.core.explanation.model import (
    AdmissionExplanation,
    AlignmentFault,
    ResourceExplanation,
    StepExplanation,
    explain_merge,
)
from devicemanager.core.explanation.text import render, sentence
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import Columns, device_list_from
from devicemanager.core.pods import Container, Pod
from devicemanager.core.topology import Hint, Hints, NumaTopology, configure

TWO = NumaTopology.of([0, 1])
GPU, NIC = ResourceName("vendor.com/gpu"), ResourceName("vendor.com/nic")
POD = Pod(PodUid("u"), "train", "default", (Container(ContainerName("main")),))
FIRST = (Hint(1, True), Hint(3, False))
SECOND = (Hint(2, True), Hint(3, False))


def resource(
    name: ResourceName,
    request: int,
    layout: str,
    in_use: int = 0,
    chosen: int = 0,
) -> ResourceExplanation:
    """Create a resource; ``layout`` has one character per device: the digit of its node, ``-``
    for none, ``b`` for both, ``B`` for both and unhealthy."""
    nodes = {"0": (0,), "1": (1,), "-": (), "b": (0, 1), "B": (0, 1)}
    devices = [
        Device(
            DeviceId(f"{name[-3:]}-{number:03}"),
            "Unhealthy" if kind == "B" else "Healthy",
            nodes[kind],
        )
        for number, kind in enumerate(layout)
    ]
    return ResourceExplanation(name, request, device_list_from(Columns.of(devices)), in_use, chosen)


ALIGNED = """\
pod default/train admitted
  policy restricted, scope container

container main
  vendor.com/gpu: 2 requested
    node 0  [#..x] 2 of 4 free
    node 1  [**.x] 3 of 4 free
    no node [.]    1 of 1 free
    chosen: gpu-002, gpu-003
    fits on node 1!, nodes 0+1 (! preferred)
  vendor.com/nic: 1 requested
    no node [.] 1 of 1 free
    fits on any node: its devices have no topology
  cpu fits on node 0!, node 1! (! preferred)
  => restricted: aligned to node 1

legend: . free, # in use, x unhealthy, * chosen
"""

REJECTED = """\
pod default/train rejected: TopologyAffinityError
  Resources cannot be allocated with Topology locality
  policy restricted, scope pod

the pod as a whole
  vendor.com/gpu: 1 requested
    node 0 [.] 1 of 1 free
    fits on node 0!, nodes 0+1 (! preferred)
  vendor.com/nic: 1 requested
    node 0 [# 70]     0 of 70 free
    node 1 [. 68 # 2] 68 of 70 free
    fits on node 1!, nodes 0+1 (! preferred)
  => restricted: vendor.com/gpu can be aligned to node 0, vendor.com/nic can be aligned to \
node 1; there is no common node
     best possible results: node 0, node 1, nodes 0+1
     under policy best-effort or none, the pod would not be rejected for this

legend: . free, # in use, x unhealthy, * chosen
"""

FAILED = """\
pod default/train rejected: UnexpectedAdmissionError
  Allocate failed due to no, which is unexpected
  policy none, scope container

container main
  => no
"""


def test_explanation_of_an_aligned_admission() -> None:
    policy = configure(TWO, "restricted")
    gpus = resource(GPU, 2, "0011bB-", in_use=0b0000001, chosen=0b0001100)
    hints: dict[str, Hints | None] = {GPU: SECOND, NIC: None, "cpu": (Hint(1, True), Hint(2, True))}
    step = StepExplanation("main", (gpus, resource(NIC, 1, "-")), explain_merge(policy, [hints]))
    assert render(AdmissionExplanation(POD, policy, (step,))) == ALIGNED


def test_explanation_of_resources_without_common_nodes() -> None:
    policy = configure(TWO, "restricted", "pod")
    nics = resource(NIC, 1, "0" * 70 + "1" * 70, in_use=(1 << 72) - 1)
    merge = explain_merge(policy, [{GPU: FIRST, NIC: SECOND}])
    step = StepExplanation(None, (resource(GPU, 1, "0"), nics), merge)
    rejected = AdmissionExplanation(
        POD,
        policy,
        (step,),
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    )
    assert not rejected.admitted
    assert render(rejected) == REJECTED


def test_explanation_of_a_failed_allocation() -> None:
    failed = AdmissionExplanation(
        POD,
        configure(TWO),
        (StepExplanation("main", error="no"),),
        "UnexpectedAdmissionError",
        "Allocate failed due to no, which is unexpected",
    )
    assert render(failed) == FAILED


TOGETHER = (
    "vendor.com/gpu can be aligned to node 0, vendor.com/nic can be aligned to node 1; "
    "there is no common node"
)
SPREAD = (
    "vendor.com/gpu is free only across nodes 0+1; "
    "fewer nodes would be enough if no device were in use"
)


@pytest.mark.parametrize(
    ("policy", "hints", "text"),
    [
        ("restricted", {GPU: FIRST, NIC: SECOND}, TOGETHER),
        ("single-numa-node", {GPU: FIRST, NIC: SECOND}, TOGETHER),
        (
            "best-effort",
            {GPU: FIRST, NIC: SECOND},
            f"not aligned, prefers node 0: {TOGETHER}",
        ),
        ("restricted", {GPU: (Hint(3, False),)}, SPREAD),
        (
            "restricted",
            {GPU: (Hint(3, True),), NIC: FIRST},
            "vendor.com/gpu can be aligned to nodes 0+1, vendor.com/nic can be aligned to node 0; "
            "there is no common set of nodes",
        ),
        (
            "single-numa-node",
            {GPU: (Hint(3, True),), NIC: FIRST},
            "vendor.com/gpu does not fit on one node: it needs nodes 0+1",
        ),
        (
            "restricted",
            {GPU: (), NIC: (Hint(3, False),)},
            "vendor.com/gpu fits nowhere: 3 requested, 3 free, 2 of them on a node; "
            "vendor.com/nic is free only across nodes 0+1; fewer nodes would be enough if no "
            "device were in use",
        ),
        ("restricted", {"cpu": ()}, "cpu fits nowhere"),
        ("restricted", {GPU: None}, "nothing to align"),
        ("single-numa-node", {GPU: FIRST}, "aligned to node 0"),
        ("none", {}, "no alignment"),
    ],
)
def test_sentence_about_a_merge(policy: str, hints: dict[str, Hints | None], text: str) -> None:
    merge = explain_merge(configure(TWO, policy), [hints])
    assert sentence(merge, [resource(GPU, 3, "01-")]) == f"{policy}: {text}"


def test_long_lists_of_hints_are_shortened() -> None:
    eight = NumaTopology.of(range(8))
    hints = (*(Hint(1 << node, True) for node in range(8)), Hint(3, False), Hint(5, False))
    policy = configure(eight, "restricted")
    step = StepExplanation("main", (), explain_merge(policy, [{"cpu": hints}]))
    text = render(AdmissionExplanation(POD, policy, (step,)))
    shown = ", ".join(f"node {node}!" for node in range(8))
    assert f"  cpu fits on {shown} and 2 more (! preferred)\n" in text


def test_free_devices_are_counted_per_node() -> None:
    gpus = resource(GPU, 1, "001bB-", in_use=0b000001)
    assert gpus.free_per_node(TWO) == {0: 2, 1: 2, None: 1}
    assert gpus.free_per_node(NumaTopology.of([1])) == {1: 2, None: 2}


def test_merge_as_data() -> None:
    policy = configure(TWO, "best-effort")
    apart = explain_merge(policy, [{GPU: (Hint(1, True),), NIC: (Hint(2, True),), "cpu": None}])
    step = StepExplanation("main", (), apart)
    explanation = AdmissionExplanation(POD, policy, (step,))
    whole = as_dict(explanation)
    assert (whole["admitted"], whole["reason"], whole["message"]) == (True, "", "")
    [step] = whole["steps"]
    assert step["merge"] == {
        "hints": {
            GPU: [{"numa_nodes": [0], "preferred": True}],
            NIC: [{"numa_nodes": [1], "preferred": True}],
            "cpu": None,
        },
        "affinity": {"numa_nodes": [0, 1], "preferred": False},
        "admitted": True,
        "candidates": [],
        "faults": {GPU: "no common nodes", NIC: "no common nodes"},
        "other_policies_admitting": ["none"],
        "summary": sentence(apart),
    }


@pytest.mark.parametrize(
    ("devices", "drawn"), [(64, "[*" + "." * 63 + "] 64 of 64"), (65, "[. 64 * 1] 65 of 65")]
)
def test_many_devices_of_a_node_are_counted_instead_of_drawn(devices, drawn) -> None:
    gpus = resource(GPU, 1, "0" * devices, chosen=1)
    step = StepExplanation("main", (gpus,))
    text = render(AdmissionExplanation(POD, configure(TWO, "none"), (step,)))
    assert f"    node 0 {drawn} free\n" in text


def test_few_candidates_are_listed() -> None:
    policy = configure(NumaTopology.of([0, 1, 2]), "best-effort")
    wide = tuple(Hint(mask, False) for mask in range(1, 8))
    merge = explain_merge(policy, [{GPU: wide}])
    assert [hint.mask for hint in merge.candidates] == [1, 2, 4]


MASKS = st.one_of(st.none(), st.integers(1, 3))
HINTS = st.one_of(st.none(), st.lists(st.builds(Hint, MASKS, st.booleans()), max_size=3).map(tuple))


@given(
    st.sampled_from(["best-effort", "restricted", "single-numa-node"]),
    st.dictionaries(st.sampled_from([GPU, NIC, "cpu"]), HINTS),
)
def test_every_result_that_is_not_preferred_has_a_fault(
    name: str, hints: dict[str, Hints | None]
) -> None:
    policy = configure(TWO, name)
    merge = explain_merge(policy, [hints])
    assert (merge.affinity, merge.admitted) == policy.merge([hints])
    assert bool(merge.faults) != merge.affinity.preferred
    assert sentence(merge).startswith(f"{name}: ")
    if name != "single-numa-node" and not merge.affinity.preferred and merge.candidates:
        assert merge.candidates[0] == merge.affinity
    nowhere = {name for name, hints in hints.items() if hints == ()}
    assert nowhere == {n for n, f in merge.faults.items() if f is AlignmentFault.FITS_NOWHERE}


def test_resources_as_data() -> None:
    gpus = resource(GPU, 2, "01-B", in_use=0b0001, chosen=0b0010)
    held: Any = SimpleNamespace(ids={"gpu-000", "gpu-001"})
    explanation = AdmissionExplanation(
        POD,
        configure(TWO, "restricted", "pod"),
        (StepExplanation(None, (gpus,), None, "no", {ResourceName("vendor.com/x"): 1}),),
        "UnexpectedAdmissionError",
        "message",
        {PodUid("v"): {ContainerName("app"): {GPU: held, NIC: held}}, PodUid("u"): {}},
        lambda uid: f"b/{uid}",
    )
    whole = as_dict(explanation)
    assert whole["pod"] == {"namespace": "default", "name": "train", "uid": "u"}
    assert (whole["admitted"], whole["reason"]) == (False, "UnexpectedAdmissionError")
    assert whole["message"] == "message"
    assert whole["policy"] == {
        "name": "restricted",
        "scope": "pod",
        "prefer_closest_numa_nodes": False,
        "max_allowable_numa_nodes": 8,
        "numa_nodes": [0, 1],
        "distances": [list(row) for row in TWO.distances],
    }
    assert whole["holders"] == [
        {
            "pod": "b/v",
            "uid": "v",
            "container": "app",
            "resource": GPU,
            "device_ids": ["gpu-000"],
        }
    ]
    [step] = whole["steps"]
    [shown] = step.pop("resources")
    assert step == {
        "container": None,
        "unknown": {"vendor.com/x": 1},
        "merge": None,
        "error": "no",
    }
    places = shown.pop("places")
    assert shown == {"resource": GPU, "request": 2, "free": 2, "chosen": ["gpu-001"]}
    states = {"gpu-000": "in use", "gpu-001": "chosen", "gpu-002": "free", "gpu-003": "unhealthy"}
    assert [(each["numa_node"], each["free"]) for each in places] == [(0, 0), (1, 1), (None, 1)]
    for place in places:
        assert place["devices"].items() <= states.items()
    assert [len(place["devices"]) for place in places] == [2, 2, 1]
    text = render(explanation)
    assert "\n\nin use:\n  vendor.com/gpu gpu-000: pod b/v, container app\n" in text


def test_advice_names_resources_with_too_few_free_devices() -> None:
    policy = configure(TWO, "single-numa-node")
    hints: dict[str, Hints | None] = {GPU: (), NIC: SECOND, "cpu": ()}
    few = (resource(GPU, 3, "01"), resource(NIC, 1, "1"))
    step = StepExplanation("main", few, explain_merge(policy, [hints]))
    text = render(AdmissionExplanation(POD, policy, (step,), "TopologyAffinityError"))
    assert "no other policy would help: not enough free: vendor.com/gpu, cpu\n" in text
    enough = (resource(GPU, 2, "01"), resource(NIC, 1, "1"))
    hints = {GPU: (Hint(3, True),), NIC: SECOND}
    step = StepExplanation("main", enough, explain_merge(policy, [hints]))
    text = render(AdmissionExplanation(POD, policy, (step,), "TopologyAffinityError"))
    assert ", the pod would not be rejected for this\n" in text
