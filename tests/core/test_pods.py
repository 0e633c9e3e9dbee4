"""Restart policies and rules of containers."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.pods import Container, Pod, RestartPolicy, RestartRule
from tests.helpers import container, pod

ALWAYS, ON_FAILURE, NEVER = RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE, RestartPolicy.NEVER
IN_3 = RestartRule(frozenset({3, 4}))
NOT_3 = RestartRule(frozenset({3}), is_in=False)
ALL_3 = RestartRule(frozenset({3}), restarts_all=True)
PLAIN = container("app")


def restarts(policy: RestartPolicy, exit_code: int, **fields: object) -> bool:
    spec = attrs.evolve(pod("a"), restart_policy=policy)
    return spec.restarts(attrs.evolve(PLAIN, **fields), exit_code)


@pytest.mark.parametrize(
    ("rule", "codes"), [(IN_3, {3, 4}), (NOT_3, {0, 1, 2, 4}), (RestartRule(frozenset()), set())]
)
def test_rule_matches_exit_codes(rule, codes):
    assert {code for code in range(5) if rule.matches(code)} == codes


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [(ALWAYS, True, True), (ON_FAILURE, False, True), (NEVER, False, False)],
)
def test_restart_policy_of_the_pod_and_of_the_container(policy, after_success, after_failure):
    expected = (after_success, after_failure)
    for other in RestartPolicy:
        assert tuple(restarts(policy, code) for code in (0, 1)) == expected
        found = tuple(restarts(other, code, restart_policy=policy) for code in (0, 1))
        assert found == expected
        # Sidecars are always restarted, ephemeral containers never.
        assert restarts(policy, 0, restartable=True, restart_policy=other)
        assert not restarts(policy, 1, is_ephemeral=True, restartable=True)


@pytest.mark.parametrize(
    ("rules", "codes"),
    [((), set()), ((IN_3,), {3, 4}), ((ALL_3,), {3}), ((ALL_3, NOT_3), {0, 1, 2, 3, 4})],
)
def test_rules_restart_a_container_that_its_policy_does_not(rules, codes):
    fields = {"restart_rules": rules, "restart_policy": NEVER}
    assert {code for code in range(5) if restarts(ALWAYS, code, **fields)} == codes


@pytest.mark.parametrize(
    ("rules", "codes"),
    [
        ((), set()),
        ((IN_3,), set()),
        ((ALL_3,), {3}),
        # The first rule that matches counts.
        ((IN_3, ALL_3), set()),
        ((NOT_3, ALL_3), {3}),
        ((ALL_3, IN_3), {3}),
    ],
)
def test_first_rule_that_matches_can_restart_all_containers(rules, codes):
    ruled = attrs.evolve(PLAIN, restart_rules=rules)
    spec = pod("a", container("side"), ruled)
    assert {code for code in range(5) if spec.restarts_all(ruled, code)} == codes
    assert spec.can_restart_all is (ALL_3 in rules)


def test_older_kubelets_ignore_restart_rules():
    def ruled(name: str, *rules: RestartRule, policy: RestartPolicy | None = NEVER) -> Container:
        return attrs.evolve(container(name), restart_rules=rules, restart_policy=policy)

    def rules_of(spec: Pod) -> list[tuple[RestartRule, ...]]:
        return [each.restart_rules for each in spec.containers]

    spec = pod("a", container("plain"), ruled("one", ALL_3, IN_3), ruled("two", NOT_3))
    without = spec.without_restart_all()
    assert rules_of(without) == [(), (IN_3,), (NOT_3,)]
    assert not without.can_restart_all
    assert without.without_restart_all() is without
    bare = spec.without_restart_rules()
    assert rules_of(bare) == [(), (), ()]
    assert [each.restart_policy for each in bare.containers] == [None, None, None]
    assert [each.name for each in bare.containers] == ["plain", "one", "two"]
    assert bare.without_restart_rules() is bare
