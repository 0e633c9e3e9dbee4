"""What the checks of Allocate say about a plugin: one row per outcome."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager.conformance import Hardware
from devicemanager.conformance.checks import (
    allocate,
)
from devicemanager.conformance.outcomes import Failed
from protos import deviceplugin_v1beta1 as dp
from tests.conformance.recorded_run import (
    GPU,
    NIC,
    allocating,
    answer,
    container,
    device,
    each_container,
    error,
    listed,
    mount,
    node,
    outcome,
)

_ALLOCATE = "Allocate failed with INTERNAL: no"


_REJECTED = " (pods with these devices are rejected with UnexpectedAdmissionError)"


@pytest.mark.parametrize("id_", ["A06", "A09", "A10", "A11", "A12", "A13", "A14", "A15", "A18"])
def test_checks_of_responses_need_devices_and_responses(id_: str) -> None:
    run = allocating(allocate=error())
    assert outcome(id_, run) == f"skip A05: Allocate of a: {_ALLOCATE}"
    run = allocating(allocate=lambda *groups: answer())
    text = "skip A01: Allocate of a returned 0 responses for one container"
    assert outcome(id_, run) in (text, text.replace(" a ", " a, b "))
    run.observed.devices = lambda resource: [device("a", "Unhealthy")]
    assert outcome(id_, run) == "skip: needs 1 healthy device, the plugin has none"


@pytest.mark.parametrize(
    ("id_", "answers", "expected"),
    [
        ("A01", each_container(envs={"A": "1"}), "pass: None"),
        ("A01", lambda *groups: answer(container()), "fail: Allocate returned 1 response for 2 "
         "containers"),
        ("A01", lambda *groups: error() if len(groups) > 1 else answer(container()), "fail: "
         f"Allocate for 2 containers: {_ALLOCATE}"),
        ("A01", lambda *groups: answer(*[
            container(envs={group[0]: "1"} if len(groups) < 3 else {}) for group in groups]),
         "fail: Allocate for 4 containers: the response for the container with a lacks [('env', "
         "'a')]"),
        ("A02", lambda group: error("NOT_FOUND"), "pass: NOT_FOUND"),
        ("A02", each_container(), "fail: Allocate accepted an unknown ID"),
        ("A03", lambda group: error(), "pass: None"),
        ("A03", each_container(), "fail: Allocate accepted a, which is unhealthy"),
        ("A04", lambda *groups: error(), "pass: None"),
        ("A04", each_container(), "fail: Allocate accepted an unknown ID next to a valid one: "
         "[['a', 'no-such-device']]"),
        ("A04", lambda *groups: error() if len(groups) == 1 else answer(), "fail: Allocate "
         "accepted an unknown ID next to a valid one: [['a'], ['no-such-device']]"),
        ("A05", each_container(envs={"A": "1"}), "pass: 2 devices"),
        ("A05", lambda group: error(), f"fail: Allocate of a: {_ALLOCATE}{_REJECTED}"),
        ("A06", each_container(), "pass: None"),
        ("A07", each_container(), "pass: 1000 allocations"),
        ("A08", each_container(), "pass: None"),
        ("A09", each_container(), "pass: 0.000 s"),
    ],
)  # fmt: skip
def test_allocate(id_: str, answers: Any, expected: str) -> None:
    run = allocating(allocate=answers)
    run.timed = lambda call, what: (call(), 0.0)[1]  # type: ignore[method-assign]
    run.assume_broken = lambda id_: run.seen.append(f"break {id_}")  # type: ignore[method-assign]
    assert outcome(id_, run) == expected
    made = [groups for _, *groups in run.to_plugin.made]
    wanted: dict[str, Any] = {
        "A02": [[["no-such-device"]]],
        "A03": [[["a"]]],
        "A05": [[["a"]], [["b"]], [["a", "b"]]],
        "A06": [[["a"]], [["a", "b"]], [["a", "b"]]],
        "A09": [[["a"]], [["a"]], [["a", "b"]]],
    }
    if expected.startswith("pass"):
        assert made[: len(wanted.get(id_, []))] == wanted.get(id_, [])
        number = {"A07": 1001, "A08": 161, "A05": 7}.get(id_, len(made))
        assert len(made) == number
    if id_ == "A02":
        assert run.alive == (["an unknown ID"] if expected.startswith("pass") else [])
    if id_ == "A03":
        assert run.seen == ["start", "break a"]


def test_a05_and_a06_compare_two_responses() -> None:
    run = allocating(
        "a", "b", "c", allocate=lambda group: answer(container(envs={group[0].upper(): "1"}))
    )
    run.rng = SimpleNamespace(sample=lambda ids, count: ids[:count][::-1])  # type: ignore[assignment]
    assert outcome("A05", run) == (
        f"fail: {GPU}: the Allocate response contains env A for only one order of the same IDs"
    )
    answers = [answer(container()), answer(container()), answer(container(envs={"B": "1"}))]
    assert outcome("A06", allocating(allocate=answers)) == (
        f"fail: {GPU}: only one of two Allocate responses for the same IDs contains env B"
    )


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"devices": [dp.DeviceSpec(host_path="/h", container_path="/c", permissions="rw")]},
         ("device", "/h:/c:rw")),
        ({"mounts": [dp.Mount(host_path="/h", container_path="/c", read_only=True)]},
         ("mount", "/h:/c:True")),
        ({"cdi_devices": [dp.CDIDevice(name="v/c=n")]}, ("cdi", "v/c=n")),
        ({"envs": {"A": "1"}}, ("env", "A")),
    ],
)  # fmt: skip
def test_content_of_a_response(fields: Any, content: tuple[str, str]) -> None:
    response = container(annotations={"x": "y"}, **fields)
    assert allocate._content(response) == {content}


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1.0, 1.0], "pass: 1.000 s"),
        ([0.1, 5.0, 0.7], "pass: 0.700 s"),
        ([2.0, 1.5, 3.0, 0.1], "warn: Allocate took 1.5 s, more than 1 s"),
    ],
)
def test_a09_repeats_slow_calls(times: list[float], expected: str) -> None:
    run, left = allocating(), iter(times)
    run.timed = lambda call, what: next(left)  # type: ignore[method-assign]
    assert outcome("A09", run) == expected
    assert list(left) == []


_WHAT = f"{GPU} a"


_ON_MACHINE = "does not exist on this machine"


@pytest.mark.parametrize(
    ("id_", "fields", "expected"),
    [
        ("A10", {}, "pass: None"),
        ("A10", {"devices": [node(), node()]}, "pass: None"),
        ("A10", {"devices": [node(permissions="mwr")]}, "pass: None"),
        *[("A10", {"devices": [node(permissions=each)]}, f"fail: {_WHAT}: /dev/null has invalid "
         f"permissions {each!r}: use r, w, m") for each in ("", "rr", "x", "rwmm")],
        ("A10", {"devices": [node("dev/null")]}, f"fail: {_WHAT}: invalid path 'dev/null': "
         "expected an absolute path"),
        ("A10", {"devices": [node(inside="x")]}, f"fail: {_WHAT}: invalid path 'x': expected an "
         "absolute path"),
        ("A10", {"devices": [node(), node("/dev/zero")]}, f"fail: {_WHAT}: the response has two "
         "devices for the container path /dev/x: /dev/null and /dev/zero"),
        ("A11", {}, "skip: no response has device nodes"),
        ("A11", {"devices": [node(), node("/dev/zero")]}, "pass: 2 device nodes"),
        ("A11", {"devices": [node(), node("/dev")]}, "pass: 2 device nodes"),
        ("A11", {"devices": [node("x")]}, f"skip A10: {_WHAT}: 'x' is not an absolute path"),
        ("A11", {"devices": [node("/etc/passwd")]}, f"fail: {_WHAT}: /etc/passwd is not a device "
         "node"),
        ("A11", {"devices": [node("/dev/no"), node("/dev/n1"), node()]}, f"warn: {_WHAT}: the "
         f"device node /dev/no {_ON_MACHINE}: declare fake hardware with --dev"),
        ("A12", {}, "pass: None"),
        ("A12", {"mounts": [mount(), mount()]}, "pass: None"),
        ("A12", {"mounts": [mount("x")]}, f"fail: {_WHAT}: invalid path 'x': expected an absolute "
         "path"),
        ("A12", {"mounts": [mount(inside="x")]}, f"fail: {_WHAT}: invalid path 'x': expected an "
         "absolute path"),
        *[("A12", {"mounts": [mount(each)]}, f"fail: {_WHAT}: the response mounts the plugin "
         f"directory {each}") for each in ("/tmp/p", "/tmp/p/", "/var/lib/kubelet/device-plugins")],
        ("A12", {"mounts": [mount("/no/a"), mount("/no/b", "/y")]}, f"warn: {_WHAT}: the mount "
         f"/no/a {_ON_MACHINE}"),
        ("A12", {"mounts": [mount(), mount("/etc")]}, f"fail: {_WHAT}: the response has two mounts "
         "for the container path /x: /dev and /etc"),
        ("A13", {"envs": {"A": "1", "é.-": ""}}, "pass: None"),
        *[("A13", {"envs": {each: "1"}}, f"fail: {_WHAT}: invalid variable name {each!r}: use no = "
         "and no control characters") for each in ("", "A=", "A\n", "A\x7f", "\x1f")],
        ("A13", {"envs": {"A": "x\0"}}, f"fail: {_WHAT}: the value of variable A contains a NUL "
         "character"),
        ("A14", {}, "skip: no response has CDI devices"),
        ("A14", {"cdi_devices": [dp.CDIDevice(name="v.com/c=a")]}, "pass: 1 CDI device"),
        ("A14", {"cdi_devices": [dp.CDIDevice(name="a")]}, f"fail: {_WHAT}: invalid CDI device "
         "'a': expected vendor/class=name"),
        ("A15", {"annotations": {"example.com/" + "x" * 63: "1", "a.B-c_1": ""}}, "pass: None"),
        *[("A15", {"annotations": {each: "1"}}, f"fail: {_WHAT}: invalid annotation key {each!r}: "
         "expected a valid name of up to 63 characters") for each in ("x" * 64, "-a", "a-", "a/")],
        ("A15", {"annotations": {"cdi.k8s.io/x": "v/c=a,v/c=b"},
                 "cdi_devices": [dp.CDIDevice(name="v/c=b")]}, f"fail: {_WHAT}: CDI device v/c=b "
         "is in an annotation and in cdi_devices"),
        ("A15", {"annotations": {"other/x": "v/c=b"},
                 "cdi_devices": [dp.CDIDevice(name="v/c=b")]}, "pass: None"),
        ("A18", {}, "pass: 0 device nodes"),
        ("A18", {"devices": [node()]}, f"warn: {GPU}: all devices have the same device node "
         "/dev/null, so a device may be used by several pods"),
    ],
)  # fmt: skip
def test_contents_of_responses(id_: str, fields: dict[str, Any], expected: str) -> None:
    assert outcome(id_, allocating(allocate=each_container(**fields))) == expected


def test_paths_in_declared_directories_must_exist(tmp_path: Path) -> None:
    run = allocating(allocate=each_container(devices=[node("/dev/no")]))
    run.plugin.under_test.hardware = Hardware(dev=tmp_path)
    assert outcome("A11", run) == (
        f"fail: {_WHAT}: the device node /dev/no does not exist in {tmp_path} (--dev)"
    )
    (tmp_path / "no").touch()
    run.plugin.path = lambda path: tmp_path / Path(path).name
    assert outcome("A11", run) == "pass: 1 device node"


def test_a14_resolves_names_in_the_declared_directory(tmp_path: Path) -> None:
    spec = '{"cdiVersion": "0.6.0", "kind": "v.com/c", "devices": [{"name": "a", "containerEdits": '
    (tmp_path / "c.json").write_text(spec + '{"env": ["A=1"]}}]}')
    for name, expected in (("v.com/c=a", "pass: 1 CDI device"), ("v.com/c=b", "warn: ")):
        run = allocating(allocate=each_container(cdi_devices=[dp.CDIDevice(name=name)]))
        run.plugin.under_test.hardware = Hardware(cdi=tmp_path)
        found = outcome("A14", run)
        assert found.startswith(expected)
        assert expected.startswith("pass") or found.endswith(f", in {tmp_path}")


@pytest.mark.parametrize(
    ("resources", "names", "expected"),
    [
        ((GPU,), [], "skip: needs 2 resources, the plugin has 1"),
        ((GPU, NIC), [{"envs": {"A": "1"}}, {"envs": {"A": "1"}}], "pass: None"),
        ((GPU, NIC), [{"envs": {"A": "1"}}, {"envs": {"A": "2"}}], f"fail: variable A is '1' for "
         f"{GPU}, but '2' for {NIC}"),
        ((GPU, NIC), [{"mounts": [mount("/a")]}, {"mounts": [mount("/b")]}], "fail: mount /x is "
         f"'/a' for {GPU}, but '/b' for {NIC}"),
        ((GPU, NIC), [{"devices": [node("/a")]}, {"devices": [node("/b")]}], "fail: device /dev/x "
         f"is '/a' for {GPU}, but '/b' for {NIC}"),
        ((GPU, NIC), [{"envs": {"/x": "1"}}, {"mounts": [mount("/b")]}], "pass: None"),
    ],
)  # fmt: skip
def test_a16(resources: Any, names: list[Any], expected: str) -> None:
    responses = [answer(container(**fields)) for fields in names for _ in range(2)]
    run = allocating(allocate=responses)
    run.resources = resources
    assert outcome("A16", run) == expected


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (0, "an empty request"),
        (1, "a request without device IDs"),
        (2, "a request with an ID twice"),
        (3, "a request with an unknown field"),
    ],
)
def test_a17(number: int, what: str) -> None:
    answers: list[Any] = [b"", error(), b"", b""]
    run = allocating(raw=list(answers))
    assert outcome("A17", run) == "pass: None"
    assert run.alive == ["unusual requests"]
    path = "/v1beta1.DevicePlugin/Allocate"
    twice, once = b"\n\x06\n\x01a\n\x01a", b"\n\x03\n\x01a"
    requests = [b"", b"\n\0", twice, b"\xc2\x3e\x01x" + once]
    assert run.to_plugin.made == [("raw", path, request, 10.0) for request in requests]
    answers[number] = error("UNAVAILABLE")
    run = allocating(raw=answers)
    assert outcome("A17", run) == f"fail: {what}: Allocate failed with UNAVAILABLE: no"
    assert run.alive == [what]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["a", "b", "c"], "pass: 3 device nodes"),
        (["ax", "bx", "cx"], "pass: 4 device nodes"),
        (["ax", "b", "cx"], f"fail: {GPU}: a and c have the same device node /x"),
        (["xy", "xy", "xy"], f"warn: {GPU}: all devices have the same device node /x, so a device "
         "may be used by several pods"),
        (["", "", ""], "pass: 0 device nodes"),
    ],
)  # fmt: skip
def test_a18(nodes: list[str], expected: str) -> None:
    of = dict(zip("abc", nodes, strict=True))
    run = allocating(
        *"abc",
        allocate=lambda group: answer(
            container(devices=[node(f"/{each}", f"/{each}") for each in of[group[0]]])
        ),
    )
    assert outcome("A18", run) == expected


def test_one_device_shares_no_node() -> None:
    run = allocating("a", allocate=each_container(devices=[node()]))
    assert outcome("A18", run) == "pass: 1 device node"


@pytest.mark.parametrize(
    ("alone", "both", "is_failure"),
    [
        ([{"A": "1"}, {"A": "2"}], {"A": "1,2"}, False),
        ([{"A": "1"}, {"A": "1"}], {"A": "1"}, False),
        ([{"A": "1"}, {"A": "2"}], {"A": "1"}, True),
        ([{"A": "1"}, {"A": "2"}], {"A": "2"}, True),
        ([{"A": "1"}, {"A": "2"}], {}, False),
        # The other device is named elsewhere.
        ([{"A": "1"}, {"A": "2"}], {"A": "1", "B": "x2x"}, False),
        ([{"A": "1"}, {"A": "2", "B": ""}], {"A": "1", "B": ""}, False),
        ([{"A": "1", "B": ""}, {"A": "2"}], {"A": "1", "B": ""}, True),
        ([{"A": "1", "B": ""}, {"A": "2"}], {"A": "2", "B": ""}, False),
        # Each common variable is compared.
        *[
            ([{"A": "1", **more}, {"A": "2", **more}], {"A": "1", **more}, True)
            for more in ({each: "same"} for each in "BCDEFGH")
        ],
    ],
)
def test_both_devices_are_named(alone: Any, both: dict[str, str], is_failure: bool) -> None:
    try:
        allocate._check_both_named(GPU, ["a", "b"], alone, both)
    except Failed as failed:
        assert is_failure
        assert str(failed) == (
            f"{GPU}: variable A is '1' for a, '2' for b, and {both['A']!r} for both together: the "
            "value of one device is missing"
        )
    else:
        assert not is_failure


@pytest.mark.parametrize(
    ("later", "lists", "expected"),
    [
        ([device("a"), device("n")], 1, "pass: None"),
        ([device("a")], 1, "fail: no device list contains a new device within 0 s: the hook "
         "add-device must add a device that the plugin did not have"),
        ([device("a")], 0, "fail W07: the plugin sent no device list after the first one: none "
         "came within 0 s after add-device"),
    ],
)  # fmt: skip
def test_a19(later: list[dp.Device], lists: int, expected: str) -> None:
    run = allocating("a", allocate=each_container())
    run.observed.lists = lambda resource, since: [listed(stream_message=1)] * lists
    known = iter([[device("a")]] * 2)
    run.observed.devices = lambda resource: next(known, later)
    symptom = " (a device that is added is not used until the plugin restarts)"
    is_pass = expected.startswith("pass")
    assert outcome("A19", run) == (expected if is_pass else expected + symptom)
    assert run.seen[:3] == ["start", "hook add-device", ("add-device", "")]
    if is_pass:
        assert run.to_plugin.made[-1] == ("allocate", ["n"])
