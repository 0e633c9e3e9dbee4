"""The allocator as a function: what it returns and raises, and what it leaves alone."""

from __future__ import annotations

import copy

import pytest

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.dra import (
    AllocationError,
    Allocator,
    InUse,
    InvalidPools,
    Node,
    Profile,
    Share,
    allocate,
    with_defaults,
)
from devicemanager.claims.dra.nodes import node_matches, selects
from devicemanager.claims.errors import TryAgain
from tests.claims.dra.objects import (
    DRIVER,
    GPU,
    NODE,
    all_of,
    claim,
    consuming,
    counters,
    derived,
    device,
    exactly,
    first_of,
    names,
    selected,
    slice_,
)


def requirement(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


HAS_A, HAS_B = requirement("a", "Exists"), requirement("b", "Exists")
IS_WORKER = requirement("metadata.name", "In", "worker")
IS_OTHER = requirement("metadata.name", "In", "other")
NOT_OTHER = requirement("metadata.name", "NotIn", "other")


def solve(claims, slices, in_use=None, **profile):
    return allocate(claims, slices, [GPU], NODE, in_use or InUse(), profile=Profile.of(**profile))


def test_the_result_is_the_status_that_the_scheduler_writes():
    tolerations = [{"key": "bad", "operator": "Exists", "value": ""}]
    wanted = exactly("r", tolerations=tolerations)
    found = solve([claim(wanted)], [slice_("d0")])
    assert found == [
        {
            "devices": {
                "results": [
                    {
                        "request": "r",
                        "driver": DRIVER,
                        "pool": "p",
                        "device": "d0",
                        "tolerations": [{"key": "bad", "operator": "Exists"}],
                    }
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["worker"]}
                        ]
                    }
                ]
            },
        }
    ]


def test_claims_that_do_not_fit_together_give_none():
    assert solve([claim(name="a"), claim(name="b")], [slice_("d0")]) is None


def test_a_device_in_use_is_not_allocated_again():
    found = solve([claim()], [slice_("d0", "d1")])
    allocated = {**claim(), "status": {"allocation": found[0]}}
    assert names(solve([claim()], [slice_("d0", "d1")], InUse.of([allocated]))) == [["d1"]]


def test_admin_access_uses_nothing():
    admin = claim(exactly(adminAccess=True))
    found = solve([admin], [slice_("d0")])
    assert found[0]["devices"]["results"][0]["adminAccess"] is True
    in_use = InUse.of([{**admin, "status": {"allocation": found[0]}}])
    assert in_use == InUse()
    assert names(solve([claim()], [slice_("d0")], in_use)) == [["d0"]]


