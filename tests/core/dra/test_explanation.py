"""What the claims of a pod wait for, and the descriptions of all claims of a node."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.claim_infos import Node, claim_infos
from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.explanation import KEPT, NOT_ALLOCATED, Attempt, explain
from devicemanager.core.dra.model import (
    AllocationResult,
    ClaimInfo,
    ClaimKey,
    DriverState,
    ExtendedClaim,
    PodClaim,
    PodClaims,
    PreparedDevice,
    ResourceClaim,
)
from devicemanager.core.dra.report import ClaimDevice, ClaimState, ResourceClaimInfo
from tests.dra_world import GPU, NIC, claim, pod, rules

NOTHING = Attempt(has_sandbox=False)
NOT_CALLED = (
    "nothing is missing: the kubelet calls NodePrepareResources before it starts a container of "
    "the pod"
)
ASK = "`devicemanager dra explain` shows what the claim waits for"
FAILED = Attempt(has_sandbox=False, error="broken")
FAILED_TEXT = "the last attempt to prepare the pod's claims failed: broken"


def drivers(*connected: str, unconnected: tuple[str, ...] = ()) -> Drivers:
    made = Drivers(rules())
    for name in (*connected, *unconnected):
        instance = made.register(name, f"/{name}.sock", ["v1.DRAPlugin"], 0.0)
        made.set_connected(instance.id, name in connected, 0.0)
    return made


def held(name: str = "c1", *, pods: str = "p-uid", **fields: object) -> ClaimInfo:
    given = {"uid": f"{name}-uid", "pods": frozenset(pods.split()), **fields}
    return ClaimInfo("default", name, **given)


def explained(
    found: object,
    used: PodClaims | None = None,
    cache: tuple[ClaimInfo, ...] = (),
    known: Drivers | None = None,
    attempt: Attempt = NOTHING,
) -> tuple[ClaimState, str]:
    fetched: list[str] = []

    def fetch(name: str) -> object:
        fetched.append(name)
        return found

    absent = {NIC: "it deregistered 5 s ago"}
    (one,) = explain(
        used or pod(), fetch, ClaimCache(cache), known or drivers(GPU), rules(), absent, attempt
    )
    assert fetched == ([] if one.claim is None else [one.claim])
    return one.state, one.text


def test_states_of_a_claim_in_the_order_of_prepare():
    """Each row fixes what the row before it reports."""
    templated = attrs.evolve(pod(), claims=(PodClaim("x0", template="t"),), statuses={"x0": "c1"})
    owned = {"owner": "p-uid"}
    both = claim("c1", NIC, GPU)
    found = [
        explained("no such claim", templated),
        explained(attrs.evolve(both, results=None, reserved=()), templated),
        explained(attrs.evolve(both, results=None, reserved=(), **owned), templated),
        explained(attrs.evolve(both, reserved=("q-uid",), **owned), templated),
        explained(attrs.evolve(both, **owned), templated, known=drivers()),
        explained(attrs.evolve(both, **owned), templated, known=drivers(GPU)),
        explained(attrs.evolve(both, **owned), templated, known=drivers(GPU, unconnected=(NIC,))),
        explained(attrs.evolve(both, **owned), templated, known=drivers(GPU, NIC)),
    ]
    assert found == [
        (ClaimState.NOT_FOUND, "no such claim"),
        (ClaimState.NOT_OWNED, "the claim was created for another pod"),
        (ClaimState.NOT_ALLOCATED, NOT_ALLOCATED),
        (
            ClaimState.NOT_RESERVED,
            "the claim is not reserved for the pod: the scheduler adds the pod's UID p-uid to "
            "status.reservedFor",
        ),
        (
            ClaimState.NO_DRIVER,
            f"DRA driver {GPU} is not registered: it has not registered since the kubelet started",
        ),
        (ClaimState.NO_DRIVER, f"DRA driver {NIC} is not registered: it deregistered 5 s ago"),
        (
            ClaimState.NOT_CONNECTED,
            f"DRA driver {NIC} does not accept connections on /{NIC}.sock",
        ),
        (ClaimState.NOT_PREPARED, NOT_CALLED),
    ]


def test_texts_for_users():
    assert KEPT == (
        "prepared before the kubelet restarted: the kubelet calls NodePrepareResources again only "
        "for a new sandbox"
    )
    assert NOT_ALLOCATED == (
        "the claim is not allocated: the scheduler allocates it, and then reserves it for the pod; "
        "`devicemanager dra allocate --control DIR`, with the kubelet's --root as DIR, shows why "
        "it does not fit"
    )


def test_claim_without_a_template_may_have_any_owner():
    assert explained(attrs.evolve(claim(), owner="q-uid"))[0] is ClaimState.NOT_PREPARED


@pytest.mark.parametrize(
    ("cache", "attempt", "expected"),
    [
        (held(prepared=True), NOTHING, (ClaimState.PREPARED, "prepared")),
        (held(prepared=True), FAILED, (ClaimState.PREPARED, "prepared")),
        (
            held(unpreparing=True, prepared=True),
            NOTHING,
            (ClaimState.UNPREPARING, "a driver still unprepares the claim for another pod"),
        ),
        (
            held(uid="old", pods="z-uid a-uid", prepared=True, unpreparing=True),
            NOTHING,
            (
                ClaimState.OTHER_UID,
                "the node still holds an older claim with this name and the UID old, for the pods "
                "a-uid, z-uid",
            ),
        ),
        (held(), NOTHING, (ClaimState.NOT_PREPARED, NOT_CALLED)),
        (held("c2", prepared=True), NOTHING, (ClaimState.NOT_PREPARED, NOT_CALLED)),
        (held(), FAILED, (ClaimState.PREPARE_FAILED, FAILED_TEXT)),
        (
            held(),
            attrs.evolve(FAILED, retry_at="12:00:03"),
            (
                ClaimState.PREPARE_FAILED,
                f"{FAILED_TEXT}: the kubelet tries again at 12:00:03, or at once with "
                "`devicemanager ctl resync`",
            ),
        ),
        # The error of a pod that ends is about unpreparing its claims.
        (held(), attrs.evolve(FAILED, ending=True), (ClaimState.NOT_PREPARED, NOT_CALLED)),
    ],
)
def test_states_of_a_claim_that_could_be_prepared(cache, attempt, expected):
    assert explained(claim(), cache=(cache,), attempt=attempt) == expected


@pytest.mark.parametrize(
    ("cache", "sandbox", "kept"),
    [
        (held(), True, True),
        (held(), False, False),
        (held(pods="q-uid"), True, False),
        (held(prepared=True), True, False),
        (held(unpreparing=True), True, False),
        (held(uid="old"), True, False),
        (held("c2"), True, False),
    ],
)
def test_pod_with_a_sandbox_keeps_its_claims_after_a_restart(cache, sandbox, kept):
    """No driver has registered, so all other claims wait for one."""
    attempt = Attempt(has_sandbox=sandbox)
    found = explained(claim(), cache=(cache,), known=drivers(), attempt=attempt)
    assert (found == (ClaimState.PREPARED, KEPT)) is kept
    assert (found[0] is ClaimState.NO_DRIVER) is not kept


def test_each_entry_of_the_pod_is_explained():
    claims = (
        PodClaim("missing", template="t"),
        PodClaim("unneeded", template="t"),
        PodClaim("direct", "c1"),
        PodClaim("made", template="t"),
    )
    used = attrs.evolve(
        pod(),
        claims=claims,
        statuses={"made": "c2", "unneeded": None},
        extended=ExtendedClaim("c3"),
    )
    found = explain(used, lambda name: f"no {name}", ClaimCache(), drivers(), rules(), {}, NOTHING)
    assert [(each.entry, each.claim, each.state, each.text) for each in found[1:]] == [
        ("unneeded", None, ClaimState.NOT_NEEDED, "no claim is needed"),
        ("direct", "c1", ClaimState.NOT_FOUND, "no c1"),
        ("made", "c2", ClaimState.NOT_FOUND, "no c2"),
        ("", "c3", ClaimState.NOT_FOUND, "no c3"),
    ]
    assert (found[0].entry, found[0].claim, found[0].state) == (
        "missing",
        None,
        ClaimState.NOT_CREATED,
    )
    assert found[0].text.endswith(
        'pod "default/p": ResourceClaim not created yet: the claim controller creates it from the '
        "template"
    )
    # Any pod may own the claim of extended resources, but only this pod the one of a template.
    owners = {"c2": "q-uid", "c3": "q-uid"}
    found = explain(
        used,
        lambda name: attrs.evolve(claim(name), owner=owners.get(name)),
        ClaimCache(),
        drivers(GPU),
        rules(),
        {},
        NOTHING,
    )
    assert [each.state for each in found[2:]] == [
        ClaimState.NOT_PREPARED,
        ClaimState.NOT_OWNED,
        ClaimState.NOT_PREPARED,
    ]


# -- all claims of a node --------------------------------------------------------------------


def infos(
    claims: tuple[ResourceClaim, ...] = (),
    pods: tuple[PodClaims, ...] = (),
    cache: tuple[ClaimInfo, ...] = (),
    attempts: dict[str, Attempt] | None = None,
) -> list[ResourceClaimInfo]:
    given = {each.uid: NOTHING for each in pods} | (attempts or {})
    by_key = {ClaimKey(each.namespace, each.name): each for each in claims}
    node = Node(by_key, pods, given, ClaimCache(cache), drivers(GPU, NIC), rules(), {})
    return list(claim_infos(node))


def test_description_has_all_fields():
    state = DriverState(
        (
            PreparedDevice("pool", "dev", "share", ("r",), ("v/c=a", "v/c=b")),
            PreparedDevice("pool", "second"),
        )
    )
    allocated = claim("c1", GPU, NIC)
    assert allocated.results is not None
    allocated = attrs.evolve(
        allocated, results=(*allocated.results, AllocationResult(NIC, "", "pool", "whole"))
    )
    (found,) = infos(
        (allocated,),
        (pod(),),
        (held(pods="p-uid a-uid", drivers={GPU: state}, prepared=True),),
        {"p-uid": attrs.evolve(FAILED, error="later"), "a-uid": attrs.evolve(FAILED, error="")},
    )
    assert found == ResourceClaimInfo(
        namespace="default",
        name="c1",
        uid="c1-uid",
        state=ClaimState.PREPARED,
        text="prepared",
        error="later",
        pods=("a-uid", "p-uid"),
        held=True,
        prepared=True,
        unpreparing=False,
        drivers=(GPU, NIC),
        devices=(
            ClaimDevice(
                driver=GPU,
                pool="pool",
                device="dev",
                share_id="share",
                requests=("r",),
                prepared=True,
                cdi_devices=("v/c=a", "v/c=b"),
            ),
            ClaimDevice(
                driver=GPU,
                pool="pool",
                device="second",
                share_id=None,
                requests=(),
                prepared=True,
                cdi_devices=(),
            ),
            ClaimDevice(
                driver=NIC,
                pool="pool",
                device="dev",
                share_id=None,
                requests=("r",),
                prepared=False,
                cdi_devices=(),
            ),
            ClaimDevice(
                driver=NIC,
                pool="pool",
                device="whole",
                share_id=None,
                requests=(),
                prepared=False,
                cdi_devices=(),
            ),
        ),
    )


def test_description_of_a_claim_that_only_the_cache_has():
    states = {NIC: DriverState(None), GPU: DriverState((PreparedDevice("pool", "d"),))}
    (found,) = infos(cache=(held(pods="q-uid", drivers=states, unpreparing=True),))
    assert (found.uid, found.held, found.prepared, found.unpreparing) == (
        "c1-uid",
        True,
        False,
        True,
    )
    # A driver that has prepared no device is also a driver of the claim.
    assert found.drivers == (GPU, NIC)
    assert [each.driver for each in found.devices] == [GPU]
    assert (found.pods, found.error) == (("q-uid",), "")


def test_description_of_a_claim_that_only_a_pod_names():
    (found,) = infos(pods=(pod(),))
    assert (found.uid, found.held, found.prepared, found.unpreparing) == ("", False, False, False)
    assert (found.drivers, found.devices, found.pods) == ((), (), ("p-uid",))


@pytest.mark.parametrize(
    ("claims", "cache", "expected"),
    [
        ((), held(pods="", prepared=True), (ClaimState.PREPARED, "prepared")),
        (
            (),
            held(pods="q-uid"),
            (
                ClaimState.NOT_PREPARED,
                "the node holds the claim for pods that it does not know",
            ),
        ),
        (
            (attrs.evolve(claim(), results=None),),
            None,
            (ClaimState.NOT_ALLOCATED, NOT_ALLOCATED),
        ),
        ((claim(),), None, (ClaimState.NOT_USED, "no pod of the node uses the claim")),
    ],
)
def test_states_of_a_claim_that_no_pod_uses(claims, cache, expected):
    (found,) = infos(claims, cache=() if cache is None else (cache,))
    assert (found.state, found.text) == expected


@pytest.mark.parametrize(
    ("cache", "attempt", "expected"),
    [
        (None, NOTHING, (ClaimState.NOT_PREPARED, ASK)),
        (held(prepared=True), NOTHING, (ClaimState.PREPARED, "prepared")),
        (held(), NOTHING, (ClaimState.NOT_PREPARED, ASK)),
        (held(), Attempt(has_sandbox=True), (ClaimState.PREPARED, KEPT)),
        (held(pods="q-uid"), Attempt(has_sandbox=True), (ClaimState.NOT_PREPARED, ASK)),
        (None, Attempt(has_sandbox=True), (ClaimState.NOT_PREPARED, ASK)),
        (None, FAILED, (ClaimState.PREPARE_FAILED, FAILED_TEXT)),
    ],
)
def test_states_of_a_claim_of_the_api_server(cache, attempt, expected):
    (found,) = infos(
        pods=(pod(),), cache=() if cache is None else (cache,), attempts={"p-uid": attempt}
    )
    assert (found.state, found.text) == expected


def test_first_pod_that_waits_explains_a_shared_claim():
    shared = claim(reserved=("p-uid", "q-uid"))
    both = (pod("p"), pod("q"))
    prepared = held(pods="p-uid q-uid", prepared=True)
    (found,) = infos((shared,), both, (prepared,))
    assert (found.state, found.text) == (ClaimState.PREPARED, "prepared")
    (found,) = infos((attrs.evolve(shared, reserved=("p-uid",)),), both, (prepared,))
    assert found.state is ClaimState.NOT_RESERVED and "q-uid" in found.text
    failed = {"p-uid": FAILED, "q-uid": attrs.evolve(FAILED, error="other")}
    (found,) = infos((shared,), both, attempts=failed)
    assert (found.error, found.text) == ("broken", FAILED_TEXT)


def test_owner_is_checked_for_claims_of_templates():
    templated = attrs.evolve(pod(), claims=(PodClaim("x0", template="t"),), statuses={"x0": "c1"})
    foreign = attrs.evolve(claim(), owner="q-uid")
    assert [each.state for each in infos((foreign,), (templated,))] == [ClaimState.NOT_OWNED]
    assert [each.state for each in infos((foreign,), (pod(),))] == [ClaimState.NOT_PREPARED]
    extended = attrs.evolve(pod(), claims=(), extended=ExtendedClaim("c1"))
    assert [each.state for each in infos((foreign,), (extended,))] == [ClaimState.NOT_PREPARED]


def test_claims_are_sorted_and_come_from_all_sources():
    used = attrs.evolve(
        pod("p", "c4"),
        claims=(
            PodClaim("x0", "c4"),
            PodClaim("missing", template="t"),
            PodClaim("unneeded", template="t"),
            PodClaim("made", template="t"),
        ),
        statuses={"unneeded": None, "made": "c0"},
        extended=ExtendedClaim("c2"),
    )
    other = attrs.evolve(claim("c9"), namespace="a")
    found = infos((claim("c3"), other), (used,), (held("c1"),))
    assert [each.title for each in found] == [
        "a/c9",
        *(f"default/{name}" for name in ("c0", "c1", "c2", "c3", "c4")),
    ]
    assert [each.pods for each in found] == [
        (),
        ("p-uid",),
        ("p-uid",),
        ("p-uid",),
        (),
        ("p-uid",),
    ]
