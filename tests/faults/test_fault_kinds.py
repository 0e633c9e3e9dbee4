"""The table of kinds, row by row: effects, injection points, options, and values of chaos."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.faults import KINDS, Effect, Fault, FaultError, InjectionPoint, chaos, kinds
from devicemanager.faults.fault import AT, COMMON
from devicemanager.faults.injection_point import NO_CONTEXT, FaultContext, implements

CODE = {"code": "UNAVAILABLE"}
TEXT = {"text": "injected fault"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "reject-register": {"code": "UNKNOWN", **TEXT},
    "delay-register": {"seconds": ...},
    "hang-register": {},
    "drop-register": {"when": "before"},
    "reject-notification": TEXT,
    "fail-notification": {**CODE, **TEXT},
    "stop-reading": {"seconds": None},
    "fail-call": {"rpc": None, "when": "before", **CODE, **TEXT},
    "delay-call": {"rpc": None, "when": "before", "seconds": ...},
    "cut-call": {"rpc": None, "when": "before", "seconds": 0.1},
    "fail-checkpoint": {"error": "ENOSPC"},
    "delay-checkpoint": {"seconds": ...},
    "lose-checkpoint": {},
    "truncate-checkpoint": {},
    "lose-dra-state": {},
    "truncate-dra-state": {},
    "fail-pod-resources": {"method": None, **CODE, **TEXT},
    "delay-pod-resources": {"method": None, "seconds": ...},
    "empty-pod-resources": {"method": None},
    "limit-pod-resources": {"method": None},
    "stale-pod-resources": {"method": None},
    "fail-pods-api": {"method": None, **CODE, **TEXT},
    "delay-pods-api": {"method": None, "seconds": ...},
    "end-pod-watches": {},
    "end-list-stream": {},
    "delete-plugin-socket": {},
    "recreate-kubelet-socket": {},
    "restart": {"keep_sockets": False},
    "restart-twice": {"gap": 0.05, "keep_sockets": False},
    "away": {"seconds": ..., "keep_sockets": False},
}
"""Options of each kind with their defaults; ``...`` marks a required one."""

EFFECTS = {
    "hang-register": Effect.DELAY_REGISTER,
    "drop-register": Effect.CUT_REGISTER,
    "away": Effect.STOP_AND_START,
}
"""Effects that are not named as their kind."""

POINTS = {
    "register": ["reject-register", "delay-register", "hang-register", "drop-register"],
    "notification": ["reject-notification", "fail-notification"],
    "list": ["stop-reading"],
    "call": ["fail-call", "delay-call", "cut-call"],
    "checkpoint": ["fail-checkpoint", "delay-checkpoint"],
    "start": ["lose-checkpoint", "truncate-checkpoint", "lose-dra-state", "truncate-dra-state"],
    "pod-resources": [name for name in DEFAULTS if name.endswith("-pod-resources")],
    "pods-api": ["fail-pods-api", "delay-pods-api"],
    None: [
        "end-pod-watches", "end-list-stream", "delete-plugin-socket", "recreate-kubelet-socket",
        "restart", "restart-twice", "away",
    ],
}  # fmt: skip

CODES = [
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
]
PLUGIN_RPCS = ["GetDevicePluginOptions", "GetPreferredAllocation", "Allocate", "PreStartContainer"]
RPCS = [*PLUGIN_RPCS, "NodePrepareResources", "NodeUnprepareResources"]
METHODS = ["List", "GetAllocatableResources", "Get"]
VALUES: dict[str, list[Any]] = {
    "code": CODES,
    "rpc": RPCS,
    "method": METHODS,
    "error": ["ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES"],
    "when": ["before", "after"],
    "keep_sockets": [True, False],
}
"""All values of the options that are a choice."""


def test_table_has_every_kind_in_order() -> None:
    assert list(KINDS) == list(DEFAULTS)
    assert list(InjectionPoint) == [
        "register", "registered", "notification", "list", "call", "checkpoint", "start",
        "pod-resources", "pods-api",
    ]  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_kind_has_effect_and_point(name: str) -> None:
    kind = KINDS[name]
    assert kind.effect is EFFECTS.get(name, getattr(Effect, name.upper().replace("-", "_"), None))
    (point,) = [point for point, names in POINTS.items() if name in names]
    assert kind.point == point
    assert kind.is_action is (point is None)
    assert kind.ends_process is (name in ("restart", "restart-twice", "away"))


@pytest.mark.parametrize("name", DEFAULTS)
def test_kind_has_options_with_defaults(name: str) -> None:
    wanted = DEFAULTS[name]
    assert {option.name: option.required for option in KINDS[name].options} == {
        option: default is ... for option, default in wanted.items()
    }
    required = {option: 2.5 for option, default in wanted.items() if default is ...}
    assert dict(Fault.of(name, **required).options) == wanted | required
    for option in required:
        with pytest.raises(FaultError, match=f"^{name} needs {option} .*: use {name}:{option}=…$"):
            Fault.of(name)


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, option) for name in DEFAULTS for option in DEFAULTS[name] if option in VALUES],
)
def test_option_accepts_each_choice_and_names_them(name: str, option: str) -> None:
    choices = VALUES[option]
    if name == "cut-call" and option == "when":
        choices = ["before", "during", "after"]
    if name.endswith("-pods-api") and option == "method":
        choices = ["ListPods", "GetPod", "WatchPods"]
    required = {each: 1 for each, default in DEFAULTS[name].items() if default is ...}
    for value in choices:
        assert Fault.of(name, **required, **{option: value}).options[option] == value
    with pytest.raises(FaultError) as raised:
        Fault.of(name, **required, **{option: "no"})
    words = "true or false" if option == "keep_sockets" else f"one of {', '.join(choices)}"
    assert str(raised.value) == f"{name}: invalid {option} 'no': expected {words}"


CHAOS_CODES = ["INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN"]
SECONDS = [0.05, 0.2, 1.0]
AT_POINTS = ["registered", "list", *PLUGIN_RPCS]
ANY: dict[str, list[Any]] = {"rpc": PLUGIN_RPCS, "when": ["before", "after"]}
CHAOS: dict[str, dict[str, list[Any]] | None] = {
    "reject-register": {"code": CHAOS_CODES},
    "delay-register": {"seconds": [*SECONDS, 9.0]},
    "hang-register": None,
    "drop-register": {"when": ["before", "after"]},
    "reject-notification": {},
    "fail-notification": {"code": CHAOS_CODES},
    "stop-reading": {"seconds": SECONDS},
    "fail-call": {**ANY, "code": CHAOS_CODES},
    "delay-call": {**ANY, "seconds": SECONDS},
    "cut-call": {"rpc": PLUGIN_RPCS, "when": ["before", "during", "after"]},
    "fail-checkpoint": {"error": VALUES["error"]},
    "delay-checkpoint": {"seconds": SECONDS},
    "lose-checkpoint": {},
    "truncate-checkpoint": {},
    "fail-pod-resources": {"code": CHAOS_CODES},
    "delay-pod-resources": {"seconds": SECONDS},
    "empty-pod-resources": {},
    "limit-pod-resources": {},
    "stale-pod-resources": None,
    "end-list-stream": {"at": ["list", *PLUGIN_RPCS]},
    "delete-plugin-socket": {"at": AT_POINTS},
    "recreate-kubelet-socket": {"at": AT_POINTS},
    "restart": {"at": AT_POINTS, "keep_sockets": [False, True]},
    "restart-twice": {"at": AT_POINTS, "gap": [0.0, 0.01, 0.05, 0.3, 1.0]},
    "away": {"at": AT_POINTS, "seconds": [0.5, 5.0]},
}


@pytest.mark.parametrize("name", CHAOS)
def test_chaos_chooses_from_these_values(name: str) -> None:
    found = KINDS[name].chaos
    assert CHAOS[name] == (
        None if found is None else {option: list(values) for option, values in found.items()}
    )


def test_faults_of_a_seed_never_change() -> None:
    """A seed in a bug report must choose the same faults in every release."""
    assert [str(fault) for fault in chaos(3)] == [
        "lose-checkpoint:after=2,probability=0.3,seed=941508596",
        "truncate-checkpoint:after=2,probability=0.3,seed=2012619888",
        "drop-register:after=1,probability=0.3,seed=1644597712",
        "reject-register:code=INTERNAL,after=2,probability=0.3,seed=1190013072",
        "empty-pod-resources:after=1,probability=0.2,seed=24571132",
        "end-list-stream:times=2,after=1,probability=0.05,seed=561374928,at=GetPreferredAllocation",
    ]


def test_chaos_uses_all_probabilities_counts_and_delays() -> None:
    faults = [fault for seed in range(60) for fault in chaos(seed)]
    assert {fault.probability for fault in faults} == {0.05, 0.1, 0.2, 0.3}
    assert {fault.times for fault in faults} == {None, 1, 2, 3}
    assert {fault.after for fault in faults} == {0, 1, 2}
    assert {len(chaos(seed)) for seed in range(60)} == set(range(6, 13))
    assert all(fault.seed is not None and 0 <= fault.seed < 1 << 31 for fault in faults)
    assert max(fault.seed or 0 for fault in faults) > 1 << 30


# -- common options --------------------------------------------------------------------------

AT_WORDS = [
    "now", "register", "registered", "notification", "list", "checkpoint", "pod-resources",
    "pods-api", *RPCS,
]  # fmt: skip


def test_common_options_and_their_defaults() -> None:
    assert [(option.name, option.default, option.required) for option in (*COMMON, AT)] == [
        ("times", None, False),
        ("after", 0, False),
        ("probability", 1.0, False),
        ("seed", None, False),
        ("resource", None, False),
        ("plugin", None, False),
        ("at", "now", False),
    ]
    with pytest.raises(FaultError) as raised:
        Fault.of("restart", at="no")
    assert str(raised.value) == f"restart: invalid at 'no': expected one of {', '.join(AT_WORDS)}"
    for word in AT_WORDS:
        assert Fault.of("restart", at=word).at == word


def test_fault_has_the_defaults_of_common_options() -> None:
    fault = Fault(KINDS["hang-register"])
    assert fault == Fault.of("hang-register")
    assert (fault.times, fault.after, fault.probability, fault.seed) == (None, 0, 1.0, None)
    assert (fault.resource, fault.plugin, fault.at, dict(fault.options)) == (None, None, "now", {})


@pytest.mark.parametrize(
    ("read", "accepted", "rejected", "words"),
    [
        (
            kinds.seconds,
            {0: 0.0, "0.5": 0.5, 1 << 62: 2.0**62},
            [-0.1, "x", None, True, "nan", "inf", 1 << 63],
            "a number of seconds, at least 0",
        ),
        (
            kinds.whole(1),
            {1: 1, "7": 7, 1 << 62: 1 << 62},
            [0, "0", 2.5, True, None, (1 << 62) + 1],
            "an integer of at least 1",
        ),
        (kinds.whole(0), {0: 0}, [-1, "x"], "an integer of at least 0"),
        (
            kinds.probability,
            {1: 1.0, "0.25": 0.25},
            [0, -1, 1.01, True, "nan"],
            "a number above 0, at most 1",
        ),
        (kinds.text, {"": "", "a b": "a b"}, ["a\nb", 3, None], "a text of one line"),
        (
            kinds.switch,
            {"true": True, "False": False, True: True, False: False},
            ["yes", 1, ""],
            "true or false",
        ),
        (kinds.choice("a", "b"), {"a": "a"}, ["c", "", None], "one of a, b"),
    ],
    ids=["seconds", "from 1", "from 0", "probability", "text", "switch", "choice"],
)
def test_readers_of_options(
    read: kinds.Read, accepted: dict[Any, Any], rejected: list[Any], words: str
) -> None:
    for value, expected in accepted.items():
        found = read(value)
        assert found == expected and type(found) is type(expected)
    for value in rejected:
        with pytest.raises(ValueError, match=f"^{words}$"):
            read(value)


# -- injection points ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "text"),
    [
        (NO_CONTEXT, ""),
        (FaultContext("vendor.com/gpu"), "vendor.com/gpu"),
        (FaultContext("vendor.com/gpu", "gpu.sock"), "gpu.sock of vendor.com/gpu"),
        (FaultContext(None, "gpu.sock"), "gpu.sock"),
        (FaultContext("v.com/g", "g.sock", "Allocate"), "Allocate g.sock of v.com/g"),
        (FaultContext(rpc="List"), "List"),
    ],
)
def test_context_is_described_by_what_is_known(context: FaultContext, text: str) -> None:
    assert str(context) == text
    assert context.phase == "before"


def test_implements_names_all_effects_in_order() -> None:
    with pytest.raises(TypeError) as missing:
        implements(InjectionPoint.CHECKPOINT, ())
    assert str(missing.value) == (
        "no code for Effect.DELAY_CHECKPOINT, Effect.FAIL_CHECKPOINT at injection point checkpoint"
    )
    with pytest.raises(TypeError) as other:
        implements(InjectionPoint.LIST, Effect)
    names = sorted(str(each) for each in Effect if each is not Effect.STOP_READING)
    assert str(other.value) == f"{', '.join(names)} cannot fire at injection point list"
    implements(InjectionPoint.LIST, [Effect.STOP_READING])
