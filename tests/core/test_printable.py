"""Safe output of text from other programs."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.printable import (
    LONGEST,
    counted,
    is_printable,
    listed,
    one_line,
    printable,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpu-0", "gpu-0"),
        ("größe 東京 🚀", "größe 東京 🚀"),
        ("two\nlines", "two lines"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("tab\tbell\x07\x7f\x9b", r"tab\x09bell\x07\x7f\x9b"),
        ("\u202eevil\ud800", r"\u202eevil\ud800"),
        ("\ufeffa\u200b\U000e0041\u2066", r"\ufeffa\u200b\U000e0041\u2066"),
        ("", ""),
    ],
)
def test_unsafe_characters_are_escaped(text, shown):
    assert printable(text) == shown


def test_long_text_is_cut():
    assert printable("x" * LONGEST) == "x" * LONGEST
    assert printable("abcdef", 4) == "abcd... (2 more characters)"


def test_one_line_is_not_cut():
    text = "x" * LONGEST + "\x85"
    assert one_line(text) == "x" * LONGEST + r"\x85"


def test_is_printable_allows_newlines_and_length():
    assert is_printable("größe\n" * LONGEST)
    assert not is_printable("a\r\n")


def test_long_list_is_cut():
    assert listed([], 2) == ""
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c", "d"], 2, ",") == "a,b and 2 more"


@given(st.text(st.characters(codec=None)))
def test_no_control_sequences_remain(text):
    shown = printable(text)
    kinds = {unicodedata.category(character) for character in shown}
    assert kinds.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    shown.encode()
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (1000, "1000 nodes")]
)
def test_counted_uses_the_singular_for_one(count: int, text: str) -> None:
    assert counted(count, "node") == text
