"""Restart policies and rules of containers."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager import ManualClock, Settings
from devicemanager.core.pods import RestartPolicy, RestartRule
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.objects.manifests import ManifestError, parse

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
        (3, r"restartPolicyRules: .*a list"),
        ([3], r"restartPolicyRules\[0\]"),
        ([{**RULE, "action": "Stop"}], r"restartPolicyRules\[0\]\.action: Unsupported value"),
        ([{"action": "Restart"}], r"restartPolicyRules\[0\]\.exitCodes: Required value"),
        (
            [{"action": "Restart", "exitCodes": {"operator": "Is", "values": [1]}}],
            r"restartPolicyRules\[0\]\.exitCodes\.operator: Unsupported value",
        ),
        (
            [{"action": "Restart", "exitCodes": {"operator": "In", "values": ["1"]}}],
            r"restartPolicyRules\[0\]\.exitCodes\.values: .*a list of numbers",
        ),
    ],
)
def test_invalid_rule_is_one_clear_line(rules: object, text: str) -> None:
    with pytest.raises(ManifestError, match=text) as raised:
        parse(manifest(restartPolicy="Never", restartPolicyRules=rules))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("version", "phase"), [("1.35", "Running"), ("1.33", "Failed")])
def test_kubelet_restarts_by_rule_since_its_version_has_them(version: str, phase: str) -> None:
    settings = Settings(kubelet_version=version)
    kubelet = InMemoryKubelet(settings, clock=ManualClock(1000.0))
    kubelet.admit(manifest(restartPolicy="Never", restartPolicyRules=[RULE]))
    kubelet.exit_container("p", "main", 42)
    assert kubelet.pod_status("p").phase == phase
    kubelet.stop()
