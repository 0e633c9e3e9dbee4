"""FNV-1a from any state, compared with its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.fnv import OFFSET_BASIS, PRIME, Effect, extend, fnv1a_32, step

states = st.integers(0, 2**32 - 1)
texts = st.binary(max_size=300)


def reference(state: int, text: bytes) -> int:
    for byte in text:
        state = (state ^ byte) * PRIME % 2**32
    return state


def test_known_hashes():
    # From the FNV authors' test suite.
    assert fnv1a_32(b"") == OFFSET_BASIS == 0x811C9DC5
    assert fnv1a_32(b"a") == 0xE40C292C
    assert fnv1a_32(b"foobar") == 0xBF9CF968


@given(texts)
def test_hash_agrees_with_the_definition(text):
    assert fnv1a_32(text) == reference(OFFSET_BASIS, text)


@given(states, texts)
def test_extend_continues_from_a_state(state, text):
    assert extend(state, text) == reference(state, text)


@given(states, texts, texts)
def test_extending_twice_equals_extending_once(state, one, two):
    assert extend(extend(state, one), two) == extend(state, one + two)


@given(texts, st.lists(states, min_size=1, max_size=20))
def test_effect_applies_to_any_state(text, starts):
    effect = Effect(text)
    for state in [*starts, *starts]:
        assert effect.on(state) == reference(state, text)


@given(states, st.integers(0, 255))
def test_a_step_is_one_byte(state, byte):
    assert step(state, byte) == reference(state, bytes([byte]))


@given(st.lists(texts | st.text(max_size=9).map(str.encode), max_size=4), states)
def test_effect_of_parts_is_that_of_the_whole(parts, state):
    assert Effect(*parts).on(state) == reference(state, b"".join(parts))


@pytest.mark.parametrize(("text", "times"), [(b"plain \x7f", 128), ("n\u00f6".encode(), 256)])
def test_top_bit_does_not_affect_ascii(monkeypatch, text, times):
    hashed = []

    def counting(state: int, text: bytes) -> int:
        hashed.append(text)
        return extend(state, text)

    monkeypatch.setattr("checkpoint.fnv.extend", counting)
    effect = Effect(text)
    for _ in range(2):
        for low in range(256):
            assert effect.on(0xABCDEF00 | low) == reference(0xABCDEF00 | low, text)
    assert len(hashed) == times


def test_every_low_byte_has_a_seed():
    for low in range(256):
        assert extend(0xABCDEF00 | low, b"text") == reference(0xABCDEF00 | low, b"text")
        assert Effect(b"text").on(0x12345600 | low) == reference(0x12345600 | low, b"text")


def test_zero_bytes_are_hashed():
    for text in (b"\0", b"\0\0", b"a\0b", b"\0a", b"a\0", bytes(range(256))):
        assert fnv1a_32(text) == reference(OFFSET_BASIS, text)
        assert Effect(text).on(7) == reference(7, text)


def test_effect_hashes_once_per_low_byte(monkeypatch):
    hashed = []

    def counting(state: int, text: bytes) -> int:
        hashed.append(text)
        return extend(state, text)

    monkeypatch.setattr("checkpoint.fnv.extend", counting)
    effect = Effect(b"a long text")
    for state in (0x101, 0x201, 0xFFFFFF01, 0x102):
        effect.on(state)
    assert len(hashed) == 2
