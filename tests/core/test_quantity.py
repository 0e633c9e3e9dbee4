"""Quantities: exact amounts, order, and canonical text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.quantity import (
    LARGEST,
    NANOS,
    Quantity,
    canonical,
    milli_units,
    parse_quantity,
    round_down,
    round_up,
    whole_units,
)

SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
            "e3", "E-2", "e+6"]  # fmt: skip
TEXTS = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{fraction}{suffix}",
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**12),
    st.sampled_from(["", ".", ".5", ".000000001", ".123456789012"]),
    st.sampled_from(SUFFIXES),
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1Ki", "1Ki"),
        ("-1Ki", "-1Ki"),
        ("0.25Gi", "256Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1000.1Ki", "1024102400m"),
        ("100000", "100k"),
        ("1536", "1536"),
        ("1e3", "1e3"),
        ("15e5", "1500e3"),
        ("2.5e3", "2500"),
        ("1000n", "1u"),
        ("0.5n", "1n"),
        ("-0.5n", "-1n"),
        ("-1500m", "-1500m"),
        ("0Gi", "0"),
        ("1000E", "1000E"),
    ],
)
def test_canonical_text(text, written):
    assert str(Quantity.parse(text)) == written


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", "1K", "1 Gi", "1e", "e3", "m", ".", "+", "0x10", "1_000", "1" * 400, "\u0661"],
)
def test_invalid_quantities(text):
    with pytest.raises(ValueError, match=r"quantit|numeric"):
        Quantity.parse(text)


@given(TEXTS)
def test_canonical_text_is_the_same_quantity(text):
    quantity = Quantity.parse(text)
    again = Quantity.parse(str(quantity))
    assert again == quantity and hash(again) == hash(quantity)
    assert str(again) == str(quantity)


@given(TEXTS, TEXTS)
def test_order_depends_on_the_amount(one, other):
    left, right = Quantity.parse(one), Quantity.parse(other)
    assert (left < right, left == right) == (left.nanos < right.nanos, left.nanos == right.nanos)


def test_equal_amounts_in_different_formats_are_equal():
    assert Quantity.parse("1Gi") == Quantity.parse("1024Mi") == Quantity.parse("1073741824")
    assert len({Quantity.parse("1k"), Quantity.parse("1000"), Quantity.parse("1e3")}) == 1


def test_amounts_are_limited_only_on_request():
    assert Quantity.parse("1e30").nanos == 10**39
    assert parse_quantity("1e30", LARGEST) == LARGEST
    assert parse_quantity("-1e30", LARGEST) == -LARGEST


@given(st.integers(-(10**24), 10**24))
def test_units_are_rounded_away_from_zero(nanos):
    for rounded, step in ((whole_units(nanos), NANOS), (milli_units(nanos), NANOS // 1000)):
        assert abs(nanos) <= abs(rounded * step) < abs(nanos) + step
        assert rounded * nanos >= 0


@given(st.integers(0, 10**24), st.integers(1, 10**15))
def test_rounding_to_multiples(nanos, block):
    up, down = round_up(nanos, block), round_down(nanos, block)
    assert up % block == down % block == 0
    assert down <= nanos <= up and up - down == (0 if nanos % block == 0 else block)


@given(
    st.integers(-(10**30), 10**30),
    st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]),
)
def test_any_amount_can_be_written_in_any_format(nanos, form):
    assert parse_quantity(canonical(nanos, form)) == nanos


def test_default_format_is_decimal():
    assert canonical(1024 * NANOS) == "1024"
    assert canonical(2000 * NANOS) == "2k"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "quantities must match the regular expression "),
        ("x", "quantities must match the regular expression "),
        (".", "unable to parse numeric part of quantity"),
        ("-", "unable to parse numeric part of quantity"),
        ("1K", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
    ],
)
def test_errors_have_the_text_of_go(text, error):
    go = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    with pytest.raises(ValueError) as raised:  # the whole text is compared
        parse_quantity(text)
    assert str(raised.value) == error + (go if error.endswith(" ") else "")


def test_text_that_is_not_ascii_is_rejected():
    with pytest.raises(ValueError, match=r"^quantities must match"):
        parse_quantity("\u0661")
