"""What a plugin's processes use."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from devicemanager.conformance.process_checks import usage


def test_listening_sockets_are_counted_whatever_the_paths_are(tmp_path: Path) -> None:
    before = usage(os.getpid()).unix_listeners
    with (
        socket.socket(socket.AF_UNIX) as bound,
        socket.socket(socket.AF_UNIX) as listening,
        socket.socket(socket.AF_UNIX) as other,
    ):
        bound.bind(str(tmp_path / "bound"))
        listening.bind(str(tmp_path / "two\nlines\n\nand more"))
        listening.listen()
        other.bind(str(tmp_path / "spaces and\nspaces 1 2 3 4 5 6"))
        other.listen()
        assert usage(os.getpid()).unix_listeners == before + 2