def test_shares_in_use_are_read_from_the_status():
    wanted = claim(exactly(capacity={"requests": {"memory": "3Gi"}}))
    shared = device("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "5Gi"}})
    found = solve([wanted], [slice_(shared)])
    result = found[0]["devices"]["results"][0]
    assert result["consumedCapacity"] == {"memory": "3Gi"}
    assert len(result["shareID"]) == 36
    in_use = InUse.of([{**wanted, "status": {"allocation": found[0]}}])
    assert in_use.shares == (Share(DeviceKey(DRIVER, "p", "d0"), {"memory": 3 * 2**30 * 10**9}),)
    assert solve([wanted], [slice_(shared)], in_use) is None


def test_an_error_has_the_scheduler_s_text():
    with pytest.raises(AllocationError) as raised:
        solve([claim(exactly(deviceClassName="nope"))], [slice_("d0")])
    assert str(raised.value) == (
        "claim default/c, request r: could not retrieve device class nope:"
        ' deviceclass.resource.k8s.io "nope" not found'
    )


def test_an_invalid_pool_is_an_error_only_if_nothing_else_fits():
    invalid = slice_("x", "x", pool="a", name="a")
    assert names(solve([claim()], [invalid, slice_("d0")])) == [["d0"]]
    with pytest.raises(InvalidPools, match="invalid resource pools were encountered"):
        solve([claim()], [invalid])


def test_a_search_that_reaches_its_limit_is_undecided():
    devices = [device(f"d{n}", attributes={"m": n % 10}) for n in range(20)]
    distinct = [{"distinctAttribute": f"{DRIVER}/m"}]
    wanted = claim(exactly(count=11), constraints=distinct)
    with pytest.raises(TryAgain, match=r"node worker: .* stopped after 3000 steps, .*: default/c"):
        allocate([wanted], [slice_(*devices)], [GPU], NODE, max_steps=3_000)


def test_evaluations_of_selectors_count_as_steps():
    devices = [device(f"d{n}", attributes={"m": n}) for n in range(100)]
    wanted = claim(exactly(**selected(f'device.attributes["{DRIVER}"].m == 1000')))
    with pytest.raises(TryAgain):
        allocate([wanted], [slice_(*devices)], [GPU], NODE, max_steps=50)


def test_a_missing_field_of_a_slice_is_named():
    broken = {"metadata": {"name": "s"}, "spec": {"driver": DRIVER}}
    with pytest.raises(AllocationError, match="invalid ResourceSlice: 'pool' is missing"):
        allocate([claim()], [broken], [GPU], NODE)


def test_a_malformed_quantity_names_slice_and_device():
    broken = slice_(device("d0", capacity={"memory": {"value": "5Gx"}}))
    with pytest.raises(
        AllocationError, match="invalid ResourceSlice s: device d0: quantities must"
    ):
        allocate([claim()], [broken], [GPU], NODE)


def test_arguments_are_not_changed():
    config = {"opaque": {"driver": DRIVER, "parameters": {}}, "requests": ["r"]}
    with_config = {"metadata": {"name": "gpu"}, "spec": {"config": [config]}}
    arguments = [[claim(config=[config])], [slice_("d0")], [with_config]]
    before = copy.deepcopy(arguments)
    assert allocate(*arguments, NODE)
    assert arguments == before


def test_an_allocator_serves_nodes_and_calls():
    slices = [slice_("d0"), slice_("other", nodeName="other", pool="q", name="t")]
    allocator = Allocator(slices, [GPU])
    for _ in range(2):
        assert names(allocator.allocate([claim()], NODE)) == [["d0"]]
        assert names(allocator.allocate([claim()], Node("other"))) == [["other"]]
    assert allocator.allocate([claim()], Node("third")) is None


def test_a_selector_is_evaluated_once_for_equal_values(monkeypatch):
    from devicemanager.claims.cel.dra import DraSelector

    seen = []
    evaluate = DraSelector.evaluate

    def counted(self, each, spend):
        seen.append(each)
        return evaluate(self, each, spend)

    monkeypatch.setattr(DraSelector, "evaluate", counted)
    devices = [device(f"d{n}", attributes={"m": n % 3, "unread": n}) for n in range(30)]
    wanted = claim(exactly(count=20, **selected(f'device.attributes["{DRIVER}"].m != 2')))
    assert len(names(allocate([wanted], [slice_(*devices)], [GPU], NODE))[0]) == 20
    assert len(seen) == 3


def test_defaults_are_those_of_the_api_server():
    written = claim(
        {"name": "r", "exactly": {"deviceClassName": "gpu", "tolerations": [{"key": "k"}]}},
        {"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]},
        all_of("a"),
    )
    requests = with_defaults(written)["spec"]["devices"]["requests"]
    assert requests[0]["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"operator": "Equal", "key": "k"}],
    }
    assert requests[1]["firstAvailable"][0]["count"] == 1
    assert "count" not in requests[2]["exactly"]
    assert "allocationMode" not in written["spec"]["devices"]["requests"][0]["exactly"]


@pytest.mark.parametrize("written", [{}, {"count": 0}, {"allocationMode": ""}])
def test_count_of_0_and_an_empty_mode_get_the_defaults(written):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", **written}}
    [found] = with_defaults(claim(request))["spec"]["devices"]["requests"]
    assert (found["exactly"]["allocationMode"], found["exactly"]["count"]) == ("ExactCount", 1)


def test_the_first_subrequest_with_which_all_fits_is_chosen():
    wanted = claim(first_of("f", exactly("big", 2), exactly("small")), exactly("r"))
    found = solve([wanted], [slice_("d0", "d1")])
    assert [each["request"] for each in found[0]["devices"]["results"]] == ["f/small", "r"]


def test_calls_with_other_devices_in_use_do_not_affect_each_other():
    """An allocator reuses what it knows of the last call; a new one knows nothing."""
    devices = [consuming(f"d{n}", "1Gi") for n in range(5)]
    slices = [slice_(*devices, count=2), counters(memory="3Gi")]
    shared = (Share(DeviceKey(DRIVER, "p", "d4")),)
    calls = [
        InUse(frozenset(DeviceKey(DRIVER, pool, f"d{n}") for pool, n in used), shares)
        for used, shares in (
            ([], ()),
            ([("p", 0)], ()),
            ([("p", 0), ("p", 1), ("elsewhere", 3)], ()),
            ([("p", 1), ("p", 2)], ()),
            ([("p", 1), ("p", 2), ("p", 3)], ()),
            ([("p", 1)], shared),
            ([("p", 2)], shared),
            ([], ()),
        )
    ]
    allocator = Allocator(slices, [GPU])
    found = [names(allocator.allocate([claim()], NODE, each)) for each in calls]
    assert found == [names(allocate([claim()], slices, [GPU], NODE, each)) for each in calls]
    assert found[3:5] == [[["d0"]], None]


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ["a", "b"], {"k": "b"}, True),
        ("In", ["a"], {"k": "b"}, False),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {"k": "b"}, True),
        ("NotIn", ["a"], {"k": "a"}, False),
        ("NotIn", ["a"], {}, True),
        ("Exists", None, {"k": ""}, True),
        ("Exists", None, {}, False),
        ("DoesNotExist", None, {"k": ""}, False),
        ("DoesNotExist", None, {}, True),
        ("Gt", ["5"], {"k": "6"}, True),
        ("Gt", ["5"], {"k": "5"}, False),
        ("Gt", ["-5"], {"k": "+4"}, True),
        ("Gt", ["5"], {"k": "six"}, False),
        ("Gt", ["5"], {}, False),
        ("Lt", ["5"], {"k": "4"}, True),
        ("Lt", ["5"], {"k": "5"}, False),
        ("Lt", ["5"], {"k": "4.5"}, False),
        ("Lt", ["5"], {}, False),
    ],
)
def test_each_operator_of_a_node_selector(operator, values, labels, expected):
    requirement = {"key": "k", "operator": operator, "values": values}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    assert selects(selector, Node("worker", labels)) is expected


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([], False),
        ([{}], False),
        ([{"matchExpressions": [HAS_A]}], True),
        ([{"matchExpressions": [HAS_A, HAS_B]}], False),
        ([{"matchExpressions": [HAS_B]}, {"matchExpressions": [HAS_A]}], True),
        ([{"matchFields": [IS_WORKER]}], True),
        ([{"matchFields": [IS_OTHER]}], False),
        ([{"matchExpressions": [HAS_A], "matchFields": [IS_OTHER]}], False),
        ([{"matchExpressions": [HAS_B], "matchFields": [IS_WORKER]}], False),
        ([{"matchFields": [NOT_OTHER]}], True),
    ],
)
def test_one_term_of_a_node_selector_must_match_completely(terms, expected):
    assert selects({"nodeSelectorTerms": terms}, Node("worker", {"a": ""})) is expected


