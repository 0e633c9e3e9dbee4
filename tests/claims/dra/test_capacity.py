"""Texts for amounts that a request policy cannot represent, as in the Go source."""

import pytest

from devicemanager.claims.dra.capacity import Amount, Arithmetic, Capacity, CapacityError

LARGEST = str(2**63 - 1)


@pytest.mark.parametrize(
    ("wanted", "step", "text"),
    [
        (LARGEST, "2", f"rounding request {LARGEST} up to the next step passes MaxInt64"),
        (
            "9223372036854775807m",
            "2m",
            "rounding request 9223372036854775807m up to the next step passes the milli-value "
            "range",
        ),
        ("1500u", "2m", "request 1500u is not a representable milli value"),
        ("1e19", "2", "request 1e19 exceeds MaxInt64"),
    ],
)
def test_amount_that_cannot_be_rounded_has_the_text_of_the_allocator(wanted, step, text):
    limits = {"min": "0", "step": step}
    capacity = Capacity.of({"value": "1", "requestPolicy": {"validRange": limits}})
    with pytest.raises(CapacityError) as failed:
        capacity.consumed(Amount.parse(wanted), Arithmetic(fractional=step.endswith("m")))
    assert str(failed.value).endswith(text)
