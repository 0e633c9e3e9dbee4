"""Decoding of keys, and their effect on the state of the screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.observe.terminal.keys import ScreenState, keys, pressed
from devicemanager.observe.terminal.rows import Pane

START = ScreenState()


def after(text: str | bytes, state: ScreenState = START, last: int = 100) -> ScreenState:
    for key in keys(text.encode() if isinstance(text, str) else text):
        state = pressed(state, key, 10, last)
    return state


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[6~", ["up", "down", "page-up", "page-down"]),
        (b"\x1b[H\x1b[4~\x1b[Z", ["home", "end", "back-tab"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[1;5C\x1b[<0;3;4M", ["unknown", "unknown"]),
        (b"\x1b[", ["unknown"]),
        (b"\xc3\xa9", ["é"]),
    ],
)
def test_keys_decodes_bytes(data: bytes, expected: list[str]) -> None:
    assert list(keys(data)) == expected


@given(st.binary(max_size=40))
def test_any_bytes_are_valid_input(data: bytes) -> None:
    state = after(data)
    assert 0 <= state.offset <= 100


@pytest.mark.parametrize(
    ("typed", "state"),
    [
        ("3", ScreenState(Pane.PLUGINS)),
        ("30", ScreenState()),
        ("\t", ScreenState(Pane.DEVICES)),
        ("\x1b[Z", ScreenState(Pane.CLAIMS)),
        ("4\x1b[6~j", ScreenState(Pane.PODS, 11)),
        ("4\x1b[6~k", ScreenState(Pane.PODS, 9)),
        ("4Gj", ScreenState(Pane.PODS, 100)),
        ("4Gg", ScreenState(Pane.PODS)),
        ("5k", ScreenState(Pane.EVENTS, 1)),
        ("5g", ScreenState(Pane.EVENTS, 100)),
        ("4jj1", ScreenState(Pane.DEVICES)),
        (" ", ScreenState(paused=True)),
        ("  ", ScreenState()),
        ("?", ScreenState(help=True)),
        ("?x", ScreenState()),
        ("?q", ScreenState(quit=True)),
        ("q", ScreenState(quit=True)),
        ("2/gpq1\x7f\r", ScreenState(Pane.HOLDERS, filter="gpq")),
        ("2/gp\rq", ScreenState(Pane.HOLDERS, filter="gp", quit=True)),
        ("/a\x1b", ScreenState()),
        ("2/a\r\x1b", ScreenState()),
        ("z", ScreenState()),
    ],
)
def test_pressed_changes_state(typed: str, state: ScreenState) -> None:
    assert after(typed) == state


def test_scrolling_starts_at_last_row_of_shortened_list() -> None:
    assert after("k", ScreenState(Pane.PODS, 100), last=10).offset == 9
