"""Sets represented as integers, compared with Python's sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core import bitset

members = st.sets(st.integers(0, 200), max_size=60)


@given(members)
def test_numbers_are_ascending(numbers):
    # Both constructors return the given numbers, sorted.
    bits = bitset.of(numbers)
    assert list(bitset.numbers(bits)) == sorted(numbers)
    assert bitset.from_flags([n in numbers for n in range(201)]) == bits
    assert bits.bit_count() == len(numbers)


@given(members)
def test_select_returns_items_at_the_positions(numbers):
    # Both algorithms, for few and for many members, return the items in order.
    items = [f"item{n}" for n in range(201)]
    assert bitset.select(items, bitset.of(numbers)) == tuple(items[n] for n in sorted(numbers))


@given(members, st.integers(0, 70))
def test_lowest_returns_the_first_members(numbers, count):
    # The lowest are the first of the sorted members, or all of them.
    lowest = bitset.lowest(bitset.of(numbers), count)
    assert list(bitset.numbers(lowest)) == sorted(numbers)[:count]


@given(members, members)
def test_operators_agree_with_sets(a, b):
    # Operators on integers are union, intersection and difference of the sets.
    x, y = bitset.of(a), bitset.of(b)
    assert set(bitset.numbers(x | y)) == a | b
    assert set(bitset.numbers(x & y)) == a & b
    assert set(bitset.numbers(x & ~y)) == a - b


def test_empty_set():
    assert bitset.of([]) == bitset.from_flags([]) == 0
    assert bitset.select(["a"], 0) == ()
