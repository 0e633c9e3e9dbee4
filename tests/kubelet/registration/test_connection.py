"""A connection to a plugin, where only this is looked at."""

from __future__ import annotations

from pathlib import Path

from devicemanager.kubelet.registration.connection import Connection
from devicemanager.kubelet.settings import Settings


def test_a_stream_on_a_connection_that_is_closed_already(directory: Path) -> None:
    connection = Connection(directory / "p.sock", Settings())
    connection.close()
    ends: list[str] = []
    errors: list[BaseException] = []
    connection.watch(lambda columns: None, ends.append, errors.append)
    assert (ends, errors) == (["the connection was closed"], [])