@pytest.mark.parametrize(
    ("term", "faults"),
    [
        (
            {"matchExpressions": [requirement("k", "Near")]},
            [
                '.matchExpressions[0].operator: Unsupported value: "Near": supported values: "In",'
                ' "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
            ],
        ),
        *(
            (
                {"matchExpressions": [requirement("k", operator)]},
                [
                    ".matchExpressions[0].values: Invalid value: []: for 'in', 'notin' operators,"
                    " values set can't be empty"
                ],
            )
            for operator in ("In", "NotIn")
        ),
        *(
            (
                {"matchExpressions": [HAS_A, requirement("k", operator, "a", "b")]},
                [
                    '.matchExpressions[1].values: Invalid value: ["a","b"]: values set must be'
                    " empty for exists and does not exist"
                ],
            )
            for operator in ("Exists", "DoesNotExist")
        ),
        *(
            (
                {"matchExpressions": [requirement("k", operator, "1", "x")]},
                [
                    ".matchExpressions[0].values: Invalid value: [\"1\",\"x\"]: for 'Gt', 'Lt'"
                    " operators, exactly one value is required",
                    ".matchExpressions[0].values[1]: Invalid value: \"x\": for 'Gt', 'Lt'"
                    " operators, the value must be an integer",
                ],
            )
            for operator in ("Gt", "Lt")
        ),
        (
            {"matchFields": [requirement("metadata.name", "Exists")]},
            [
                '.matchFields[0].operator: Unsupported value: "Exists": supported values: "In",'
                ' "NotIn"'
            ],
        ),
        (
            {"matchFields": [requirement("metadata.name", "In", "a", "b")]},
            ['.matchFields[0].values: Invalid value: ["a","b"]: must have one element'],
        ),
    ],
)
def test_faults_of_a_node_selector_are_those_of_the_scheduler(term, faults):
    with pytest.raises(AllocationError) as raised:
        selects({"nodeSelectorTerms": [{"matchExpressions": [HAS_A]}, term]}, NODE)
    text = str(raised.value)
    assert text.startswith(
        "failed to parse node selector &NodeSelector{NodeSelectorTerms:[]NodeSelectorTerm{"
        "NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{NodeSelectorRequirement{"
        "Key:a,Operator:Exists,Values:[],},},MatchFields:[]NodeSelectorRequirement{},},"
    )
    listed = [f"nodeSelectorTerms[1]{each}" for each in faults]
    expected = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    assert text.endswith(f"}}: {expected}")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeName": "worker"}, True),
        ({"nodeName": "other"}, False),
        ({"nodeName": "other", "allNodes": True}, False),
        ({"allNodes": True}, True),
        ({"allNodes": False}, False),
        ({}, False),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [IS_WORKER]}]}}, True),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [IS_OTHER]}]}}, False),
    ],
)
def test_node_of_a_slice_is_named_or_selected(spec, expected):
    assert node_matches(Node("worker"), spec) is expected


