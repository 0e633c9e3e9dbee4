"""A single connection to a plugin."""

from __future__ import annotations

from pathlib import Path

from devicemanager.kubelet.registration.connection import Connection
from devicemanager.kubelet.settings import Settings


def test_watch_on_a_closed_connection_ends_at_once(directory: Path) -> None:
    connection = Connection(directory / "p.sock", Settings())
    connection.close()
    ends: list[str] = []
    errors: list[BaseException] = []
    connection.watch(lambda columns: None, ends.append, errors.append)
    assert (ends, errors) == (["the connection was closed"], [])
