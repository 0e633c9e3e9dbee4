"""What the checks of NUMA nodes, options, preferences and PreStartContainer say: one row per
outcome."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from protos import deviceplugin_v1beta1 as dp
from tests.conformance.recorded_run import GPU, Client, Run, device, error, listed, options, outcome


@pytest.mark.parametrize(
    ("devices", "numa", "expected"),
    [
        ([device()], True, "skip: no device names a NUMA node"),
        ([device("a", "Healthy", 1), device("b", "Healthy", 0, 1)], True, "pass: NUMA nodes [0, "
         "1]"),
        ([device("a", "Healthy", -1)], True, f"fail: {GPU}: a is on NUMA node -1: expected a "
         "number of at least 0"),
        ([device("a", "Healthy", 2)], True, f"fail: {GPU}: a is on NUMA node 2, but --numa or "
         "--sys declares only the nodes [0, 1]"),
        ([device("a", "Healthy", 2), device("b", "Healthy", 3)], False, f"warn: {GPU}: a is on "
         "NUMA node 2, but this machine has only the nodes [0, 1]: declare others with --numa or "
         "--sys"),
    ],
)  # fmt: skip
def test_t01(devices: list[dp.Device], numa: bool, expected: str) -> None:
    run = Run(*devices)
    run.plugin.under_test.hardware = SimpleNamespace(numa_nodes=lambda: {0, 1}, declares_numa=numa)
    assert outcome("T01", run) == expected


def test_t02() -> None:
    empty = device("a")
    empty.topology.SetInParent()
    assert outcome("T02", Run(device("b"), device("c", "Healthy", 0))) == "pass: None"
    assert outcome("T02", Run(empty)) == (
        f"fail: {GPU}: a has a topology without NUMA nodes: omit the topology instead"
    )


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (device("a", "Healthy", 1, 0), device("a", "Healthy", 0, 1), "pass: None"),
        (device("a", "Healthy", 0), device("b", "Healthy", 1), "pass: None"),
        (device("a", "Healthy", 0), device("a", "Healthy", 1), f"warn: {GPU}: the NUMA nodes of a "
         "have changed from [0] to [1]"),
        (device("a"), device("a", "Healthy", 1), f"warn: {GPU}: the NUMA nodes of a have changed "
         "from [] to [1]"),
    ],
)  # fmt: skip
def test_t03(before: dp.Device, now: dp.Device, expected: str) -> None:
    run = Run(lists=lambda resource, since: [listed(before)])
    run.new_list = lambda resource: dp.ListAndWatchResponse(devices=[now])  # type: ignore[method-assign, assignment]
    assert outcome("T03", run) == expected


def test_o01() -> None:
    run = Run(client=Client(options=options()))
    assert outcome("O01", run) == "pass: 0.000 s"
    assert run.to_plugin.made == [("options", 10.0)] * 3
    run = Run(client=Client(options=[options(), options(), options(pre_start=True)]))
    assert outcome("O01", run) == (
        f"fail: {GPU}: two GetDevicePluginOptions calls returned different options"
    )


@pytest.mark.parametrize(("seconds", "result"), [(1.0, "pass: 1.000 s"), (1.5, "fail: ")])
def test_o01_uses_the_fastest_call(
    seconds: float, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 9.0, 10.0, 10.0 + seconds, 20.0, 29.0])
    monkeypatch.setattr(
        "devicemanager.conformance.checks.options.time",
        SimpleNamespace(monotonic=lambda: next(times)),
    )
    found = outcome("O01", Run(client=Client(options=options())))
    words = "GetDevicePluginOptions took 1.5 s, limit 1 s"
    assert found == (result if result.startswith("pass") else f"fail: {words}")


_NO_PREFERENCE = "skip: the plugin's options do not announce GetPreferredAllocation"


_NO_PRE_START = "skip: the plugin's options do not require PreStartContainer"


@pytest.mark.parametrize(
    ("id_", "client", "expected"),
    [
        ("O02", Client(options=options()), _NO_PREFERENCE),
        ("O02", Client(options=options(preference=True)), "pass: None"),
        ("O02", Client(options=options(preference=True), preferred=error()), "fail: Allocate "
         "failed with INTERNAL: no"),
        ("O03", Client(options=options()), _NO_PRE_START),
        ("O03", Client(options=options(pre_start=True)), "pass: None"),
        ("O03", Client(options=options(pre_start=True), pre_start=error()), "fail: Allocate "
         "failed with INTERNAL: no"),
        ("O03", Client(options=options(pre_start=True), allocate=error()), "skip A05: Allocate of "
         "a: Allocate failed with INTERNAL: no"),
        ("O04", Client(options=options(True, True)), "skip: the plugin's options announce all "
         "optional calls"),
        ("O04", Client(options=options()), "pass: GetPreferredAllocation: OK, PreStartContainer: "
         "OK"),
        ("O04", Client(options=options(True), preferred=error("NOT_FOUND")), "pass: "
         "GetPreferredAllocation: NOT_FOUND"),
        ("O04", Client(options=options(False, True), pre_start=error("UNKNOWN")), "pass: "
         "PreStartContainer: UNKNOWN"),
    ],
)  # fmt: skip
def test_optional_calls(id_: str, client: Client, expected: str) -> None:
    run = Run(device("a"), device("b"), client=client)
    assert outcome(id_, run) == expected
    made = {rpc: arguments for rpc, *arguments in client.made}
    assert made.get("preferred") in (None, [(["a"], [], 1)], [(["a", "b"], [], 1)])
    if id_ == "O04":
        assert made.get("preferred") in (None, [(["a"], [], 1)])
        is_pass = expected.startswith("pass")
        assert run.alive == (["calls that its options do not announce"] if is_pass else [])
    assert made.get("pre_start") in (None, [["a"]])


def preferring(answers: Any) -> Client:
    return Client(options=options(preference=True), preferred=answers)


def chosen(*requests: Any) -> Any:
    """Answer each request like a correct plugin."""
    return [
        [*must, *(id_ for id_ in available if id_ not in must)][:size]
        for available, must, size in requests
    ]


_FOR = "fail: GetPreferredAllocation of 2 devices from [a, b], which must include []: "


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (chosen, "pass: None"),
        (error("UNIMPLEMENTED"), "skip O02: Allocate failed with UNIMPLEMENTED: no"),
        (error(), f"{_FOR}Allocate failed with INTERNAL: no"),
        (lambda *_: [], f"{_FOR}the plugin returned 0 responses for one container"),
        (lambda *_: [["a"], ["b"]], f"{_FOR}the plugin returned 2 responses for one container"),
        (lambda *_: [["a", "a"]], f"{_FOR}the response contains a device twice: [a, a]"),
        (lambda *_: [["a"]], f"{_FOR}the response has 1 device: [a]"),
        (lambda *_: [[*"abcdef"]], f"{_FOR}the response has 6 devices: [a, b, c, d and 2 more]"),
        (lambda *_: [["z", "y"]], f"{_FOR}the response has y, which is not available"),
        (
            [chosen, lambda *_: [["b"]]],
            "fail: GetPreferredAllocation of 1 device from [a, b], which must include [a]: the "
            "response lacks a, which it must include",
        ),
    ],
)
def test_invalid_preferences(answers: Any, expected: str) -> None:
    run = Run(device("a"), device("b"), client=preferring(answers))
    assert outcome("P02", run) == expected


def test_requests_for_preferences() -> None:
    ids = [f"d{number:02}" for number in range(20)]
    run = Run(*map(device, ids), client=preferring(chosen))
    run.rng = random.Random(1)
    assert outcome("P01", run) == "pass: None"
    requests = [request for rpc, *rest in run.to_plugin.made if rpc == "preferred"
                for request in rest]  # fmt: skip
    assert len(requests) == 30
    for available, must, size in requests:
        assert {*must} <= {*available} <= {*ids}
        assert len(must) <= size <= len(available) and size >= 1
    assert any(len(must) not in (0, size) for _, must, size in requests)
    for id_, expected in (
        ("P02", [(ids, [], 20), (ids, ids[:1], 1), (ids, ids, 20)]),
        ("P03", [([each for each in ids if each != gone], [], 1) for gone in ids[:16]]),
        ("P04", [(ids, [], 21), (ids[1:], ids[:1], 1), ([], [], 1), (ids, [], -1),
                 (["no-such-device"], [], 1)]),
        ("P05", [(ids, [], 8)] * 10),
        ("P06", [(ids, [], 1)] * 7),
    ):  # fmt: skip
        run = Run(*map(device, ids), client=preferring(chosen))
        run.timed = lambda call, what: (call(), 0.5)[1]  # type: ignore[method-assign]
        assert outcome(id_, run) == ("pass: 0.500 s" if id_ == "P05" else "pass: None")
        made = [request for rpc, *rest in run.to_plugin.made if rpc == "preferred"
                for request in rest]  # fmt: skip
        assert made == expected
        assert run.alive == (["impossible requests"] if id_ == "P04" else [])


@pytest.mark.parametrize(
    ("id_", "count", "answers", "expected"),
    [
        ("P03", 1, chosen, "skip: needs 2 healthy devices, the plugin has 1"),
        ("P03", 2, chosen, "pass: None"),
        ("P06", 1, lambda *requests: chosen(*requests[:1]), "fail: GetPreferredAllocation returned "
         "1 response for 2 containers"),
        ("P06", 1, [chosen, error()], "fail: 2 containers: Allocate failed with INTERNAL: no"),
        ("P06", 1, error("UNIMPLEMENTED"), "skip O02: Allocate failed with UNIMPLEMENTED: no"),
        ("P04", 1, error(), "pass: None"),
        ("P04", 1, error("UNAVAILABLE"), "fail: Allocate failed with UNAVAILABLE: no"),
    ],
)  # fmt: skip
def test_other_preferences(id_: str, count: int, answers: Any, expected: str) -> None:
    run = Run(*[device(f"d{number}") for number in range(count)], client=preferring(answers))
    assert outcome(id_, run) == expected


@pytest.mark.parametrize(
    ("count", "size"), [(1, 1), (2, 1), (3, 2), (14, 7), (15, 8), (16, 8), (17, 8), (20, 8)]
)
def test_p05_requests_half_of_the_devices_but_at_most_8(count: int, size: int) -> None:
    run = Run(*[device(f"d{number:02}") for number in range(count)], client=preferring(chosen))
    run.timed = lambda call, what: (call(), 1.0)[1]  # type: ignore[method-assign]
    assert outcome("P05", run) == "pass: 1.000 s"
    assert run.to_plugin.made[-1][1][2] == size


def test_p05_compares_the_responses_and_the_fastest_call() -> None:
    devices = [device(id_) for id_ in "cab"]
    run = Run(*devices, client=preferring([chosen] * 9 + [lambda *_: [["b", "c"]]]))
    run.timed = lambda call, what: (call(), 1.0)[1]  # type: ignore[method-assign]
    assert outcome("P05", run) == (
        "fail: GetPreferredAllocation returned ['a', 'b'] and ['b', 'c'] for the same request"
    )
    times = iter([9.0, 1.5, *[2.0] * 8])
    run = Run(*devices, client=preferring(chosen))
    run.timed = lambda call, what: (call(), next(times))[1]  # type: ignore[method-assign]
    assert outcome("P05", run) == "fail: GetPreferredAllocation took 1.5 s, limit 1 s"


def starting(*answers: Any) -> Client:
    return Client(options=options(pre_start=True), pre_start=[*answers])


_SLOW = "skip S01: call 2: PreStartContainer failed with DEADLINE_EXCEEDED: no"


@pytest.mark.parametrize(
    ("id_", "client", "expected"),
    [
        ("S01", starting(None), "pass: 0.000 s"),
        ("S01", starting(error("UNIMPLEMENTED")), "skip O03: Allocate failed with UNIMPLEMENTED: "
         "no"),
        ("S01", starting(error("DEADLINE_EXCEEDED")), "fail: the first call: Allocate failed with "
         "DEADLINE_EXCEEDED: no"),
        ("S02", starting(None, None, None), "pass: None"),
        ("S02", starting(None, None, error()), "fail: call 3: Allocate failed with INTERNAL: no"),
        ("S02", starting(None, error("DEADLINE_EXCEEDED", "PreStartContainer")), _SLOW),
        ("S03", starting(None), "pass: None"),
        ("S03", starting(error()), "fail: after the plugin's restart: Allocate failed with "
         "INTERNAL: no"),
        ("S04", starting(None), "fail: PreStartContainer accepted an unknown ID"),
        ("S04", starting(error()), "pass: None"),
    ],
)  # fmt: skip
def test_pre_start(id_: str, client: Client, expected: str) -> None:
    run = Run(device("a"), device("b"), client=client)
    run.plugin.end = lambda process: run.seen.append("end")
    assert outcome(id_, run) == expected
    made = [arguments for rpc, *arguments in client.made if rpc == "pre_start"]
    wanted = [["no-such-device"]] if id_ == "S04" else [["a"], 30.0]
    assert all(each == wanted for each in made) and made
    assert ("allocate", ["a"]) in client.made
    if id_ == "S03":
        assert run.seen == ["start", "end", "relaunch after the plugin's restart"]


def test_s03_needs_the_device_after_the_restart() -> None:
    run = Run(device("a"), client=starting(None))
    lists = iter([[device("a")], [device("a")], [device("b")]])
    run.observed.devices = lambda resource: next(lists)
    run.plugin.end = lambda process: None
    assert outcome("S03", run) == "skip K13: the restarted plugin does not list a"
