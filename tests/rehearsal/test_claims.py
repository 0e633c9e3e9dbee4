"""Rehearsals of a node whose pods have ResourceClaims."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.dra.errors import ClaimFetchError
from devicemanager.rehearsal import (
    Configure,
    Drain,
    Reboot,
    Rehearsal,
    Restart,
    WithoutPlugin,
    rehearse,
    report,
)
from devicemanager.rehearsal.held_claims import HeldClaims
from devicemanager.rehearsal.snapshot_node import SnapshotNode
from devicemanager.rehearsal.steps import Step
from devicemanager.snapshot import Snapshot
from devicemanager.snapshot.model import KubeletConfig, PodDirectories
from devicemanager.snapshot.node import Node
from tests.snapshot.made_up import DRIVER, WHOLE, claim, claims

MISSING = f"DRA driver {DRIVER} is not registered"


def node(*held: str, **changes: object) -> Snapshot:
    """A node without plugins, with a pod for each of these claims."""
    state = claims(*(claim(name, f"u-{name}", device=f"gpu-{name}") for name in held))
    uids = tuple(f"u-{name}" for name in held)
    directories = PodDirectories(uids)
    empty = attrs.evolve(WHOLE, checkpoint=None, pods=(), allocatable=None, dra_state=state)
    return attrs.evolve(empty, directories=directories, **changes)


def fates(result: Rehearsal) -> dict[str, str]:
    return {each.name: next(iter(each.outcomes)).fate for each in result.pods}


def texts(result: Rehearsal) -> list[str]:
    return [each.text for each in result.statements]


def done(*steps: Step, snapshot: Snapshot | None = None) -> Rehearsal:
    return rehearse(snapshot or node("a", "b"), steps)


def test_restart_and_upgrade_keep_pods_with_claims() -> None:
    for version in ("1.34", "1.36", "1.37"):
        result = done(Configure(kubelet_version=version), Restart())
        assert fates(result) == {"u-a": "stays", "u-b": "stays"}
        assert result.statements == ()
    assert result.pods[0].claims == {DRIVER: ("worker-1/gpu-a",)}
    data = report.as_data(result)["pods"][0]["claims"]
    assert data == [{"driver": DRIVER, "devices": ["worker-1/gpu-a"]}]


def test_reboot_prepares_claims_again_when_their_driver_has_registered() -> None:
    result = done(Reboot())
    assert fates(result) == {"u-a": "stays", "u-b": "stays"}
    assert not result.loses_pods
    [statement] = result.statements
    text = f"driver {DRIVER} prepares a, b again: u-a, u-b wait until it has registered"
    assert statement.text == text
    assert statement.basis == "1.37, DRA compared with 1.37.2"


def test_pods_wait_after_a_reboot_without_their_driver() -> None:
    result = done(WithoutPlugin(DRIVER), Reboot())
    assert result.loses_pods
    assert fates(result) == {"u-a": "waits", "u-b": "waits"}
    failed = (
        f"FailedPrepareDynamicResources: Failed to prepare dynamic resources: "
        f"prepare dynamic resources: {MISSING}"
    )
    assert texts(result) == [f"pod {each} waits: {failed}" for each in ("u-a", "u-b")]
    assert "waits: FailedPrepare" in next(report.rows(result))[1]
    old = done(WithoutPlugin(DRIVER), Configure(kubelet_version="1.34"), Reboot())
    assert MISSING in texts(old)[0]


def test_restart_without_the_driver_keeps_running_pods() -> None:
    assert not done(WithoutPlugin(DRIVER), Restart()).loses_pods


def test_drain_without_the_driver_leaves_pods_terminating() -> None:
    assert fates(done(Drain())) == {"u-a": "drained", "u-b": "drained"}
    result = done(WithoutPlugin(DRIVER), Drain())
    assert fates(result) == {"u-a": "waits", "u-b": "waits"}
    (outcome,) = result.pods[0].outcomes
    assert outcome.reason == "Terminating"
    assert outcome.message == f"unprepare dynamic resources: {MISSING}"
    assert texts(result)[0] == f"pod u-a waits: Terminating: unprepare dynamic resources: {MISSING}"


def test_kubelet_without_dra_gives_no_devices() -> None:
    # In 1.33, the feature gate is off by default.
    result = done(Configure(kubelet_version="1.33"), Reboot())
    assert fates(result) == {"u-a": "stays", "u-b": "stays"}
    assert texts(result) == [
        "the kubelet prepares no ResourceClaims: u-a, u-b get no devices of their claims at their "
        "next start"
    ]
    assert result.loses_pods
    # Drained pods do not start again.
    assert not done(Drain(), Configure(kubelet_version="1.33")).loses_pods


def test_feature_gates_of_the_node_are_used() -> None:
    config = KubeletConfig("c", {"featureGates": {"DynamicResourceAllocation": True}})
    result = done(Configure(kubelet_version="1.33"), Reboot(), snapshot=node("a", config=config))
    assert texts(result) == [f"driver {DRIVER} prepares a again: u-a wait until it has registered"]
    flag = KubeletConfig("c", {}, {"feature-gates": "DynamicResourceAllocation=false"})
    result = done(Configure(kubelet_version="1.35"), snapshot=node("a", config=flag))
    assert result.loses_pods
    assert "the kubelet does not start: " in texts(result)[0]
    assert "DynamicResourceAllocation=False: it is locked to True" in texts(result)[0]


def test_kubelet_does_not_start_with_a_damaged_state_file() -> None:
    damaged = attrs.evolve(node("a"), dra_state=(node("a").dra_state or b"")[:-9] + b"1}")
    result = done(Restart(), snapshot=damaged)
    assert result.loses_pods
    assert "the kubelet does not start: create ResourceClaim cache: " in texts(result)[0]
    [statement] = result.statements
    assert statement.basis == "1.37, DRA compared with 1.37.2"
    assert statement.advice == "repair the file first: devicemanager checkpoint repair"
    # A kubelet without DRA does not read the file.
    old = done(Configure(kubelet_version="1.31"), Restart(), snapshot=damaged)
    assert old.kubelet_starts


def test_start_fails_without_a_readable_pod_too() -> None:
    for text in (b"", b"{", b"[]", b'{"data": "x"}'):
        result = done(Restart(), snapshot=attrs.evolve(node(), dra_state=text))
        assert result.pods == ()
        assert (result.kubelet_starts, result.loses_pods) == (False, True), text
        assert (result.orders, result.bad_orders) == (1, 1)
        assert report.summary(result) == "the kubelet does not start: 0 pods would be lost"
        assert report.as_data(result)["kubelet_starts"] is False


def test_claims_of_pods_that_are_gone_hold_nothing() -> None:
    gone = attrs.evolve(node("a", "b"), directories=PodDirectories(("u-a",)))
    assert fates(done(Reboot(), snapshot=gone)) == {"u-a": "stays"}


def test_devices_of_prepared_claims_are_known_by_driver() -> None:
    held = SnapshotNode.of(Node(node("a", "b"))).claims
    assert HeldClaims(held).drivers == {DRIVER: {"gpu-a", "gpu-b"}}


def test_claims_have_the_form_of_the_api_server() -> None:
    unprepared, shared = claim("u", "u-a"), claim("s", "u-b", "u-a", device="gpu-0")
    held = HeldClaims((unprepared, shared))
    # Two pods can have the same device, because the file does not show whether they may.
    result = {"driver": DRIVER, "adminAccess": True, "skipNodeOperations": []}
    for name, place, pods in (
        ("u", {"pool": "", "device": ""}, ["u-a"]),
        ("s", {"pool": "worker-1", "device": "gpu-0"}, ["u-a", "u-b"]),
    ):
        assert held.fetch("ml", name) == {
            "metadata": {"namespace": "ml", "name": name, "uid": f"uid-{name}"},
            "status": {
                "allocation": {"devices": {"results": [{**result, **place}]}},
                "reservedFor": [{"resource": "pods", "uid": uid} for uid in pods],
            },
        }
    with pytest.raises(ClaimFetchError, match="not found"):
        held.fetch("other", "s")
