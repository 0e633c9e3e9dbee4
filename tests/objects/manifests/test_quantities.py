"""Quantities are parsed to the same values as in k8s.io/apimachinery."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.quantity import LARGEST, NANOS, milli_units, whole_units
from devicemanager.objects.manifests.resources import parse_quantity


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("1", NANOS),
        ("+1", NANOS),
        ("-1", -NANOS),
        ("500m", NANOS // 2),
        ("0.5", NANOS // 2),
        (".5", NANOS // 2),
        ("5.", 5 * NANOS),
        ("1k", 1000 * NANOS),
        ("1Ki", 1024 * NANOS),
        ("1.5Gi", 3 * 2**29 * NANOS),
        ("1E", 10**18 * NANOS),
        ("1E3", 1000 * NANOS),
        ("1e3", 1000 * NANOS),
        ("1e+3", 1000 * NANOS),
        ("15e-1", 3 * NANOS // 2),
        ("1n", 1),
        ("0.1n", 1),
        ("-0.1n", -1),
        ("1e-999999999999", 1),
        ("0e999999999999", 0),
        ("1e999999999999", LARGEST),
        ("100Ei", LARGEST),
        ("9223372036854775807", LARGEST),
        ("9223372036854775808", LARGEST),
    ],
)
def test_parse_quantity_returns_nano_units(text: str, nanos: int) -> None:
    assert parse_quantity(text) == nanos


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "quantities must match"),
        ("gpu", "quantities must match"),
        ("1 ", "quantities must match"),
        ("1.2.3", "quantities must match"),
        ("1X", "quantities must match"),
        ("\u0661", "quantities must match"),
        ("1" * 301, "quantities must match"),
        (".", "unable to parse numeric part"),
        ("-", "unable to parse numeric part"),
        ("m", "unable to parse numeric part"),
        ("1K", "unable to parse quantity's suffix"),
        ("1mi", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        ("1Ki5", "unable to parse quantity's suffix"),
        ("1+5", "unable to parse quantity's suffix"),
    ],
)
def test_parse_quantity_rejects_other_texts(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        parse_quantity(text)


def test_amounts_round_up() -> None:
    assert milli_units(parse_quantity("1n")) == 1
    assert milli_units(parse_quantity("1.0001")) == 1001
    assert whole_units(parse_quantity("1001m")) == 2
    assert whole_units(parse_quantity("1Mi")) == 2**20


@given(
    st.decimals(min_value=0, max_value=10**9, places=6),
    st.sampled_from([("", 1), ("m", Decimal("0.001")), ("k", 1000), ("Ki", 1024), ("Gi", 2**30)]),
)
def test_parse_quantity_agrees_with_decimal_arithmetic(
    number: Decimal, suffix: tuple[str, Decimal]
) -> None:
    text, factor = suffix
    exact = number * factor * NANOS
    assert parse_quantity(f"{number:f}{text}") == min(
        exact.to_integral_value("ROUND_CEILING"), LARGEST
    )


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP", max_size=12))
def test_any_text_is_amount_or_value_error(text: str) -> None:
    try:
        amount = parse_quantity(text)
    except ValueError:
        return
    assert -LARGEST <= amount <= LARGEST
