"""Validation of topology settings with the kubelet's messages, and results of policies."""

from __future__ import annotations

import pytest

from devicemanager.core.topology import (
    Hint,
    Hints,
    NumaTopology,
    OptionRules,
    PolicyName,
    PolicyOptions,
    ScopeName,
    TopologyConfigError,
    configure,
    parse_policy_options,
)

TWO = NumaTopology.of([0, 1])
NINE = NumaTopology.of(range(9))
EITHER = (Hint(1, True), Hint(2, True), Hint(3, False))
FIRST = (Hint(1, True), Hint(3, False))
SECOND = (Hint(2, True), Hint(3, False))
BOTH = (Hint(3, True),)


@pytest.mark.parametrize("value", ["1", "t", "T", "true", "TRUE", "True"])
def test_true_values_are_those_of_go(value: str) -> None:
    assert parse_policy_options({"prefer-closest-numa-nodes": value}).prefer_closest


@pytest.mark.parametrize("value", ["0", "f", "F", "false", "FALSE", "False"])
def test_false_values_are_those_of_go(value: str) -> None:
    assert parse_policy_options({"prefer-closest-numa-nodes": value}) == PolicyOptions()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bogus": "1"}, 'unknown Topology Manager Policy option: "bogus"'),
        (
            {"prefer-closest-numa-nodes": "yes"},
            'bad value for option "prefer-closest-numa-nodes": '
            'strconv.ParseBool: parsing "yes": invalid syntax',
        ),
        (
            {"max-allowable-numa-nodes": '"'},
            'unable to convert policy option to integer "max-allowable-numa-nodes": '
            'strconv.Atoi: parsing "\\"": invalid syntax',
        ),
        (
            {"max-allowable-numa-nodes": "9" * 5000},
            'unable to convert policy option to integer "max-allowable-numa-nodes": '
            f'strconv.Atoi: parsing "{"9" * 5000}": value out of range',
        ),
        (
            {"max-allowable-numa-nodes": str(2**63)},
            'unable to convert policy option to integer "max-allowable-numa-nodes": '
            f'strconv.Atoi: parsing "{2**63}": value out of range',
        ),
        (
            {"max-allowable-numa-nodes": "+7"},
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
    ],
)
def test_bad_options(options: dict[str, str], text: str) -> None:
    with pytest.raises(TopologyConfigError) as caught:
        configure(NINE, "restricted", "nowhere", options)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("topology", "policy", "scope", "text"),
    [
        (NINE, "odd", "odd", "unsupported on machines with more than 8 NUMA Nodes"),
        (TWO, "odd", "odd", 'unknown policy: "odd"'),
        (TWO, "restricted", "odd", 'unknown scope: "odd"'),
    ],
)
def test_order_of_checks_is_nodes_policy_scope(
    topology: NumaTopology, policy: str, scope: str, text: str
) -> None:
    with pytest.raises(TopologyConfigError) as caught:
        configure(topology, policy, scope)
    assert str(caught.value) == text


def test_policy_none_ignores_other_settings() -> None:
    policy = configure(NINE, "none", "odd", {"bogus": "1"})
    assert not policy.asks_for_hints
    assert policy.merge([{"a": ()}]) == (Hint(None, True), True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bogus": "1"}, 'unknown Topology Manager Policy option: "bogus"'),
        (
            {"prefer-closest-numa-nodes": "maybe"},
            'bad value for option "prefer-closest-numa-nodes": '
            'strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
    ],
)
def test_policy_none_checks_options_before_1_28(options: dict[str, str], text: str) -> None:
    rules = OptionRules(none_checks=True)
    with pytest.raises(TopologyConfigError) as caught:
        configure(NINE, "none", "pod", options, rules)
    assert str(caught.value) == text
    # The number of NUMA nodes is not checked.
    assert not configure(NINE, "none", "pod", {}, rules).asks_for_hints


def test_option_allows_more_nodes() -> None:
    policy = configure(NINE, "restricted", "pod", {"max-allowable-numa-nodes": "9"})
    assert policy.options == PolicyOptions(max_numa_nodes=9)
    assert policy.scope is ScopeName.POD


@pytest.mark.parametrize(
    ("hints", "best_effort", "restricted", "single"),
    [
        ([EITHER], (1, True, True), (1, True, True), (1, True, True)),
        ([FIRST, SECOND], (1, False, True), (1, False, False), (None, False, False)),
        ([BOTH], (3, True, True), (3, True, True), (None, False, False)),
        ([FIRST, BOTH], (3, False, True), (3, False, False), (None, False, False)),
        ([()], (3, False, True), (3, False, False), (None, False, False)),
        ([None], (3, True, True), (3, True, True), (None, True, True)),
        ([None, SECOND], (2, True, True), (2, True, True), (2, True, True)),
    ],
)
def test_merge_result_of_each_policy(
    hints: list[Hints | None],
    best_effort: tuple[int, bool, bool],
    restricted: tuple[int, bool, bool],
    single: tuple[int | None, bool, bool],
) -> None:
    providers = [dict(zip("abc", hints, strict=False))]
    for name, expected in [
        (PolicyName.BEST_EFFORT, best_effort),
        (PolicyName.RESTRICTED, restricted),
        (PolicyName.SINGLE_NUMA_NODE, single),
    ]:
        hint, admit = configure(TWO, name).merge(providers)
        assert (hint.mask, hint.preferred, admit) == expected, name


def test_single_numa_node_on_one_node_has_no_affinity() -> None:
    one = configure(NumaTopology.of([4]), "single-numa-node")
    assert one.merge([{"a": (Hint(1 << 4, True),)}]) == (Hint(None, True), True)


def test_largest_64_bit_number_is_accepted() -> None:
    options = parse_policy_options({"max-allowable-numa-nodes": str(2**63 - 1)})
    assert options.max_numa_nodes == 2**63 - 1


@pytest.mark.parametrize(("policy", "most"), [("none", 63), ("restricted", 7)])
def test_extended_topology_stays_within_the_kubelets_limits(policy: str, most: int) -> None:
    small = configure(TWO, policy)
    assert small.extended_to([most]).topology == NumaTopology.up_to(most)
    assert small.extended_to([most, most + 1]).topology == NumaTopology.up_to(most)
    assert small.extended_to([most + 1]) is small
    assert small.extended_to([1]) is small


def test_missing_nodes_are_sorted() -> None:
    assert configure(NumaTopology.of([1]), "none").missing_nodes([2, 0, 1, -1, 2]) == (0, 2)
