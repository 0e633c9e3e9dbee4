"""Bytes that a live view writes to a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from devicemanager.observe.terminal.tty import Terminal

CLEARED = "\x1b[0m\x1b[2J"


def at(row: int, line: str) -> str:
    return f"\x1b[{row};1H\x1b[0m\x1b[2K{line}"


@pytest.fixture
def pipe() -> Iterator[tuple[int, Callable[[], str]]]:
    """The descriptor of an output, and a function that returns what was written since its last
    call."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)

    def written() -> str:
        try:
            return os.read(reader, 65536).decode()
        except BlockingIOError:
            return ""

    yield writer, written
    os.close(reader)
    os.close(writer)


def test_bytes_from_entering_to_leaving(pipe: tuple[int, Callable[[], str]]) -> None:
    output, written = pipe
    terminal = Terminal(output, None)
    assert terminal.size() == (80, 24)
    terminal.draw(["not entered"])
    terminal.leave()
    assert written() == ""

    terminal.enter()
    assert written() == "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
    terminal.draw(["a", "b", "c"])
    assert written() == CLEARED + at(1, "a") + at(2, "b") + at(3, "c")
    terminal.draw(["a", "B", "c"])
    assert written() == at(2, "B")
    terminal.draw(["a"])
    assert written() == "\x1b[2;1H\x1b[0m\x1b[J"
    terminal.draw(["a", "ä"])
    assert written() == at(2, "ä")
    terminal.forget_drawn()
    terminal.draw(["a", "ä"])
    assert written() == CLEARED + at(1, "a") + at(2, "ä")
    terminal.leave()
    assert written() == "\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"

    # Entered again, the terminal is drawn as a whole.
    terminal.enter()
    terminal.draw(["a"])
    assert written().endswith("\x1b[2J" + CLEARED + at(1, "a"))
    terminal.leave(for_good=True)
    assert written().endswith("\x1b[?1049l")
    terminal.enter()
    assert (written(), terminal.is_entered) == ("", False)


def test_letters_that_the_encoding_lacks_are_escaped(pipe: tuple[int, Callable[[], str]]) -> None:
    output, written = pipe
    terminal = Terminal(output, None, "ascii")
    terminal.enter()
    written()
    terminal.draw(["ä■"])
    assert written() == CLEARED + at(1, r"\xe4\u25a0")
