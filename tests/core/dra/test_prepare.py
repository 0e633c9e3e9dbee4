"""Prepare and unprepare of current kubelets: checks, skipped calls, responses, and failures."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.dra.calls import check_count, checked_entries
from devicemanager.core.dra.effects import CallDriver, FetchClaim, WriteState
from devicemanager.core.dra.errors import DraError, PermanentDraError, StateWriteError
from devicemanager.core.dra.messages import WORDINGS, start_error
from devicemanager.core.dra.model import (
    AllocationResult,
    ClaimKey,
    ClaimRef,
    DriverState,
    ExtendedClaim,
    PodClaim,
    PreparedDevice,
    PrepareResult,
    UnprepareResult,
)
from devicemanager.core.dra.names import ClaimName, claim_names
from devicemanager.core.versions.table import DraWording
from tests.dra_world import GPU, NIC, World, claim, pod, rules

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
GROUPS = {"DRAWorkloadResourceClaims": True, "GenericWorkload": True}


def key(name: str = "c1") -> ClaimKey:
    return ClaimKey("default", name)


def error_of(world: World, used=None) -> str:
    with pytest.raises(DraError) as raised:
        world.prepare(used or pod())
    return str(raised.value)


def test_prepare_and_unprepare_fill_and_clear_the_cache():
    world = World(rules(), GPU, NIC)
    world.add(claim("c1", NIC, GPU))
    world.prepare(pod())
    held = world.cache.get(key())
    assert held is not None and held.prepared and held.pods == {"p-uid"}
    assert list(held.drivers) == [GPU, NIC]
    assert held.drivers[GPU].devices == (
        PreparedDevice("pool", "dev", None, ("r",), (f"{GPU}/d=c1",)),
    )
    # The state is written with the pod before the calls, and with the devices after them.
    written = [each.claims for each in world.effects if isinstance(each, WriteState)]
    assert [[each.drivers[GPU].devices is None for each in state] for state in written] == [
        [True],
        [False],
    ]
    assert world.calls() == [(GPU, PREPARE, ("c1",)), (NIC, PREPARE, ("c1",))]
    call = next(each for each in world.effects if isinstance(each, CallDriver))
    assert (call.service, call.claims) == ("v1", (ClaimRef("default", "c1", "c1-uid"),))
    assert isinstance(world.effects[0], FetchClaim)
    world.unprepare(pod())
    assert len(world.cache) == 0
    assert world.calls()[2:] == [(GPU, UNPREPARE, ("c1",)), (NIC, UNPREPARE, ("c1",))]
    assert isinstance(world.effects[-1], WriteState) and world.effects[-1].claims == ()


def test_shared_claim_is_prepared_and_unprepared_once():
    world = World(rules())
    world.add(claim(reserved=("p-uid", "q-uid")))
    world.prepare(pod("p"))
    world.prepare(pod("q"))
    world.unprepare(pod("p"))
    assert world.calls() == [(GPU, PREPARE, ("c1",))]
    held = world.cache.get(key())
    assert held is not None and held.pods == {"q-uid"} and held.prepared
    world.unprepare(pod("q"))
    assert world.calls()[1:] == [(GPU, UNPREPARE, ("c1",))]


def test_claim_must_be_allocated_reserved_and_owned():
    world = World(rules())
    prefix = "prepare dynamic resources: "
    assert error_of(world).startswith(f"{prefix}fetch ResourceClaim c1: ")
    world.add(attrs.evolve(claim(), reserved=("q-uid",), results=None))
    assert error_of(world) == (
        f"{prefix}pod p (p-uid) is not allowed to use ResourceClaim c1 (c1-uid)"
    )
    world.add(attrs.evolve(claim(), results=None))
    assert error_of(world) == f"{prefix}ResourceClaim c1: not allocated"
    world.add(attrs.evolve(claim(), results=()))
    world.prepare(pod())
    assert world.calls() == []


@pytest.mark.parametrize(
    ("gates", "group", "owner", "owner_group", "text"),
    [
        (GROUPS, None, "p-uid", None, ""),
        (GROUPS, "g", "p-uid", None, ""),
        (GROUPS, "g", None, "g", ""),
        (GROUPS, "g", "q-uid", "g", ""),
        (GROUPS, "g", "q-uid", "h", "neither Pod nor PodGroup g is the owner"),
        (GROUPS, None, "q-uid", None, "Pod is not owner"),
        ({}, "g", None, "g", "Pod is not owner"),
    ],
)
def test_claim_of_a_template_belongs_to_its_pod_or_pod_group(
    gates, group, owner, owner_group, text
):
    world = World(rules("1.37", **gates))
    world.add(attrs.evolve(claim(), owner=owner, owner_group=owner_group))
    used = attrs.evolve(
        pod(), claims=(PodClaim("x0", template="t"),), statuses={"x0": "c1"}, pod_group=group
    )
    if not text:
        world.prepare(used)
        return
    assert error_of(world, used) == (
        f"prepare dynamic resources: ResourceClaim default/c1 was not created for Pod default/p "
        f"({text})"
    )


@pytest.mark.parametrize(
    ("gates", "group", "groups", "allowed"),
    [
        (GROUPS, "g", ("h", "g"), True),
        (GROUPS, "g", ("h",), False),
        (GROUPS, None, ("g",), False),
        ({}, "g", ("g",), False),
    ],
)
def test_claim_can_be_reserved_for_a_pod_group(gates, group, groups, allowed):
    world = World(rules("1.37", **gates))
    world.add(attrs.evolve(claim(), reserved=(), reserved_groups=groups))
    used = attrs.evolve(pod(), pod_group=group)
    if allowed:
        world.prepare(used)
    else:
        assert "is not allowed to use ResourceClaim c1" in error_of(world, used)


ON = {"DRAOptionalNodeOperations": True}


@pytest.mark.parametrize(
    ("skips", "common"),
    [
        ([()], ()),
        ([("*",)], ("*",)),
        ([(PREPARE,)], (PREPARE,)),
        ([(UNPREPARE, PREPARE)], (PREPARE, UNPREPARE)),
        ([(PREPARE,), ()], ()),
        ([(PREPARE,), ("*",)], (PREPARE,)),
        ([(PREPARE, UNPREPARE), (UNPREPARE,)], (UNPREPARE,)),
        ([("*",), ("*", PREPARE)], ("*",)),
        ([(PREPARE,), (UNPREPARE,)], ()),
    ],
)
def test_calls_that_no_device_needs_are_skipped(skips, common):
    results = tuple(
        AllocationResult(GPU, "r", "pool", f"d{number}", each) for number, each in enumerate(skips)
    )
    world = World(rules("1.37", **ON))
    world.add(attrs.evolve(claim(), results=results))
    world.prepare(pod())
    held = world.cache.get(key())
    assert held is not None and held.drivers[GPU].skips == common
    world.unprepare(pod())
    expected = [each for each in (PREPARE, UNPREPARE) if not {each, "*"} & set(common)]
    assert [each[1] for each in world.calls()] == expected
    assert world.cache.skipped == {
        (each, GPU): 1 for each in (PREPARE, UNPREPARE) if each not in expected
    }


@pytest.mark.parametrize(("version", "rejected"), [("1.36", False), ("1.37", True)])
def test_skips_without_the_feature(version, rejected):
    world = World(rules(version))
    world.add(attrs.evolve(claim(), results=(AllocationResult(GPU, skips=("*",)),)))
    if rejected:
        assert error_of(world) == (
            "prepare dynamic resources: ResourceClaim c1: DRAOptionalNodeOperations feature gate "
            "is disabled on kubelet"
        )
        assert world.calls() == []
    else:
        world.prepare(pod())
        assert len(world.calls()) == 1


def test_driver_that_is_skipped_need_not_be_registered():
    world = World(rules("1.37", **ON))
    world.add(attrs.evolve(claim(), results=(AllocationResult(NIC, skips=("*",)),)))
    world.prepare(pod())
    assert world.calls() == []


@pytest.mark.parametrize(("version", "stored"), [("1.34", None), ("1.35", "share")])
@pytest.mark.parametrize("quirks", [(), ("Q35",)])
def test_devices_of_the_response_are_stored(version, stored, quirks, monkeypatch):
    world = World(rules(version, *quirks))
    world.add(claim())
    answer = world.answer
    responses = [(PreparedDevice("pool", "a", "share"), PreparedDevice("pool", "b")), ()]

    def respond(effect):
        if isinstance(effect, CallDriver):
            return {"c1-uid": PrepareResult(responses.pop(0))}
        return answer(effect)

    monkeypatch.setattr(world, "answer", respond)
    world.prepare(pod())
    devices = (PreparedDevice("pool", "a", stored), PreparedDevice("pool", "b"))
    held = world.cache.get(key())
    assert held is not None and held.drivers == {GPU: DriverState(devices)}
    # The claim is prepared again after a restart.
    world.cache.put(attrs.evolve(held, prepared=False))
    world.prepare(pod())
    held = world.cache.get(key())
    assert held is not None
    assert held.drivers == {GPU: DriverState(devices if quirks else None)}


def test_older_claim_and_unprepared_claim_are_refused():
    world = World(rules())
    world.add(claim())
    world.prepare(pod())
    held = world.cache.get(key())
    assert held is not None
    world.cache.put(attrs.evolve(held, unpreparing=True))
    assert error_of(world).endswith(": ResourceClaim c1 is being unprepared")
    world.cache.put(attrs.evolve(held, uid="old"))
    assert error_of(world).endswith(
        ": old ResourceClaim with same name c1 and different UID old still exists (previous pod "
        "force-deleted?!)"
    )
    assert len(world.calls()) == 1


@pytest.mark.parametrize("before", [True, False])
def test_failed_write_of_the_state_fails_the_prepare(before):
    world = World(rules())
    world.add(claim())
    world.fail(
        StateWriteError("disk full"),
        lambda effect: (
            isinstance(effect, WriteState)
            and (effect.claims[0].drivers[GPU].devices is None) is before
        ),
    )
    assert error_of(world).endswith("disk full")
    assert len(world.calls()) == (0 if before else 1)


@pytest.mark.parametrize("permanent", [True, False])
def test_permanent_error_stays_permanent(permanent, monkeypatch):
    world = World(rules("1.37", DRAHandlePermanentDriverFailures=True))
    world.add(claim())
    answer = world.answer

    def respond(effect):
        if isinstance(effect, CallDriver):
            return {"c1-uid": PrepareResult(error="broken", permanent=permanent)}
        return answer(effect)

    monkeypatch.setattr(world, "answer", respond)
    with pytest.raises(DraError) as raised:
        world.prepare(pod())
    assert type(raised.value) is (PermanentDraError if permanent else DraError)
    assert str(raised.value).startswith(f"prepare dynamic resources: {PREPARE} failed ")


# -- names, responses and messages -----------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
def test_claim_of_extended_resources_is_the_last_name(enabled):
    used = attrs.evolve(
        pod(),
        claims=(
            PodClaim("x", "c1"),
            PodClaim("none", template="t"),
            PodClaim("y", template="t"),
        ),
        statuses={"none": None, "y": "c2"},
        extended=ExtendedClaim("c0"),
    )
    last = [ClaimName("c0", False)] if enabled else []
    found = list(claim_names(used, rules("1.36", DRAExtendedResource=enabled)))
    assert found == [ClaimName("c1", False), ClaimName("c2", True), *last]


def test_entry_without_a_claim_and_a_template_is_an_error():
    with pytest.raises(DraError) as raised:
        list(claim_names(attrs.evolve(pod(), claims=(PodClaim("x"),)), rules()))
    assert str(raised.value) == (
        'pod "default/p", spec.resourceClaim "x": none of the supported fields are set'
    )


REFS = tuple(ClaimRef("ns", f"c{n}", f"u{n}") for n in range(3))


def test_entries_of_a_response_are_in_the_order_of_the_request():
    answer = {"u2": UnprepareResult(), "u0": UnprepareResult()}
    found = [ref for ref, _ in checked_entries(UNPREPARE, REFS, answer, rules())]
    assert found == [REFS[0], REFS[2]]


@pytest.mark.parametrize(
    ("answer", "before", "text"),
    [
        (
            {"u0": PrepareResult(), "u1": PrepareResult(error="broken")},
            1,
            f"{PREPARE} failed for ResourceClaim c1: broken",
        ),
        (
            {"other": PrepareResult(), "u0": PrepareResult(error="broken")},
            0,
            f"{PREPARE} failed for ResourceClaim c0: broken",
        ),
        (
            {"u2": PrepareResult(), "z": PrepareResult(), "a": PrepareResult()},
            1,
            f"{PREPARE} returned result for unknown claim UID a",
        ),
    ],
)
def test_errors_and_unknown_claims_in_a_response(answer, before, text):
    entries = checked_entries(PREPARE, REFS, answer, rules())
    for _ in range(before):
        next(entries)
    with pytest.raises(DraError) as raised:
        next(entries)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("gate", "permanent", "kind", "word"),
    [
        (True, True, PermanentDraError, "failed permanently"),
        (True, False, DraError, "failed"),
        (False, True, DraError, "failed"),
    ],
)
def test_permanent_error_of_a_driver(gate, permanent, kind, word):
    known = rules("1.37", DRAHandlePermanentDriverFailures=gate)
    answer = {"u0": PrepareResult(error="broken", permanent=permanent)}
    with pytest.raises(DraError) as raised:
        list(checked_entries(PREPARE, REFS, answer, known))
    assert type(raised.value) is kind
    assert str(raised.value) == f"{PREPARE} {word} for ResourceClaim c0: broken"


@pytest.mark.parametrize(("count", "missing"), [(0, 3), (2, 1), (3, 0), (4, -1)])
def test_response_must_have_all_claims(count, missing):
    answer = dict.fromkeys(map(str, range(count)))
    if not missing:
        check_count(PREPARE, REFS, answer, rules())
        return
    with pytest.raises(DraError) as raised:
        check_count(PREPARE, REFS, answer, rules())
    assert str(raised.value) == f"{PREPARE} skipped {missing} ResourceClaims"


@pytest.mark.parametrize("wording", DraWording)
def test_error_of_an_invalid_state_file_depends_on_the_part(wording):
    known = WORDINGS[wording]
    assert start_error("data", "bad", known) == known.entries.format(error="bad")
    assert start_error("file", "bad", known) == known.read.format(error="bad")
