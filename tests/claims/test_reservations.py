"""Reservations: the pods that use each claim."""

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.claims.allocated_claims import Reservations

STEPS = st.lists(
    st.tuples(st.sampled_from(["reserve", "leave"]), st.sampled_from("xyz"), st.sampled_from("pq")),
    max_size=20,
)


@given(STEPS)
def test_reservations_by_claim_and_by_pod_agree(steps):
    found, expected = Reservations(), set()
    for step, claim, pod in steps:
        if step == "reserve":
            assert found.reserve(claim, pod, f"name-{pod}") == ((claim, pod) not in expected)
            expected.add((claim, pod))
        else:
            used = sorted({c for c, p in expected if p == pod})
            assert list(found.remove([pod])) == used
            expected = {(c, p) for c, p in expected if p != pod}
        for each in "xyz":
            users = {p: f"name-{p}" for c, p in expected if c == each}
            assert found.users(each) == users
            assert found.names(each) == tuple(sorted(users.values()))
        for each in "pq":
            assert found.claims(each) == tuple(sorted(c for c, p in expected if p == each))
        assert found.pods() == {p for _, p in expected}
        assert found.others({"p"}) == tuple(sorted({p for _, p in expected} - {"p"}))