def test_missing_fields_of_a_node_are_empty():
    assert Node.of({"metadata": {"name": "a"}}) == Node("a", {}, frozenset())
    value = {"metadata": {"name": "a", "labels": {"k": "v"}}, "status": {"declaredFeatures": ["F"]}}
    assert Node.of(value) == Node("a", {"k": "v"}, frozenset({"F"}))


ALPHA = [
    "DRAConsumableCapacity",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAListTypeAttributes",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
]
GROUPED = [
    slice_(
        consuming("full", "1Gi", groups=["full"]),
        consuming("half", "1Gi", groups=["half", "mixed"]),
        consuming("plain", "1Gi"),
        consuming("quarter", "1Gi", groups=["quarter", "mixed"]),
        consuming("plain-too", "1Gi"),
        consuming("eighth", "1Gi", groups=["half"]),
        count=2,
    ),
    counters(memory="8Gi"),
]


@pytest.mark.parametrize(
    ("count", "in_use", "expected"),
    [
        (1, (), [["full"]]),
        (2, (), [["half", "quarter"]]),
        (1, ("quarter",), [["half"]]),
        (2, ("plain",), None),
        (1, ("plain",), [["plain-too"]]),
        # In the group "mixed"; "eighth" is only in "half".
        (1, ("half", "quarter"), None),
        (3, (), None),
    ],
)
def test_devices_with_common_counters_have_a_common_group(count, in_use, expected):
    used = InUse(frozenset(DeviceKey(DRIVER, "p", name) for name in in_use))
    found = solve([claim(exactly(count=count))], GROUPED, used, features=ALPHA)
    assert names(found) == expected


