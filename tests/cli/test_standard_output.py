"""Standard output with a slow or blocked reader, or a broken pipe."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from devicemanager.cli.standard_output import OutputQueue


class Pipe(NamedTuple):
    reader: int
    writer: int


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = Pipe(*os.pipe())
    yield ends
    os.close(ends.reader)  # this releases a thread that still writes
    for thread in threading.enumerate():
        if thread.name == "standard output":
            thread.join()
    os.close(ends.writer)


def notice(count: int) -> str:
    return f"<{count} missing>\n"


def queue(writer: int, limit: int = 1 << 20, patience: float = 0.05) -> OutputQueue:
    def failed(error: OSError) -> None:
        raise AssertionError(error)

    return OutputQueue(notice, failed, writer, limit=limit, patience=patience)


def all_of(reader: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += os.read(reader, size - len(data))
    return data


def test_lines_are_written_in_order(pipe: Pipe) -> None:
    output = queue(pipe.writer)
    lines = [f"line {number}\u20ac\n" for number in range(1000)]
    for line in lines:
        output.put(line)
    output.close()
    wanted = "".join(lines).encode()
    assert all_of(pipe.reader, len(wanted)) == wanted


def test_full_queue_drops_and_counts_lines(pipe: Pipe) -> None:
    output = queue(pipe.writer, limit=300_000)
    line = "x" * 9_999 + "\n"
    for _ in range(100):
        output.put(line)  # a pipe has room for six of them, the queue for thirty
    # The reader continues: the queue has room again when it is empty.
    kept = 0
    while True:
        whole = all_of(pipe.reader, len(line))
        assert whole == line.encode()
        kept += 1
        if kept == 30:
            break
    output.put("last\n")
    output.close()
    rest = os.read(pipe.reader, 1 << 20)
    while not rest.endswith(b"last\n"):
        rest += os.read(pipe.reader, 1 << 20)
    more, _, end = rest.partition(b"<")
    kept += len(more) // len(line)
    assert end == f"{100 - kept} missing>\nlast\n".encode()


def test_dropped_lines_are_reported_at_the_end(pipe: Pipe) -> None:
    output = queue(pipe.writer, limit=10)
    output.put("much too long\n")
    output.put("much too long, too\n")
    output.close()
    assert os.read(pipe.reader, 100) == b"<2 missing>\n"


def test_blocked_reader_does_not_delay_close(pipe: Pipe) -> None:
    output = OutputQueue(notice, lambda error: None, pipe.writer, patience=0.05)
    for _ in range(100):
        output.put("x" * 9_999 + "\n")
    output.close()
    output.put("after the end: dropped\n")


def test_slow_reader_gets_everything(pipe: Pipe) -> None:
    output = queue(pipe.writer, patience=30)
    line = "x" * 9_999 + "\n"
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(all_of(pipe.reader, 50 * len(line))))
    for _ in range(50):
        output.put(line)
    thread.start()
    output.close()
    thread.join()
    assert got == [line.encode() * 50]


def test_broken_pipe_is_reported_once() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    errors: list[OSError] = []
    failed = threading.Event()

    def tell(error: OSError) -> None:
        errors.append(error)
        failed.set()

    output = OutputQueue(notice, tell, writer)
    output.put("a\n")
    assert failed.wait(10)
    output.put("b\n")
    output.close()
    os.close(writer)
    assert [type(error) for error in errors] == [BrokenPipeError]


def test_drain_waits_until_everything_is_written(pipe: Pipe) -> None:
    output = queue(pipe.writer, patience=10.0)
    output.put("before\n")
    output.drain()
    os.set_blocking(pipe.reader, False)
    assert os.read(pipe.reader, 100) == b"before\n"
    output.close()


def test_blocked_reader_ends_drain(pipe: Pipe) -> None:
    output = queue(pipe.writer)
    output.put("x" * (1 << 18))
    output.drain()
    assert all_of(pipe.reader, 1 << 18)
    output.close()
