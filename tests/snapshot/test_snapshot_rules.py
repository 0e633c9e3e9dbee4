"""Rules: each kind of finding on a node with only that problem, and no false findings on random
nodes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from checkpoint.fnv import fnv1a_32
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.host.numa import NumaMachine
from devicemanager.snapshot import layout
from devicemanager.snapshot.model import (
    KubeletConfig,
    Listening,
    LoggedPod,
    PodDirectories,
    Snapshot,
    SocketSeen,
)
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.report import as_data, lines
from devicemanager.snapshot.rules import ADVICE, Kind, Severity, findings
from devicemanager.snapshot.statefiles import MemoryBlock, MemoryState
from devicemanager.snapshot.statefiles import memory_state as read_memory_state
from podresources import Allocatable
from tests.paths import ROOT as REPOSITORY
from tests.snapshot.made_up import (
    GPU,
    NIC,
    ROOT,
    SOCKETS,
    WHOLE,
    allocatable,
    claim,
    claims,
    cpu_state,
    entry,
    memory_state,
    pod,
    saved,
    socket,
    without,
)
from tests.strategies import examples
from tools.damage.verification import false_findings, missed_problems

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "findings.json").read_text())


def evolve(**changes: object) -> Snapshot:
    return attrs.evolve(WHOLE, **changes)


def test_node_without_problems_has_no_findings():
    assert findings(WHOLE) == ()


def configured(**settings: object) -> KubeletConfig:
    return KubeletConfig(f"{ROOT}/config.yaml", settings)


def nodes(count: int) -> NumaMachine:
    return NumaMachine(NumaTopology.of(range(count)))


EXCLUSIVE = {"u-train": {"main": "3"}}
CASES = {
    "no-socket": (
        without(WHOLE, layout.POD_RESOURCES, "no such file", absent=True),
        Kind.KUBELET_NOT_SERVING,
        "the kubelet does not serve PodResources",
    ),
    "dead-socket-of-podresources": (
        attrs.evolve(
            without(WHOLE, layout.POD_RESOURCES, "no response"),
            sockets=(*SOCKETS[:2], socket("pod-resources/kubelet.sock", Listening.DEAD)),
        ),
        Kind.KUBELET_NOT_SERVING,
        "the kubelet does not serve PodResources",
    ),
    "no-registration": (
        evolve(sockets=(SOCKETS[0], SOCKETS[2])),
        Kind.REGISTRATION_CLOSED,
        "no plugin can register",
    ),
    "dead-registration": (
        evolve(
            sockets=(SOCKETS[0], socket("device-plugins/kubelet.sock", Listening.DEAD), SOCKETS[2])
        ),
        Kind.REGISTRATION_CLOSED,
        "no plugin can register",
    ),
    "cut-off": (
        evolve(checkpoint=(WHOLE.checkpoint or b"")[:-30]),
        Kind.CHECKPOINT_DAMAGED,
        "the checkpoint is damaged",
    ),
    "wrong-checksum": (
        evolve(checkpoint=(WHOLE.checkpoint or b"").replace(b'["g0","g1"]', b'["g0","g3"]', 1)),
        Kind.CHECKPOINT_DAMAGED,
        "the checkpoint is damaged",
    ),
    "no-checkpoint": (
        without(WHOLE, layout.CHECKPOINT, "no such file", absent=True),
        Kind.CHECKPOINT_MISSING,
        "there is no checkpoint; number of allocated devices: 3",
    ),
    "two-pods-on-one-device": (
        evolve(pods=(pod("infer", "g2", "g0"), pod("train", "g0", "g1"))),
        Kind.HELD_TWICE,
        "device g0 of vendor.com/gpu is allocated to 2 pods: ml/infer, ml/train",
    ),
    "two-pods-on-one-device-say-both": (
        evolve(
            pods=(pod("infer", "g2", "g1"), pod("train", "g0", "g1")),
            checkpoint=saved(entry("u-train", "g0", "g1"), entry("u-infer", "g2", "g1")),
        ),
        Kind.HELD_TWICE,
        "device g1 of vendor.com/gpu is allocated to 2 pods: ml/infer, ml/train",
    ),
    "two-entries-for-one-device": (
        evolve(checkpoint=saved(entry("u-train", "g0", "g1"), entry("u-infer", "g2", "g1"))),
        Kind.HELD_TWICE,
        "device g1 of vendor.com/gpu is allocated to 2 pods: ml/train (u-train), u-infer",
    ),
    "not-saved": (
        evolve(checkpoint=saved(entry("u-train", "g0", "g1"))),
        Kind.NOT_IN_CHECKPOINT,
        "device g2 of vendor.com/gpu, allocated to ml/infer: not in the checkpoint",
    ),
    "only-saved": (
        evolve(pods=(pod("infer", "g2"), pod("train", "g0"))),
        Kind.ONLY_IN_CHECKPOINT,
        "container main of pod ml/train (u-train) has g1 of vendor.com/gpu in the checkpoint, "
        "but not in PodResources",
    ),
    "no-plugin": (
        evolve(allocatable=Allocatable(), sockets=SOCKETS[1:]),
        Kind.RESOURCE_WITHOUT_PLUGIN,
        "vendor.com/gpu: no device is allocatable, but the checkpoint has 4 healthy devices",
    ),
    "a-device-is-away": (
        evolve(allocatable=allocatable("g0", "g1", "g2")),
        Kind.DEVICES_NOT_OFFERED,
        "vendor.com/gpu: devices that are healthy in the checkpoint but not allocatable: g3",
    ),
    "a-held-device-is-away": (
        evolve(allocatable=allocatable("g0", "g1", "g3")),
        Kind.HELD_NOT_OFFERED,
        "device g2 of vendor.com/gpu, allocated to ml/infer, is not allocatable: it is unhealthy, "
        "or its plugin does not list it",
    ),
    "a-dead-plugin": (
        evolve(sockets=(*SOCKETS, socket("device-plugins/nic.sock", Listening.DEAD))),
        Kind.DEAD_SOCKET,
        f"no process is listening on the socket {ROOT}/device-plugins/nic.sock",
    ),
    "a-pod-is-gone": (
        evolve(
            checkpoint=saved(
                entry("u-train", "g0", "g1"), entry("u-infer", "g2"), entry("u-old", "g3")
            )
        ),
        Kind.POD_GONE,
        "pod u-old is in the checkpoint, but not on the node",
    ),
    "twice-in-the-file": (
        evolve(
            checkpoint=saved(
                entry("u-train", "g1"), entry("u-train", "g0", "g1"), entry("u-infer", "g2")
            )
        ),
        Kind.REPEATED_ENTRY,
        "pod u-train, container main has 2 entries for vendor.com/gpu",
    ),
    "answer-of-a-plugin": (
        evolve(
            checkpoint=saved(
                entry("u-train", "g0", "g1"),
                PodDevicesEntry("u-infer", "main", GPU, {1: ("g2",)}, b"\xff"),
            )
        ),
        Kind.ANSWER_UNREADABLE,
        "the response of the plugin of vendor.com/gpu for pod ml/infer (u-infer), container main "
        "cannot be read",
    ),
    "cpu-policy-changed": (
        evolve(config=configured(cpuManagerPolicy="static")),
        Kind.CPU_STATE,
        "the kubelet does not start with cpu_manager_state: it was written with policy 'none', "
        "the kubelet now has 'static'",
    ),
    "cpu-checksum": (
        evolve(cpu_state=cpu_state(checksum=1)),
        Kind.CPU_STATE,
        "the kubelet does not start with cpu_manager_state: its checksum is 1, expected 1353318690",
    ),
    "cpu-cut-off": (
        evolve(cpu_state=b'{"policyName":'),
        Kind.CPU_STATE,
        "cpu_manager_state cannot be read: Input data was truncated",
    ),
    "cpus-gone": (
        evolve(
            config=configured(cpuManagerPolicy="static"),
            cpu_state=cpu_state("static", "0-2,4-9", entries=EXCLUSIVE, checksum=0),
        ),
        Kind.CPU_STATE,
        "the kubelet does not start with cpu_manager_state: it contains CPUs that the machine "
        "does not have: 8,9",
    ),
    "cpus-new": (
        evolve(
            config=configured(cpuManagerPolicy="static"),
            cpu_state=cpu_state("static", "0-2,4-6", entries=EXCLUSIVE, checksum=0),
        ),
        Kind.CPU_STATE,
        "the kubelet does not start with cpu_manager_state: it lacks CPUs that the machine has: 7",
    ),
    "cpus-shared-and-not": (
        evolve(
            config=configured(cpuManagerPolicy="static"),
            cpu_state=cpu_state("static", "0-7", entries=EXCLUSIVE, checksum=0),
        ),
        Kind.CPU_STATE,
        "the kubelet does not start with cpu_manager_state: CPUs that are both exclusive and "
        "shared: 3",
    ),
    "cpu-entries-invalid": (
        evolve(cpu_state=cpu_state(entries={"u-train": {"main": 3}})),
        Kind.CPU_STATE,
        "cpu_manager_state cannot be read: invalid entries: expected CPUs by pod UID and "
        "container name",
    ),
    "memory-policy-changed": (
        evolve(config=configured(memoryManagerPolicy="Static")),
        Kind.MEMORY_STATE,
        "the kubelet does not start with memory_manager_state: it was written with policy "
        "'None', the kubelet now has 'Static'",
    ),
    "memory-changed": (
        evolve(
            config=configured(memoryManagerPolicy="Static"),
            memory_state=memory_state(
                "Static", machineState={"1": {"memoryMap": {"memory": {"total": 5}}, "cells": [1]}}
            ),
        ),
        Kind.MEMORY_STATE,
        "the kubelet does not start with memory_manager_state: it has 5 bytes of memory for NUMA "
        f"node 1, which has {8 << 30}",
    ),
    "memory-cut-off": (
        evolve(memory_state=b"[]"),
        Kind.MEMORY_STATE,
        "memory_manager_state cannot be read: Expected `object`, got `array`",
    ),
    "claims-cut-off": (
        evolve(dra_state=(WHOLE.dra_state or b"")[:-40]),
        Kind.DRA_STATE_DAMAGED,
        "the state file of the DRA manager is damaged",
    ),
    "claims-of-before-132": (
        evolve(dra_state=b'{"version":"v1","entries":[],"checksum":0}'),
        Kind.DRA_STATE_DAMAGED,
        "the state file of the DRA manager has the format of kubelets before v1.32",
    ),
    "two-claims-on-one-device": (
        evolve(
            dra_state=claims(
                claim("one", "u-train", device="gpu-0"), claim("two", "u-infer", device="gpu-0")
            )
        ),
        Kind.PREPARED_TWICE,
        "device gpu.example.com/worker-1/gpu-0 is prepared for claims ml/one, ml/two",
    ),
    "claim-of-a-pod-that-is-gone": (
        evolve(dra_state=claims(claim("one", "u-train", "u-gone", device="gpu-0"))),
        Kind.CLAIM_POD_GONE,
        "pod u-gone holds claims, but is not on the node",
    ),
    "claim-without-pods": (
        evolve(dra_state=claims(claim("one"))),
        Kind.CLAIM_WITHOUT_PODS,
        "claim ml/one has no pods: no kubelet unprepares it",
    ),
    "claim-twice": (
        evolve(dra_state=claims(claim("one", "u-train"), claim("one", "u-infer"))),
        Kind.REPEATED_CLAIM,
        "claim ml/one has 2 entries: a kubelet reads the last one",
    ),
    "device-twice-in-a-claim": (
        evolve(dra_state=claims(claim("one", "u-train", device="gpu-0", times=2))),
        Kind.REPEATED_CLAIM_DEVICE,
        "claim ml/one lists device gpu.example.com/worker-1/gpu-0 2 times",
    ),
    "many-nodes": (
        evolve(numa=nodes(9)),
        Kind.TOO_MANY_NUMA_NODES,
        "the kubelet does not start: policy restricted with 9 NUMA nodes, limit 8",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_single_problem_is_the_only_finding(case):
    snapshot, kind, message = CASES[case]
    (found,) = findings(snapshot)
    assert (found.kind, found.message) == (kind, message)


@pytest.mark.parametrize("case", CASES)
def test_finding_has_these_details_and_advice(case):
    """As data for programs; the text report shows the same."""
    snapshot = CASES[case][0]
    (data,) = as_data(Node(snapshot), findings(snapshot))["findings"]
    # Error messages of protobuf differ between releases.
    data["details"] = [re.sub(r" \(Error parsing .*\)", "", each) for each in data["details"]]
    assert {name: data[name] for name in EXPECTED[case]} == EXPECTED[case]
    assert data.keys() - EXPECTED[case].keys() == {"message"}, "CASES has the message"


def broken() -> Snapshot:
    """Return a node with several problems, and with parts that could not be read."""
    many = tuple(f"n{number}" for number in range(10, 25))
    snapshot = evolve(
        pods=(*(WHOLE.pods or ()), pod("idle"), pod("net", *many[:2], resource=NIC)),
        allocatable=Allocatable(
            (*allocatable("g0", "g1", "g3").devices, *allocatable(*many, resource=NIC).devices)
        ),
        checkpoint=saved(
            entry("u-train", "g0", "g1"),
            entry("u-infer", "g2"),
            entry("u-net", "n10", resource=NIC),
        ),
        sockets=(
            *SOCKETS,
            SocketSeen(f"{ROOT}/device-plugins/a.sock", Listening.LISTENING),
            SocketSeen(f"{ROOT}/device-plugins/b.sock", Listening.LISTENING, 12),
            SocketSeen(f"{ROOT}/device-plugins/c.sock", Listening.UNKNOWN, problem="No access"),
        ),
        config=KubeletConfig(
            f"{ROOT}/config.yaml",
            {
                "topologyManagerPolicy": "best-effort",
                "topologyManagerScope": "pod",
                "topologyManagerPolicyOptions": {"b": True, "a": 1},
                "memoryManagerPolicy": "None",
            },
        ),
    )
    snapshot = without(snapshot, layout.PODS, "Permission denied")
    return without(snapshot, layout.NUMA, "no such file", absent=True)


def test_report_of_a_broken_node():
    snapshot = broken()
    report = "\n".join(lines(Node(snapshot), findings(snapshot)))
    assert f"{report}\n" == (DATA / "report.txt").read_text()


@pytest.mark.parametrize(
    ("name", "row"),
    [
        (layout.ALLOCATABLE, f"{GPU}  4              ?            3          g0,g1,g2,g3"),
        (layout.POD_RESOURCES, f"{GPU}  4              4            ?          g0,g1,g2,g3"),
        (layout.CHECKPOINT, f"{GPU}  -              4            3          g0,g1,g2,g3"),
    ],
)
def test_unknown_numbers_are_question_marks(name, row):
    snapshot = without(WHOLE, name, "Permission denied")
    assert row in list(lines(Node(snapshot), ()))


def test_data_of_a_broken_node():
    snapshot = broken()
    data = as_data(Node(snapshot), ())
    unread = {"pods.json": "Permission denied", "numa.json": "no such file"}
    assert data == {
        "node": "worker-1",
        "taken": "2026-01-31T12:00:00Z",
        "root": ROOT,
        "findings": [],
        "parts": [
            {
                "name": part.name,
                "source": f"{ROOT}/{part.name}",
                "read": part.name not in unread,
                "absent": part.name == "numa.json",
                "problem": unread.get(part.name),
            }
            for part in snapshot.parts
        ],
        "resources": [
            {"resource_name": GPU, "in_checkpoint": 4, "allocatable": 3, "held": 3},
            {"resource_name": NIC, "in_checkpoint": None, "allocatable": 15, "held": 2},
        ],
        "pods": {"u-infer": "ml/infer", "u-train": "ml/train"},
    }


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"cpuManagerPolicyOptions": {"strict-cpu-reservation": True}}, {}),
        ({}, {"cpu-manager-policy-options": "strict-cpu-reservation=true"}),
    ],
)
def test_strictly_reserved_cpus_may_be_missing_from_the_state_file(settings, flags):
    state = cpu_state("static", "0-2,4-6", entries=EXCLUSIVE, checksum=0)
    config = KubeletConfig(f"{ROOT}/config.yaml", {"cpuManagerPolicy": "static"} | settings, flags)
    assert findings(evolve(config=config, cpu_state=state)) == ()


@pytest.mark.parametrize(
    "changes", [{"default": "0-x"}, {"entries": {"u-train": {"main": "0-x"}}}], ids=str
)
def test_invalid_cpus_are_described(changes):
    (found,) = findings(evolve(cpu_state=cpu_state(**{"checksum": 0, **changes})))
    assert found.message == (
        "cpu_manager_state cannot be read: CPUs: invalid `0-x`: expected a number or a range such "
        "as 0-3"
    )


def test_all_cpus_must_be_in_the_state_file_without_a_known_configuration():
    state = cpu_state("static", "0-2,4-6", entries=EXCLUSIVE, checksum=0)
    (found,) = findings(evolve(config=None, cpu_state=state))
    assert found.message.endswith("it lacks CPUs that the machine has: 7")


@pytest.mark.parametrize(
    ("bad", "cut", "more"),
    [(10, "", ()), (10, "}", ("and 1 more",)), (11, "", ("and 2 more",))],
)
def test_at_most_twenty_lines_about_damage_are_shown(bad, cut, more):
    many = saved(*(entry(f"u{number}", "g0") for number in range(bad)))
    data = many.replace(b'"AllocResp":""', b'"AllocResp":"x"')
    damaged, *_ = findings(evolve(checkpoint=data.removesuffix(cut.encode())))
    assert damaged.kind is Kind.CHECKPOINT_DAMAGED
    assert len(damaged.details) == 20 + len(more) + 1
    assert damaged.details[20:] == (*more, "readable pod device entries: 0")


def test_devices_without_numa_nodes_are_a_note():
    bare = Allocatable(
        tuple(attrs.evolve(each, nodes=()) for each in (WHOLE.allocatable or Allocatable()).devices)
    )
    (found,) = findings(evolve(allocatable=bare))
    assert (found.kind, found.severity) == (Kind.NO_NUMA_NODES, Severity.NOTE)
    assert findings(evolve(allocatable=bare, config=None)) == ()


def test_unregistered_resource_is_also_without_a_plugin():
    data = saved(entry("u-train", "g0", "g1"), entry("u-infer", "g2"), registered={})
    kinds = [each.kind for each in findings(evolve(checkpoint=data, allocatable=Allocatable()))]
    assert kinds == [Kind.RESOURCE_WITHOUT_PLUGIN, Kind.UNREGISTERED_RESOURCE]


def test_state_files_of_real_kubelets_have_no_problems():
    # From real kubelets, with the checksums that they wrote.
    for default, entries, checksum in (
        ("0,4-27", {"39b37746-7f5e-4064-b8e1-eebd2bfaa003": {"app": "1-3"}}, 3300516549),
        (
            "0,2-12,14-23",
            {"235148fe-393f-47a8-a17d-bd55bc1a836b": {"cgroup1-0": "1,13"}},
            1552716370,
        ),
    ):
        data = cpu_state("static", default, entries=entries, checksum=checksum)
        machine = NumaMachine(
            NumaTopology.of([0]), {0: tuple(range(28 if "27" in default else 24))}
        )
        known = evolve(cpu_state=data, config=configured(cpuManagerPolicy="static"), numa=machine)
        assert findings(known) == ()
        altered = evolve(cpu_state=data.replace(b"1-3", b"2-3").replace(b"1,13", b"13"))
        kinds = {each.kind for each in findings(altered)}
        assert kinds == {Kind.CPU_STATE}


def test_checksum_with_pod_level_resources_is_correct():
    text = (
        "(*state.CPUManagerCheckpoint){PolicyName:(string)none DefaultCPUSet:(string) "
        "Entries:(map[string]map[string]string)map[] PodEntries:(state.PodCPUAssignments)map[] "
        "Checksum:(checksum.Checksum)0}"
    )
    assert findings(evolve(cpu_state=cpu_state(checksum=fnv1a_32(text.encode())))) == ()


def test_memory_state_is_parsed_completely():
    state = memory_state(
        "Static",
        machineState={
            "0": {"memoryMap": {"memory": {"total": 8, "allocatable": 6}}, "cells": [0]},
            "1": {"memoryMap": {"hugepages-1Gi": {"total": 4, "allocatable": 4}}, "cells": [1]},
        },
        entries={"u": {"main": [{"numaAffinity": [0, 1], "type": "memory", "size": 3}]}},
    )
    assert read_memory_state(state) == MemoryState(
        "Static",
        {0: {"memory": 8}, 1: {"hugepages-1Gi": 4}},
        {"memory": {0: 6}, "hugepages-1Gi": {1: 4}},
        {"u": {"main": (MemoryBlock("memory", 3, (0, 1)),)}},
    )


def test_unread_parts_lead_to_no_findings():
    for name in (layout.POD_RESOURCES, layout.ALLOCATABLE, layout.CHECKPOINT, layout.SOCKETS):
        assert findings(without(WHOLE, name, "Permission denied")) == ()
    assert findings(evolve(config=None, numa=None, directories=None)) == ()
    nothing = Snapshot("t", "0", "n", "/r")
    assert findings(nothing) == ()


def test_checkpoint_before_1_20_is_not_called_damaged():
    from checkpoint.parse import checksum_v1

    old = Checkpoint((entry("u-train", "g0"),), {GPU: ("g0",)})
    content = json.loads(checkpoint.dumps(old))
    content["Data"]["PodDeviceEntries"][0]["DeviceIDs"] = ["g0"]
    content["Checksum"] = checksum_v1(old)
    kinds = findings(evolve(checkpoint=json.dumps(content).encode(), pods=(), directories=None))
    assert "format of kubelets before v1.20" in kinds[0].message


def test_each_container_with_more_devices_in_the_checkpoint_is_found():
    # PodResources does not show the init container of the first entry.
    data = saved(
        entry("u-train", "g3", container="init"),
        entry("u-train", "g0", "g1", "g2"),
        entry("u-infer", "g2", "g3"),
    )
    names = (LoggedPod("ml", "train", "u-train"), LoggedPod("ml", "infer", "u-infer"))
    directories = PodDirectories(("u-infer", "u-train"), names)
    found = findings(evolve(checkpoint=data, directories=directories))
    only = [each.devices for each in found if each.kind is Kind.ONLY_IN_CHECKPOINT]
    assert only == [("g2",), ("g3",)]


def test_pods_are_only_possibly_gone_without_the_pod_directory():
    data = saved(entry("u-train", "g0", "g1"), entry("u-infer", "g2"), entry("u-old", "g3"))
    (found,) = findings(evolve(checkpoint=data, directories=None))
    assert found.kind is Kind.POD_GONE
    assert "so check the pod" in found.details[1]
    # Either of two pods with the same devices may be the pod of the entry: none is gone.
    twins = evolve(
        pods=(pod("a", "g0"), pod("b", "g0")),
        checkpoint=saved(entry("u-a", "g0"), entry("u-b", "g0")),
        directories=None,
    )
    assert {each.kind for each in findings(twins)} == {Kind.HELD_TWICE}
    assert Node(twins).names == {}
    # A pod is not gone if another container has its device: it may be of the same pod.
    init = evolve(
        pods=(pod("a", "g0"),),
        checkpoint=saved(entry("u-a", "g0", "g1", container="init"), entry("u-b", "g0")),
        directories=None,
    )
    assert not [each for each in findings(init) if each.kind is Kind.POD_GONE]


def test_each_kind_has_advice_and_is_documented():
    page = (REPOSITORY / "docs/json.md").read_text()
    assert [kind for kind in Kind if f"`{kind}`" not in page] == []
    assert set(ADVICE) == set(Kind)
    assert all(advice.steps for advice in ADVICE.values())


# --- random nodes: every finding is true, and no problem is missed

ids = st.lists(st.sampled_from(["g0", "g1", "g2"]), max_size=3, unique=True).map(tuple)
resources = st.sampled_from([GPU, NIC])
uids = st.sampled_from(["u1", "u2", "u3"])
entries = st.lists(
    st.builds(
        lambda uid, ids, resource, container: entry(
            uid, *ids, resource=resource, container=container
        ),
        uids,
        ids,
        resources,
        st.sampled_from(["main", "init"]),
    ),
    max_size=4,
)
pods = st.none() | st.lists(
    st.builds(
        lambda name, ids, resource: pod(name, *ids, resource=resource),
        st.sampled_from(["a", "b", "c"]),
        ids,
        resources,
    ),
    max_size=3,
    unique_by=lambda each: each.name,
).map(tuple)
allocatables = st.none() | st.builds(
    lambda gpus, nics: Allocatable(
        (*allocatable(*gpus).devices, *allocatable(*nics, resource=NIC).devices)
    ),
    ids,
    ids,
)
states = st.sampled_from(list(Listening))
snapshots = st.builds(
    lambda entries, registered, pods, allocatable, uids, states: evolve(
        checkpoint=saved(*entries, registered=registered),
        pods=pods,
        allocatable=allocatable,
        directories=None if uids is None else PodDirectories(tuple(sorted(uids))),
        sockets=tuple(socket(f"device-plugins/{n}.sock", s) for n, s in enumerate(states)),
    ),
    entries,
    st.dictionaries(resources, ids, max_size=2),
    pods,
    allocatables,
    st.none() | st.sets(uids),
    st.lists(states, max_size=2),
)


@settings(examples(0.5))
@given(snapshots)
def test_findings_of_random_nodes_are_true_and_complete(snapshot):
    found = findings(snapshot)
    assert list(false_findings(snapshot, found)) == []
    assert list(missed_problems(snapshot, found)) == []


def test_false_finding_is_noticed():
    twice = evolve(pods=(pod("infer", "g2", "g0"), pod("train", "g0", "g1")))
    (found,) = findings(twice)
    assert list(false_findings(WHOLE, [found])) == [f"false: held-twice: {found.message}"]
    assert list(missed_problems(twice, [])) == [
        f"two pods have {(GPU, 'g0')}: ['ml/infer', 'ml/train']"
    ]
    cut_off, _, _ = CASES["cut-off"]
    assert list(missed_problems(cut_off, [])) == ["a kubelet would reject the checkpoint"]


@settings(examples(0.5))
@given(snapshots)
def test_names_are_those_of_pods_with_exactly_these_devices(snapshot):
    for uid, name in Node(snapshot).names.items():
        mine = [
            (entry.resource_name, set((entry.device_ids or {})[0] or ()))
            for entry in checkpoint.loads(snapshot.checkpoint).entries or ()
            if entry.pod_uid == uid and entry.container_name == "main"
        ]
        (theirs,) = [
            each.containers[0].devices for each in snapshot.pods if name == f"ml/{each.name}"
        ]
        ids_of_pod = {each.device_ids[0] for each in theirs}
        assert (theirs[0].resource_name, ids_of_pod) in mine


@pytest.mark.parametrize(
    ("policy", "number", "options", "is_found"),
    [
        ("restricted", 8, {}, False),
        ("best-effort", 9, {}, True),
        ("none", 9, {}, False),
        ("restricted", 9, {"max-allowable-numa-nodes": "9"}, False),
    ],
)
def test_number_of_numa_nodes_matters_only_with_a_policy(policy, number, options, is_found):
    config = configured(topologyManagerPolicy=policy, topologyManagerPolicyOptions=options)
    snapshot = evolve(numa=nodes(number), config=config)
    assert (Kind.TOO_MANY_NUMA_NODES in [each.kind for each in findings(snapshot)]) is is_found
