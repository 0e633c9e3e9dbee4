"""Texts that fill exact numbers of cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from devicemanager.observe.terminal.text import ASCII, column, joined, safe, shortened
from tests.observe.terminal.views import HOSTILE, assert_fits

any_text = st.one_of(st.sampled_from([*HOSTILE, "\ud800"]), st.text(max_size=60))


@given(any_text, st.integers(-2, 40))
def test_column_has_exact_width_for_any_text(text: str, width: int) -> None:
    cell = column(text, width).plain
    assert cell_len(cell) == max(width, 0)
    assert_fits([cell], max(width, 0), 1)


@given(st.lists(any_text, max_size=4), st.integers(0, 40))
def test_line_is_never_wider_than_requested(parts: list[str], width: int) -> None:
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
def test_shortened_keeps_both_ends_of_long_id(text: str, width: int, shown: str) -> None:
    assert shortened(text, width) == shown


def test_markup_is_shown_unchanged() -> None:
    assert joined([safe("[red]a[/] :smile:")], 40).plain == "[red]a[/] :smile:"


def test_ascii_glyphs_make_text_ascii() -> None:
    assert shortened("simple-device-vm-5507", 12, ASCII).isascii()
    assert joined([Text("simple-device-vm-5507")], 5, ASCII).plain == "simp~"
