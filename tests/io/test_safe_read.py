"""Reading files that somebody else has put there."""

import os
from pathlib import Path

import pytest

from devicemanager.io.safe_read import NotRegular, TooLarge, read_regular


def test_files_and_links_to_them_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 100_000) == b"x" * 100_000
    with pytest.raises(TooLarge, match="100000 bytes, more than the 99999 allowed"):
        read_regular(str(tmp_path / "file"), 99_999)


def test_a_file_without_a_size_is_counted_while_it_is_read() -> None:
    assert Path("/proc/self/status").stat().st_size == 0
    assert read_regular("/proc/self/status", 100_000).startswith(b"Name:")
    with pytest.raises(TooLarge, match="more than the 10 bytes allowed"):
        read_regular("/proc/self/status", 10)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in [(tmp_path, "directory"), (tmp_path / "pipe", "pipe"), ("/dev/zero", "dev")]:
        with pytest.raises(NotRegular, match=f"a {kind}.*, not a regular file"):
            read_regular(path, 10)


def test_what_cannot_be_opened_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("absent", "loop"):
        with pytest.raises(OSError, match=name):
            read_regular(tmp_path / name, 10)
