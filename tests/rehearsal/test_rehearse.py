"""Rehearsals of a made-up node: outcomes of pods, orders, statements, and assumptions."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import attrs
import pytest

from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider
from devicemanager.core.topology import NumaTopology
from devicemanager.rehearsal import (
    Admit,
    Configure,
    Drain,
    Fate,
    Reboot,
    Rehearsal,
    RehearsalError,
    Restart,
    SetDevices,
    WithoutPlugin,
    rehearse,
    report,
)
from devicemanager.rehearsal.held_pods import held_pods
from devicemanager.rehearsal.orders import is_complete, orders
from devicemanager.rehearsal.result import Outcome, PodResult, Statement
from devicemanager.rehearsal.snapshot_node import SnapshotNode
from devicemanager.rehearsal.steps import Step, with_starts
from devicemanager.rehearsal.titles import title
from devicemanager.snapshot import Snapshot, layout
from devicemanager.snapshot.model import KubeletConfig, PodDirectories
from devicemanager.snapshot.node import Node
from podresources import Allocatable, ContainerDevices
from podresources import Container as ListedContainer
from podresources import Pod as ListedPod
from tests.snapshot import made_up
from tests.snapshot.made_up import (
    GPU,
    NIC,
    allocatable,
    cpu_state,
    entry,
    memory_state,
    pod,
    saved,
    without,
)

WHOLE = attrs.evolve(made_up.WHOLE, dra_state=None)
"""The node without ResourceClaims; ``test_claims`` has nodes with them."""
NOT_READY = "Allocate failed due to no healthy devices present"


def fates(result: Rehearsal) -> dict[str, set[str]]:
    return {each.name: {str(outcome.fate) for outcome in each.outcomes} for each in result.pods}


def texts(result: Rehearsal) -> list[str]:
    return [each.text for each in result.statements]


def new_pod(count: int, resource: str = GPU) -> Pod:
    requests = {ResourceName(resource): count}
    return Pod(
        PodUid("u-new"), "new", "ml", (Container(ContainerName("main"), requests, requests),)
    )


def test_restart_keeps_running_pods() -> None:
    result = rehearse(WHOLE, [Restart()])
    assert fates(result) == {"ml/infer": {"stays"}, "ml/train": {"stays"}}
    assert not result.loses_pods
    (train,) = (each for each in result.pods if each.name == "ml/train")
    assert [outcome.devices for outcome in train.outcomes] == [{GPU: ("g0", "g1")}]
    assert result.statements == ()


def test_order_decides_after_a_reboot() -> None:
    result = rehearse(WHOLE, [Reboot()])
    assert fates(result) == {name: {"stays", "rejected"} for name in ("ml/infer", "ml/train")}
    # 3! orders: the plugin is first in two of them, and all pods stay only then.
    assert (result.orders, result.bad_orders, result.all_orders) == (6, 4, True)
    assert texts(result) == [
        f"pod {name} is rejected if it is admitted before the plugin of {GPU} has registered"
        for name in ("ml/infer", "ml/train")
    ]
    assert all("verified" in each.basis for each in result.statements)


def test_plugin_that_does_not_return_loses_all_pods_of_a_reboot() -> None:
    result = rehearse(WHOLE, [WithoutPlugin(GPU), Reboot()])
    assert all(each.is_always_lost for each in result.pods)
    assert all(NOT_READY in text for text in texts(result))
    assert not rehearse(WHOLE, [WithoutPlugin(GPU), Restart()]).loses_pods


def test_device_that_is_missing_after_a_reboot_loses_its_pod() -> None:
    result = rehearse(WHOLE, [SetDevices(GPU, 2), Reboot()])
    assert fates(result)["ml/train"] == {"stays", "rejected"}
    assert fates(result)["ml/infer"] == {"rejected"}


def test_panic_of_the_kubelet_is_one_cause() -> None:
    # Policy restricted asks for hints, and the plugin's list lacks an allocated device.
    result = rehearse(WHOLE, [SetDevices(GPU, 2), Restart()])
    assert fates(result) == {name: {"stays", "rejected"} for name in ("ml/infer", "ml/train")}
    (text,) = texts(result)
    assert text.startswith(
        "the kubelet panics in 3 of 6 orders of plugins and pods, and all pods are lost: "
    )


def test_plugin_that_returns_without_a_device_is_named() -> None:
    # Before 1.34, the kubelet does not panic, and policy restricted rejects the pod.
    old = Configure(kubelet_version="1.33")
    result = rehearse(WHOLE, [SetDevices(GPU, 2), old, Restart()])
    assert fates(result) == {"ml/infer": {"stays", "rejected"}, "ml/train": {"stays"}}
    assert texts(result) == [
        f"pod ml/infer is rejected if it is admitted after the plugin of {GPU} has registered"
    ]


def test_unhealthy_device_of_the_snapshot_stays_unhealthy() -> None:
    sick = attrs.evolve(WHOLE, allocatable=allocatable("g0", "g1", "g3"))
    result = rehearse(sick, [Reboot()])
    assert fates(result) == {"ml/infer": {"rejected"}, "ml/train": {"stays", "rejected"}}
    assert fates(rehearse(sick, [Restart()])) == {"ml/infer": {"stays"}, "ml/train": {"stays"}}


def test_drained_pods_are_not_lost_and_free_their_devices() -> None:
    result = rehearse(WHOLE, [Drain(), Reboot(), Admit(new_pod(2))])
    assert fates(result) == {
        "ml/infer": {"drained"},
        "ml/train": {"drained"},
        "ml/new": {"admitted"},
    }
    assert result.moved == {
        (GPU, "g0"): ("ml/train", "ml/new"),
        (GPU, "g1"): ("ml/train", "ml/new"),
    }


def test_new_pod_is_rejected_if_it_does_not_fit() -> None:
    result = rehearse(WHOLE, [Admit(new_pod(2))])
    (new,) = (each for each in result.pods if each.uid == "u-new")
    ((outcome, orders_),) = new.outcomes.items()
    assert (outcome.fate, orders_, result.orders) == (Fate.REJECTED, 1, 1)
    assert texts(result) == [f"pod ml/new is rejected: {outcome.reason}: {outcome.message}"]
    assert result.loses_pods


def test_configuration_applies_at_the_next_start() -> None:
    wide = new_pod(2)
    free = [Drain(), SetDevices(GPU, "1@0,1@1")]
    strict = Configure(policy="single-numa-node")
    # The policy of the snapshot is restricted, under which two devices fit on two NUMA nodes.
    before: list[Step] = [*free, Admit(wide), strict, Restart()]
    assert fates(rehearse(WHOLE, before))["ml/new"] == {"admitted", "rejected"}
    after: list[Step] = [*free, strict, Restart(), Admit(wide)]
    assert fates(rehearse(WHOLE, after))["ml/new"] == {"rejected"}


def test_last_change_without_a_start_restarts_the_kubelet() -> None:
    steps = [Restart(), Configure(policy="none"), Configure(kubelet_version="1.38"), Drain()]
    result = rehearse(WHOLE, steps)
    assert result.steps == (
        "restart the kubelet",
        "configure the kubelet: policy none",
        "configure the kubelet: version 1.38",
        "restart the kubelet",
        "drain the node",
    )
    assert any("1.38" in text for text in result.assumptions)


def test_kubelet_that_does_not_start_loses_all_pods() -> None:
    result = rehearse(WHOLE, [Configure(options={"max-allowable-numa-nodes": "x"})])
    assert all(each.is_always_lost for each in result.pods)
    (text,) = texts(result)
    assert text.startswith("the kubelet does not start: ")


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"cpu_state": b"{"}, "cpu_manager_state cannot be read: "),
        ({"cpu_state": cpu_state("static", "0-7", checksum=7)}, "cpu_manager_state: its checksum"),
        ({"cpu_state": None, "memory_state": b"x"}, "memory_manager_state cannot be read: "),
        ({"cpu_state": None, "memory_state": memory_state("None")}, "memory_manager_state: it was"),
    ],
)
def test_kubelet_does_not_start_with_a_bad_state_file(files: dict[str, bytes], error: str) -> None:
    config = KubeletConfig("c", {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"})
    result = rehearse(attrs.evolve(WHOLE, config=config, **files), [Restart()])
    assert all(each.is_always_lost for each in result.pods)
    assert not result.kubelet_starts
    [statement] = result.statements
    assert statement.text.startswith(f"the kubelet does not start: {error}")
    assert statement.basis == "1.37, based only on its source code"
    assert "move the file away" in statement.advice
    # A running kubelet does not read the file.
    assert rehearse(attrs.evolve(WHOLE, config=config, **files), [Drain()]).kubelet_starts


def test_damaged_checkpoint_frees_all_devices() -> None:
    damaged = attrs.evolve(WHOLE, checkpoint=(WHOLE.checkpoint or b"").replace(b"g0", b"g9"))
    result = rehearse(damaged, [Restart()])
    assert texts(result)[0].startswith("the kubelet cannot read the checkpoint")
    assert "checkpoint repair" in result.statements[0].advice
    assert texts(result)[1:] == [
        f"pod {name} stays, but no devices of {GPU} are allocated to it"
        for name in ("ml/infer", "ml/train")
    ]
    assert result.loses_pods
    assert report.summary(result) == (
        "2 pods, none would be lost, but 2 can be without their devices; orders that lose pods or "
        "devices: 6 of 6 possible"
    )
    assert next(report.rows(result))[2] == "vendor.com/gpu: g2 -> none"


def test_pod_that_keeps_only_some_resources_is_named() -> None:
    shown = ContainerDevices(GPU, ("g0",), (0,)), ContainerDevices(NIC, ("n0",), (0,))
    node = attrs.evolve(
        WHOLE,
        checkpoint=b"{",
        pods=(ListedPod("train", "ml", (ListedContainer("main", shown),)),),
        allocatable=Allocatable(shown),
        config=KubeletConfig("c", {"topologyManagerPolicy": "none"}),
    )
    result = rehearse(node, [WithoutPlugin(NIC), Reboot()])
    (pod_,) = result.pods
    assert pod_.uid == "u-train"
    assert {(*outcome.devices,) for outcome in pod_.outcomes} == {(), (GPU,)}
    assert texts(result)[1:] == [
        f"pod ml/train stays, but no devices of {GPU} are allocated to it in 3 of 6 orders of "
        "plugins and pods",
        f"pod ml/train stays, but no devices of {NIC} are allocated to it",
    ]
    assert (result.loses_pods, result.bad_orders) == (True, 6)


def test_missing_checkpoint_frees_all_devices() -> None:
    node = without(WHOLE, layout.CHECKPOINT, "no such file", absent=True)
    result = rehearse(node, [Restart()])
    assert (
        texts(result)[0] == "there is no checkpoint, and the kubelet starts without any allocation"
    )
    assert "restart a plugin's pod" in result.statements[0].advice
    assert result.loses_pods
    # Without permission to read the file, nothing is known about it.
    assert not rehearse(without(WHOLE, layout.CHECKPOINT, "denied"), [Restart()]).loses_pods


def test_new_pod_is_admitted_again_by_a_later_start() -> None:
    empty = attrs.evolve(WHOLE, pods=(), checkpoint=saved(), directories=PodDirectories(()))
    result = rehearse(empty, [Admit(new_pod(1)), Reboot()])
    assert fates(result) == {"ml/new": {"admitted", "rejected"}}
    assert texts(result) == [
        f"pod ml/new is rejected if it is admitted before the plugin of {GPU} has registered"
    ]


def test_new_pod_with_an_unknown_resource_is_without_devices() -> None:
    result = rehearse(WHOLE, [Admit(new_pod(1, NIC))])
    assert texts(result) == [f"pod ml/new is admitted, but no devices of {NIC} are allocated to it"]
    assert result.loses_pods


def test_version_without_a_comparison_is_named_as_read() -> None:
    result = rehearse(WHOLE, [Configure(kubelet_version="1.38"), Reboot()])
    assert {each.basis for each in result.statements} == {"1.38, based only on its source code"}


def test_missing_parts_are_assumptions() -> None:
    blind = without(WHOLE, layout.NUMA, "permission denied")
    assert any("permission denied" in text for text in rehearse(blind, [Restart()]).assumptions)


@pytest.mark.parametrize(
    ("missing", "note"),
    [
        ({"checkpoint": None}, "the checkpoint could not be read: allocated devices are taken"),
        ({"checkpoint": b"{"}, "the checkpoint is damaged: allocated devices are taken from Pod"),
        ({"checkpoint": b"{", "pods": None}, "the checkpoint is damaged: only its readable part"),
        (
            {"checkpoint": None, "pods": None},
            "allocated devices are unknown: all devices count as free",
        ),
    ],
)
def test_source_of_allocated_devices_is_an_assumption(missing: dict[str, Any], note: str) -> None:
    assumed = rehearse(attrs.evolve(WHOLE, **missing), [Restart()]).assumptions
    assert [each for each in assumed if each.startswith(note)]


def test_without_numa_nodes_those_of_the_devices_are_used() -> None:
    node = SnapshotNode.of(Node(without(WHOLE, layout.NUMA, "permission denied")))
    assert node.machine(node.inventory()) == (NumaTopology.of([0, 1]), ())


def test_unknown_resource_is_one_line() -> None:
    with pytest.raises(RehearsalError, match=r"^unknown resource vendor\.com/nic: the node has v"):
        rehearse(WHOLE, [WithoutPlugin(NIC)])


def test_exclusive_cpus_of_pods_are_kept() -> None:
    config = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}
    cpus = cpu_state("static", "0,3-7", entries={"u-train": {"main": "1-2"}}, checksum=0)
    node = attrs.evolve(WHOLE, cpu_state=cpus, config=KubeletConfig("c", config))
    request = {ResourceName("cpu"): 5000, ResourceName("memory"): 1}
    guaranteed = Pod(
        PodUid("u-new"), "new", "ml", (Container(ContainerName("main"), request, request),)
    )
    # Two of eight CPUs are exclusive; five more do not fit on one NUMA node of four.
    assert fates(rehearse(node, [Restart(), Admit(guaranteed)]))["ml/new"] == {"rejected"}
    assert fates(rehearse(node, [Restart()]))["ml/train"] == {"stays"}
    [train] = [each for each in held_pods(SnapshotNode.of(Node(node))) if each.name == "ml/train"]
    assert train.pod.containers[0].requests[ResourceName("cpu")] == 2000


def test_cpus_and_memory_are_named_as_only_read() -> None:
    def said(settings: dict[str, object]) -> list[str]:
        node = attrs.evolve(WHOLE, config=KubeletConfig("c", settings))
        return [each for each in rehearse(node, [Restart()]).assumptions if "CPU manager" in each]

    read = (
        "exclusive CPUs and memory follow the source of the kubelet's CPU manager and memory "
        "manager; they were not compared with a real kubelet"
    )
    assert said({}) == []
    assert said({"memoryManagerPolicy": "Static"}) == [read]
    options = {"full-pcpus-only": True}
    assert said({"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": options}) == [
        read,
        "CPU manager policy options are ignored: full-pcpus-only",
    ]
    # A prediction about a pod with exclusive CPUs also depends on them.
    cpus = cpu_state("static", "0,3-7", entries={"u-train": {"main": "1-2"}}, checksum=0)
    node = attrs.evolve(
        WHOLE, cpu_state=cpus, config=KubeletConfig("c", {"cpuManagerPolicy": "static"})
    )
    said_of = {each.text.split()[1]: each.basis for each in rehearse(node, [Reboot()]).statements}
    assert said_of["ml/train"].endswith("of 1.37.2; CPUs and memory based only on the source code")
    assert said_of["ml/infer"].endswith("of 1.37.2")


def test_container_that_pod_resources_lacks_is_an_init_container() -> None:
    entries = entry("u-train", "g0", container="setup"), entry("u-train", "g0", "g1")
    node = attrs.evolve(WHOLE, checkpoint=saved(*entries, entry("u-infer", "g2")))
    # As an app container, it would need a third device.
    assert fates(rehearse(node, [Reboot()]))["ml/train"] == {"stays", "rejected"}


def many(count: int) -> Snapshot:
    ids = [f"g{number}" for number in range(count)]
    return attrs.evolve(
        WHOLE,
        pods=tuple(pod(f"p{id_}", id_) for id_ in ids),
        allocatable=allocatable(*ids),
        checkpoint=saved(*(entry(f"u-{id_}", id_) for id_ in ids), registered={GPU: tuple(ids)}),
        directories=PodDirectories(tuple(f"u-{id_}" for id_ in ids)),
    )


def test_many_orders_are_sampled() -> None:
    first, second, other = (
        rehearse(many(8), [Reboot()], repeat=20, seed=seed) for seed in (1, 1, 2)
    )
    assert (first.orders, first.all_orders) == (20, False)
    assert first == second
    assert first != other
    # The extremes are in each sample: all plugins first, and all pods first.
    assert all(fate == {"stays", "rejected"} for fate in fates(first).values())


def test_orders_are_all_permutations_or_a_sample() -> None:
    assert len(orders(["a", "b"], ["p"], 10, 0)) == 6
    assert orders([], ["p", "q"], 10, 0) == [("p", "q")]
    sample = orders(["a"], [f"p{n}" for n in range(9)], 5, 0)
    assert len(sample) == 5
    assert len(orders(["a"], [f"p{n}" for n in range(9)], 1, 0)) == 2
    assert sample[0][0] == sample[1][-1] == "a"


@pytest.mark.parametrize(
    ("plugins", "pods", "number"),
    [(0, 9, 1), (9, 0, 1), (1, 1, 2), (2, 4, 720), (5, 1, 720), (6, 1, 12), (1, 6, 12)],
)
def test_up_to_six_plugins_and_pods_get_all_orders(plugins: int, pods: int, number: int) -> None:
    plugin_names, pod_names = list("abcdefghi"[:plugins]), list("123456789"[:pods])
    found = orders(plugin_names, pod_names, 12, 0)
    assert len(found) == number
    assert all(sorted(order) == sorted([*plugin_names, *pod_names]) for order in found)
    assert is_complete(plugin_names, pod_names) is (number != 12)


def test_limit_of_all_orders_can_be_changed() -> None:
    for permuted, number in ((2, 4), (3, 6)):
        assert len(orders(["a"], ["p", "q"], 4, 0, permuted)) == number
        assert is_complete(["a"], ["p", "q"], permuted) is (number == 6)


def test_json_has_all_outcomes() -> None:
    result = rehearse(WHOLE, [Reboot()])
    data = json.loads(json.dumps(report.as_data(result)))
    assert (data["node"], data["steps"]) == (result.node, list(result.steps))
    assert (data["kubelet_starts"], data["loses_pods"]) == (True, True)
    assert data["assumptions"] == list(result.assumptions)
    assert data["orders"] == {"tried": 6, "bad": 4, "complete": True}
    (infer, _) = data["pods"]
    assert infer["devices"] == {GPU: ["g2"]}
    assert {each["outcome"]: each["orders"] for each in infer["outcomes"]} == {
        "stays": 3,
        "rejected": 3,
    }


STAYS = Outcome(Fate.STAYS, devices={GPU: ("g0", "g1")})
LOST = Outcome(Fate.REJECTED, "Reason", "message")
BARE = Outcome(Fate.STAYS, missing=(GPU,))


def outcomes(*each: Outcome, uid: str = "u-a", **fields: Any) -> PodResult:
    """A pod with these outcomes, each in one order."""
    held: dict[str, Any] = {"before": {GPU: ("g0", "g1")}, **fields}
    return PodResult(uid, f"ml/{uid}", outcomes=Counter(each), **held)


def result_of(*pods: PodResult, **fields: Any) -> Rehearsal:
    orders_ = max([sum(each.outcomes.values()) for each in pods], default=1)
    values: dict[str, Any] = {
        "node": "worker-1",
        "steps": ("reboot the node",),
        "orders": orders_,
        "bad_orders": 0,
        "all_orders": True,
        "kubelet_starts": True,
        "statements": (),
        "assumptions": ("a", "b"),
        **fields,
    }
    return Rehearsal(pods=pods, **values)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (result_of(outcomes(STAYS)), "1 pod, none would be lost"),
        (result_of(outcomes(LOST)), "1 of 1 pod would be lost"),
        (
            result_of(outcomes(LOST), outcomes(BARE), bad_orders=1),
            "1 of 2 pods would be lost, and 1 more would be without their devices",
        ),
        (
            result_of(outcomes(BARE), bad_orders=1),
            "1 pod, none would be lost, but 1 would be without their devices",
        ),
        (
            result_of(outcomes(STAYS, LOST), outcomes(LOST, LOST), bad_orders=2),
            "2 of 2 pods can be lost; pods that are lost in every order: 1; orders that lose pods "
            "or devices: 2 of 2 possible",
        ),
        (
            result_of(outcomes(STAYS, LOST), outcomes(BARE, STAYS), bad_orders=1, all_orders=False),
            "1 of 2 pods can be lost, and 1 more can be without their devices; pods that are lost "
            "in every order: 0; orders that lose pods or devices: 1 of 2 sampled",
        ),
        # A pod that can be lost is not also counted as without devices.
        (
            result_of(outcomes(BARE, LOST), bad_orders=2),
            "1 of 1 pod can be lost; pods that are lost in every order: 0; orders that lose pods "
            "or devices: 2 of 2 possible",
        ),
        (result_of(outcomes(STAYS, STAYS)), "1 pod, none would be lost"),
        (
            result_of(outcomes(LOST), kubelet_starts=False, bad_orders=1),
            "the kubelet does not start: 1 pod would be lost",
        ),
    ],
)
def test_summary_names_what_is_lost(result: Rehearsal, text: str) -> None:
    assert report.summary(result) == text


@pytest.mark.parametrize(
    ("pod_", "row"),
    [
        (outcomes(STAYS), ("stays", f"{GPU}: g0,g1")),
        (outcomes(LOST), ("rejected: Reason: message", f"{GPU}: g0,g1")),
        (outcomes(BARE), ("stays", f"{GPU}: g0,g1 -> none")),
        (outcomes(Outcome(Fate.DRAINED)), ("drained", f"{GPU}: g0,g1")),
        (
            outcomes(Outcome(Fate.STAYS, devices={GPU: ("g2",), NIC: ("n0",)})),
            ("stays", f"{GPU}: g0,g1 -> {GPU}: g2; {NIC}: n0"),
        ),
        (
            outcomes(Outcome(Fate.ADMITTED, devices={GPU: ("g2",)}), before={}),
            ("admitted", f"{GPU}: g2"),
        ),
        (outcomes(Outcome(Fate.STAYS), before={}, claims={"d": ("p/x",)}), ("stays", "d: p/x")),
        (outcomes(STAYS, claims={"d": ("p/x",)}), ("stays", f"{GPU}: g0,g1; d: p/x")),
        (outcomes(Outcome(Fate.STAYS), before={}), ("stays", "-")),
    ],
)
def test_row_of_an_outcome_has_the_devices_before_and_after(
    pod_: PodResult, row: tuple[str, str]
) -> None:
    assert list(report.rows(result_of(pod_))) == [("ml/u-a", *row, "1 of 1")]


def test_markdown_and_json_have_all_parts() -> None:
    moved = Outcome(Fate.STAYS, devices={GPU: ("g2",)}, missing=(NIC,))
    result = result_of(
        outcomes(Outcome(Fate.DRAINED), claims={"d": ("p/x",)}),
        outcomes(moved, uid="u-b", before={GPU: ("g3",)}),
        outcomes(Outcome(Fate.ADMITTED, devices={GPU: ("g1",)}), uid="u-c", before={}),
        steps=("drain the node", "reboot the node"),
        statements=(Statement("text", "basis", "advice"),),
        bad_orders=1,
    )
    table = [f"| {' | '.join((*row, ''))}".rstrip() for row in report.rows(result)]
    assert list(report.markdown(result)) == [
        "## Rehearsal for node worker-1",
        "",
        "1. drain the node",
        "2. reboot the node",
        "",
        f"**Result:** {report.summary(result)}.",
        "",
        "| POD | OUTCOME | DEVICES | ORDERS |",
        "| --- | --- | --- | --- |",
        *table,
        "",
        "**What to do first**",
        "",
        "- text (basis): advice",
        "",
        "**Assumptions**",
        "",
        "- a",
        "- b",
    ]
    assert "**What to do first**" not in list(report.markdown(result_of(outcomes(STAYS))))
    data = report.as_data(result)
    assert data["moved_devices"] == [
        {"resource": GPU, "device": "g1", "from": "ml/u-a", "to": "ml/u-c"}
    ]
    assert data["statements"] == [{"text": "text", "basis": "basis", "advice": "advice"}]
    assert data["pods"][:2] == [
        {
            "uid": "u-a",
            "name": "ml/u-a",
            "devices": {GPU: ["g0", "g1"]},
            "claims": [{"driver": "d", "devices": ["p/x"]}],
            "outcomes": [
                {
                    "outcome": "drained",
                    "reason": "",
                    "message": "",
                    "devices": {},
                    "missing": [],
                    "orders": 1,
                }
            ],
        },
        {
            "uid": "u-b",
            "name": "ml/u-b",
            "devices": {GPU: ["g3"]},
            "claims": [],
            "outcomes": [
                {
                    "outcome": "stays",
                    "reason": "",
                    "message": "",
                    "devices": {GPU: ["g2"]},
                    "missing": [NIC],
                    "orders": 1,
                }
            ],
        },
    ]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Restart(), "restart the kubelet"),
        (Reboot(), "reboot the node"),
        (Drain(), "drain the node"),
        (WithoutPlugin(GPU), f"stop the plugin of {GPU}"),
        (SetDevices(GPU, 2), f"set the devices of {GPU} to 2"),
        (SetDevices(GPU, "2@0"), f"set the devices of {GPU} to 2@0"),
        (Admit(new_pod(1)), "admit pod ml/new"),
        (
            Configure("1.34", "restricted", "pod", {"max-allowable-numa-nodes": "9"}),
            "configure the kubelet: version 1.34, policy restricted, scope pod, "
            "max-allowable-numa-nodes 9",
        ),
        (Configure(scope="pod"), "configure the kubelet: scope pod"),
    ],
)
def test_each_step_has_a_title(step: Step, text: str) -> None:
    assert title(step) == text


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], []),
        ([Drain()], [Drain()]),
        ([Configure("1.34")], [Configure("1.34"), Restart()]),
        ([Configure("1.34"), Drain()], [Configure("1.34"), Restart(), Drain()]),
        ([Configure("1.34"), Reboot()], [Configure("1.34"), Reboot()]),
        ([Restart(), Configure("1.34")], [Restart(), Configure("1.34"), Restart()]),
        (
            [Configure("1.34"), Restart(), Configure("1.35"), Drain()],
            [Configure("1.34"), Restart(), Configure("1.35"), Restart(), Drain()],
        ),
    ],
)
def test_start_is_added_directly_after_the_last_change(
    steps: list[Step], expected: list[Step]
) -> None:
    assert list(with_starts(steps)) == expected


def test_later_change_replaces_only_what_it_names() -> None:
    first = Configure("1.34", "restricted", "pod", {"a": "1", "b": "2"})
    assert first.then(Configure()) == first
    later = Configure("1.35", "none", "container", {"b": "3"})
    assert first.then(later) == attrs.evolve(later, options={"a": "1", "b": "3"})
    assert Configure().then(first) == first


@pytest.mark.parametrize(
    ("fate", "missing", "is_lost", "is_bad"),
    [
        (Fate.STAYS, (), False, False),
        (Fate.ADMITTED, (), False, False),
        (Fate.DRAINED, (), False, False),
        (Fate.REJECTED, (), True, True),
        (Fate.WAITS, (), True, True),
        (Fate.STAYS, (GPU,), False, True),
    ],
)
def test_pod_is_bad_if_it_is_lost_or_lacks_devices(
    fate: Fate, missing: tuple[str, ...], is_lost: bool, is_bad: bool
) -> None:
    outcome = Outcome(fate, missing=missing)
    assert (outcome.is_lost, outcome.is_bad) == (is_lost, is_bad)
    assert result_of(outcomes(outcome)).loses_pods is is_bad
    assert result_of(outcomes(outcome), kubelet_starts=False).loses_pods


DRAIN = "drain the node first, or delete the pod and let its controller create it elsewhere"
WAIT = (
    f"start the plugin of {GPU} before the kubelet admits pods, or drain the node first; a "
    "rejected pod stays Failed (k/k#125579)"
)


@pytest.mark.parametrize(
    ("steps", "advice"),
    [
        ([WithoutPlugin(GPU), Reboot()], DRAIN),
        ([Reboot()], WAIT),
        ([SetDevices(GPU, 2), Restart()], DRAIN),
        ([SetDevices(GPU, 2), Configure("1.33"), Restart()], DRAIN),
        (
            [Admit(new_pod(2))],
            "free what the pod needs first, or run the pod on another node",
        ),
        (
            [Admit(new_pod(1, NIC))],
            f"start the plugin of {NIC} on the node first, or correct the resource's name",
        ),
        (
            [Configure(options={"max-allowable-numa-nodes": "x"})],
            "keep the present configuration, or use a value that this version accepts",
        ),
    ],
)
def test_advice_fits_the_cause(steps: list[Step], advice: str) -> None:
    assert {each.advice for each in rehearse(WHOLE, steps).statements} == {advice}


def test_advice_about_a_damaged_checkpoint_is_not_about_plugins() -> None:
    result = rehearse(attrs.evolve(WHOLE, checkpoint=b"{"), [Restart()])
    assert {each.advice for each in result.statements[1:]} == {
        "let the kubelet write its checkpoint first, or repair it"
    }
    steps = [Restart(), Admit(new_pod(1, NIC))]
    result = rehearse(attrs.evolve(WHOLE, checkpoint=b"{"), steps)
    advice = {each.text.split()[1]: each.advice for each in result.statements[1:]}
    assert advice["ml/train"] == "let the kubelet write its checkpoint first, or repair it"
    assert advice["ml/new"].startswith(f"start the plugin of {NIC} on the node first")


def with_static_cpus() -> SnapshotNode:
    cpus = cpu_state(
        "static",
        "0,4-7",
        entries={"u-train": {"main": "1-2"}, "u-cpus": {"main": "3"}},
        checksum=0,
    )
    config = KubeletConfig("c", {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
    return SnapshotNode.of(Node(attrs.evolve(WHOLE, cpu_state=cpus, config=config)))


def test_cpus_of_pods_that_are_left_out_are_free() -> None:
    def used(node: SnapshotNode) -> tuple[set[str], int]:
        _, (cpus,) = node.machine(node.inventory()) or (None, ())
        assert isinstance(cpus, CpuProvider)
        exclusive = {
            uid for uid in ("u-train", "u-cpus") if cpus.pod_allocated(PodUid(uid)).cpu_ids
        }
        return exclusive, cpus.free_cpus.bit_count()

    node = with_static_cpus()
    assert used(node) == ({"u-train", "u-cpus"}, 4)
    assert used(node.changed([], ["ml/train"])) == ({"u-cpus"}, 6)
    assert used(node.changed([], ["u-cpus"])) == ({"u-train"}, 5)
    assert set(node.changed([], ["u-cpus"]).exclusive_cpus) == {"u-train"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ml/trian", "unknown pod ml/trian: did you mean ml/train?"),
        ("x", "unknown pod x: use one of ml/infer, ml/train, u-cpus"),
        ("", "unknown pod : use one of ml/infer, ml/train, u-cpus"),
    ],
)
def test_unknown_pod_is_an_error_with_a_hint(name: str, text: str) -> None:
    node = with_static_cpus()
    with pytest.raises(RehearsalError) as raised:
        node.changed([], [name])
    assert str(raised.value) == text


def test_unknown_pod_on_an_empty_node_has_another_hint() -> None:
    empty = SnapshotNode.of(Node(attrs.evolve(WHOLE, checkpoint=saved(), pods=())))
    with pytest.raises(RehearsalError, match=r"^unknown pod x: no pod has devices$"):
        empty.changed([], ["x"])


@pytest.mark.parametrize("name", ["train", "ml/train", "u-train"])
def test_pod_is_left_out_by_name_or_uid(name: str) -> None:
    node = SnapshotNode.of(Node(WHOLE)).changed([], [name])
    assert [each.pod_uid for each in node.saved.entries or ()] == ["u-infer"]
    assert node.dropped == {"u-train"}


def test_changes_of_the_topology_manager_are_kept() -> None:
    node = SnapshotNode.of(Node(WHOLE))
    changes = [("policy", "none"), ("scope", "pod"), ("a", "1"), ("b", "2")]
    aligned = node.changed(changes, []).aligned
    assert (aligned.policy, aligned.scope) == ("none", "pod")
    assert aligned.options == {**node.aligned.options, "a": "1", "b": "2"}


def test_pods_that_only_pod_resources_shows_have_their_name() -> None:
    listed = (pod("other", "g3"), *(WHOLE.pods or ()))
    node = SnapshotNode.of(Node(attrs.evolve(WHOLE, checkpoint=None, pods=listed)))
    assert [each.name for each in held_pods(node)] == ["ml/infer", "ml/other", "ml/train"]
    assert {each.name: each.pod.uid for each in held_pods(node)}["ml/other"] == "ml/other"
    assert node.names["ml/other"] == "ml/other"


def test_markdown_escapes_names() -> None:
    named = attrs.evolve(WHOLE, node="a|b\nc")
    lines = list(report.markdown(rehearse(named, [Reboot()])))
    assert lines[0] == "## Rehearsal for node a\\|b c"
    assert "| POD | OUTCOME | DEVICES | ORDERS |" in lines


def static_memory(size: int, *nodes: int) -> Snapshot:
    """A node with 8 GiB on each NUMA node, and a pod with exclusive memory."""
    return attrs.evolve(
        WHOLE,
        memory_state=memory_state(
            "Static",
            machineState={
                str(number): {
                    "numberOfAssignments": 0,
                    "memoryMap": {
                        "memory": {
                            "total": 8 << 30,
                            "systemReserved": 0,
                            "allocatable": 8 << 30,
                            "reserved": 0,
                            "free": 8 << 30,
                        }
                    },
                    "cells": [number],
                }
                for number in (0, 1)
            },
            entries={
                "u-train": {"main": [{"numaAffinity": nodes, "type": "memory", "size": size}]}
            },
        ),
        config=KubeletConfig("c", {"memoryManagerPolicy": "Static"}),
    )


def test_memory_of_pods_is_kept() -> None:
    result = rehearse(static_memory(1 << 30, 0), [Restart()])
    assert fates(result)["ml/train"] == {"stays"}


def test_memory_fills_one_numa_node_after_another_and_is_free_after_the_pod() -> None:
    node = SnapshotNode.of(Node(static_memory(9 << 30, 0, 1)))
    _, (memory,) = node.machine(node.inventory()) or (None, ())
    assert isinstance(memory, MemoryProvider)
    assert memory.free() == {("memory", 0): 0, ("memory", 1): 7 << 30}
    ended = memory.release(PodUid("u-train"))
    assert ended.free() == {("memory", 0): 8 << 30, ("memory", 1): 8 << 30}
