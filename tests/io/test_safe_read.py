"""Read files that other users control, without blocking and up to a limit."""

import os
import socket
from pathlib import Path

import pytest

from devicemanager.io.safe_read import NotRegular, TooLarge, read_regular


def test_reads_files_and_links_up_to_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 100_000) == b"x" * 100_000
    with pytest.raises(TooLarge, match=r"^100000 bytes, more than the limit of 99999 bytes"):
        read_regular(str(tmp_path / "file"), 99_999)


def test_limit_applies_to_files_of_size_0() -> None:
    assert Path("/proc/self/status").stat().st_size == 0
    assert read_regular("/proc/self/status", 100_000).startswith(b"Name:")
    with pytest.raises(TooLarge, match=r"^more than the limit of 10 bytes"):
        read_regular("/proc/self/status", 10)


def test_never_blocks_on_other_kinds_of_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in [(tmp_path, "directory"), (tmp_path / "pipe", "pipe"), ("/dev/zero", "dev")]:
        with pytest.raises(NotRegular, match=f"^a {kind}.*, not a regular file"):
            read_regular(path, 10)


def test_unreadable_file_raises_oserror(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("absent", "loop"):
        with pytest.raises(OSError, match=name):
            read_regular(tmp_path / name, 10)


def test_each_kind_of_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path, kind in (
            (tmp_path, "a directory"),
            (tmp_path / "pipe", "a pipe"),
            (tmp_path / "socket", "a socket"),
            (Path("/dev/null"), "a device"),
        ):
            with pytest.raises(NotRegular) as raised:
                read_regular(path, 10)
            assert str(raised.value) == f"{kind}, not a regular file"


def test_limit_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_regular(path, 3) == b"abc"
    with pytest.raises(TooLarge) as raised:
        read_regular(path, 2)
    assert str(raised.value) == "3 bytes, more than the limit of 2 bytes"
    path.write_bytes(b"")
    assert read_regular(path, 0) == b""
