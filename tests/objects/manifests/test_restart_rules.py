"""Restart policies and rules of containers."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from devicemanager import ManualClock, Settings
from devicemanager.core.errors import RpcError
from devicemanager.core.pods import RestartPolicy, RestartRule
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.objects.manifests import ManifestError, parse
from tests.helpers import container, devices, pod
from tests.node import Node

RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}


def manifest(*, pod: str = "Never", **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "i", **container}
    spec = {"restartPolicy": pod, "containers": [main]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("container", "code", "restarts"),
    [
        ({}, 42, False),
        ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, 42, True),
        ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, 1, False),
        ({"restartPolicy": "OnFailure"}, 1, True),
        ({"restartPolicy": "OnFailure"}, 0, False),
        ({"restartPolicy": "Always"}, 0, True),
    ],
)
def test_container_policy_and_rules_precede_the_policy_of_the_pod(
    container: dict[str, Any], code: int, restarts: bool
) -> None:
    pod = parse(manifest(**container))
    assert pod.restarts(pod.containers[0], code) is restarts


def test_rule_can_name_the_codes_that_do_not_restart() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 3]}}
    (main,) = parse(manifest(restartPolicy="Never", restartPolicyRules=[rule])).containers
    assert main.restart_policy is RestartPolicy.NEVER
    assert main.restart_rules == (RestartRule(frozenset({0, 3}), is_in=False),)
    assert [main.restart_rules[0].matches(code) for code in (0, 1, 3)] == [False, True, False]


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (3, ": must be a list, not the number 3"),
        ([3], "[0]: must be a mapping, not the number 3"),
        (
            [{**RULE, "action": "Stop"}],
            '[0].action: Unsupported value: "Stop": supported values: "Restart", '
            '"RestartAllContainers"',
        ),
        ([{"action": "Restart"}], "[0].exitCodes: Required value"),
        (
            [RULE, {"action": "Restart", "exitCodes": {"operator": "Is", "values": [1]}}],
            '[1].exitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn"',
        ),
        *(
            (
                [{"action": "Restart", "exitCodes": {"operator": "In", "values": values}}],
                f"[0].exitCodes.values: must be a list of numbers, not {what}",
            )
            for values, what in ((["1"], "a list"), ([True], "a list"), ({"a": 1}, "a mapping"))
        ),
    ],
)
def test_invalid_rule_is_one_clear_line(rules: object, text: str) -> None:
    with pytest.raises(ManifestError) as raised:
        parse(manifest(restartPolicy="Never", restartPolicyRules=rules))
    assert str(raised.value) == f"spec.containers[0].restartPolicyRules{text}"


@pytest.mark.parametrize(("version", "phase"), [("1.35", "Running"), ("1.33", "Failed")])
def test_kubelet_restarts_by_rule_since_its_version_has_them(version: str, phase: str) -> None:
    settings = Settings(kubelet_version=version)
    kubelet = InMemoryKubelet(settings, clock=ManualClock(1000.0))
    kubelet.admit(manifest(restartPolicy="Never", restartPolicyRules=[RULE]))
    kubelet.exit_container("p", "main", 42)
    assert kubelet.pod_status("p").phase == phase
    kubelet.stop()


ALL = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}


def with_init_and_side(**main: Any) -> dict[str, Any]:
    found = manifest(restartPolicy="Never", restartPolicyRules=[ALL], **main)
    found["spec"]["containers"].append({"name": "side", "image": "i"})
    found["spec"]["initContainers"] = [
        {"name": "setup", "image": "i"},
        {"name": "load", "image": "i"},
    ]
    return found


def test_rule_restarts_all_containers() -> None:
    kubelet = InMemoryKubelet(Settings(kubelet_version="1.36"), clock=ManualClock(1000.0))
    kubelet.admit(with_init_and_side())
    for count in (1, 2):
        kubelet.exit_container("p", "main", 42)
        status = kubelet.pod_status("p")
        assert status.phase == "Running"
        entries = [*status.init_containers, *status.containers]
        assert [each.status.restart_count for each in entries] == [count] * 4
        for each in entries:
            last = each.status.last_termination
            assert last is not None
            assert (last.exit_code, last.reason) == (137, "RestartingAllContainers")
        assert all(each.status.is_running for each in status.containers)
        assert all(each.status.has_succeeded for each in status.init_containers)
        assert [each.type for each in status.conditions][-1] == "AllContainersRestarting"
    kubelet.exit_container("p", "main", 1)
    kubelet.exit_container("p", "side", 0)
    last_status = kubelet.pod_status("p")
    assert last_status.phase == "Failed"
    assert last_status.conditions[-1].reason == "PodFailed"
    kubelet.stop()


def test_first_rule_that_matches_decides() -> None:
    rules = [RULE, ALL]
    first, second = (
        parse(manifest(restartPolicy="Never", restartPolicyRules=each))
        for each in (rules, rules[::-1])
    )
    assert not first.restarts_all(first.containers[0], 42)
    assert second.restarts_all(second.containers[0], 42)
    assert not second.restarts_all(second.containers[0], 1)


@pytest.mark.parametrize(
    ("version", "gates"),
    [("1.35", {}), ("1.36", {"RestartAllContainersOnContainerExits": False})],
)
def test_kubelet_without_the_feature_uses_the_policy(version: str, gates: dict[str, bool]) -> None:
    settings = Settings(kubelet_version=version, feature_gates=gates)
    kubelet = InMemoryKubelet(settings, clock=ManualClock(1000.0))
    kubelet.admit(with_init_and_side())
    kubelet.exit_container("p", "main", 42)
    status = kubelet.pod_status("p")
    assert [each.status.restart_count for each in status.containers] == [0, 0]
    assert "AllContainersRestarting" not in [each.type for each in status.conditions]
    kubelet.stop()


def test_container_that_cannot_start_again_is_tried_again() -> None:
    node = Node()
    plugin = node.plugin(devices("g0"), pre_start_required=True)
    rule = RestartRule(frozenset({42}), restarts_all=True)
    main = attrs.evolve(container("app"), restart_policy=RestartPolicy.NEVER, restart_rules=(rule,))
    first = attrs.evolve(pod("train", main, container("gpu", gpu=1), container("log")))
    node.admit(first, start=True)
    plugin.pre_start_error = RpcError("Unknown", "busy")
    node.workers.life.exited("train", "app", 42, "")

    def states() -> list[str]:
        record = node.pods.known("train")
        return [type(record.status(each.name).state).__name__ for each in first.containers]

    assert states() == ["Running", "Waiting", "Running"]
    node.workers.life.exited("train", "log", 0, "")
    node.workers.life.exited("train", "log", 0, "")
    assert states() == ["Running", "Waiting", "Waiting"], "the third waits for its backoff"
    plugin.pre_start_error = None
    node.clock.advance(1)
    assert states() == ["Running", "Running", "Waiting"]
