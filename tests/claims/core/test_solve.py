"""The solver against a brute force, and what must hold for every answer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from devicemanager.claims.core.inventory import Inventory
from devicemanager.claims.core.ir import Claim, Infeasible, Solution
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.solve import solve
from tests.claims.core import cases
from tests.claims.core.brute_force import first_answer


@st.composite
def situations(draw: st.DrawFn) -> tuple[Inventory, Ledger, list[Claim]]:
    """Some claims before, some of them released, and a joint call."""
    inventory = draw(cases.inventories())
    ledger = Ledger()
    for number in range(draw(st.integers(0, 2))):
        outcome = solve(inventory, ledger, draw(cases.calls(inventory, f"before{number}-", 1)))
        if isinstance(outcome, Solution):
            ledger.commit(inventory, outcome.allocations)
    return inventory, ledger, draw(cases.calls(inventory, "new"))


@given(situations())
@settings(max_examples=500)
def test_the_solver_finds_what_a_brute_force_finds(
    situation: tuple[Inventory, Ledger, list[Claim]],
) -> None:
    inventory, ledger, claims = situation
    expected = first_answer(inventory, ledger, claims)
    outcome = solve(inventory, ledger, claims)
    if expected is None:
        assert isinstance(outcome, Infeasible)
    else:
        assert isinstance(outcome, Solution)
        assert outcome.allocations == expected
