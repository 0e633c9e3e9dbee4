"""Texts in cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from devicemanager.observe.terminal.text import ASCII, column, joined, safe, shortened
from tests.observe.terminal.pictures import HOSTILE, assert_fits

any_text = st.one_of(st.sampled_from([*HOSTILE, "\ud800"]), st.text(max_size=60))


@given(any_text, st.integers(-2, 40))
def test_a_column_is_exactly_as_wide_as_asked_whatever_is_in_it(text: str, width: int) -> None:
    cell = column(text, width).plain
    assert cell_len(cell) == max(width, 0)
    assert_fits([cell], max(width, 0), 1)


@given(st.lists(any_text, max_size=4), st.integers(0, 40))
def test_a_line_is_never_wider_than_asked(parts: list[str], width: int) -> None:
    line = joined([safe(part) for part in parts], width)
    assert_fits([line.plain], width, 1)


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("gpu-0", 8, "gpu-0"),
        ("simple-device-vm-5507", 12, "simple-…5507"),
        ("simple-device-vm-5507", 2, "si"),
        ("\x1b[2J", 8, "\\x1b[2J"),
        ("x" * 10_000 + "7", 9, "xxxxx…xx7"),
        ("anything", 0, ""),
    ],
)
def test_of_a_long_id_begin_and_end_stay(text: str, width: int, shown: str) -> None:
    assert shortened(text, width) == shown


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    assert joined([safe("[red]a[/] :smile:")], 40).plain == "[red]a[/] :smile:"


def test_without_unicode_everything_is_ascii() -> None:
    assert shortened("simple-device-vm-5507", 12, ASCII).isascii()
    assert joined([Text("simple-device-vm-5507")], 5, ASCII).plain == "simp~"