def test_a_further_share_of_a_device_needs_no_common_group():
    shared = consuming("d0", "1Gi", groups=["a"], allowMultipleAllocations=True)
    slices = [slice_(shared, consuming("d1", "1Gi"), count=2), counters(memory="8Gi")]
    in_use = InUse(
        frozenset({DeviceKey(DRIVER, "p", "d1")}), (Share(DeviceKey(DRIVER, "p", "d0")),)
    )
    assert names(solve([claim()], slices, in_use, features=ALPHA)) == [["d0"]]


def test_without_the_gate_a_pool_with_groups_is_not_used():
    assert solve([claim()], GROUPED) is None


NUMA = f'device.attributes["{DRIVER}"].numa'


def socket(**fields):
    return exactly(**derived(socket=f"{NUMA} / 2"), **fields)


def test_a_constraint_compares_derived_attributes():
    devices = [device(f"d{n}", attributes={"numa": n}) for n in (0, 2, 3, 4)]
    match = [{"matchAttribute": "derived/socket"}]
    wanted = claim(socket(count=2), constraints=match)
    assert names(solve([wanted], [slice_(*devices)], features=ALPHA)) == [["d2", "d3"]]
    distinct = claim(socket(count=3), constraints=[{"distinctAttribute": "derived/socket"}])
    assert names(solve([distinct], [slice_(*devices)], features=ALPHA)) == [["d0", "d2", "d4"]]


def test_each_request_derives_its_own_attribute():
    """Requests for two drivers have one constraint, though their attributes differ."""
    gpus = slice_(*[device(f"gpu{n}", attributes={"numa": n}) for n in range(3)])
    links = slice_(device("nic", attributes={"zone": "numa-2"}), pool="q", name="q", driver="net")
    gpu = exactly("gpu", **selected(f'device.driver == "{DRIVER}"'), **derived(numa=NUMA))
    zone = 'int(device.attributes["net"].zone.substring(5))'
    nic = exactly("nic", **selected('device.driver == "net"'), **derived(numa=zone))
    wanted = claim(gpu, nic, constraints=[{"matchAttribute": "derived/numa"}])
    assert names(solve([wanted], [gpus, links], features=ALPHA)) == [["gpu2", "nic"]]


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (NUMA, f"evaluate derived attribute derived/x on device {DRIVER}/p/d0 failed: no such key"),
        ("1.5", "compile derived attribute derived/x failed: must evaluate to a primitive scalar"),
        ("nope", "compile derived attribute derived/x failed: compilation failed: ERROR"),
        ("dyn(1.5)", "unsupported CEL return type: float64"),
        ("[dyn(1), dyn('a')]", "expected list element at index 1 to be int, got string"),
    ],
)
def test_an_error_of_a_derived_attribute_ends_the_call(expression, error):
    request = exactly(**derived(x=expression))
    wanted = claim(request, constraints=[{"matchAttribute": "derived/x"}])
    with pytest.raises(AllocationError, match=error.replace("[", r"\[")):
        solve([wanted], [slice_("d0")], features=ALPHA)
    # No constraint compares it.
    assert names(solve([claim(request)], [slice_("d0")], features=ALPHA)) == [["d0"]]


def test_without_the_gate_derived_attributes_are_an_error():
    with pytest.raises(AllocationError, match="derived attributes, the feature is disabled"):
        solve([claim(socket())], [slice_("d0")])
