"""A single connection to a plugin."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from devicemanager.core.errors import RpcError
from devicemanager.kubelet.registration.connection import Connection, not_connected
from devicemanager.kubelet.settings import Settings


def test_watch_on_a_closed_connection_ends_at_once(directory: Path) -> None:
    connection = Connection(directory / "p.sock", Settings())
    connection.close()
    ends: list[str] = []
    errors: list[BaseException] = []
    connection.watch(lambda columns: None, ends.append, errors.append)
    assert (ends, errors) == (["the connection was closed"], [])


@pytest.mark.parametrize("error", ["connection refused", "no such file or directory"])
def test_call_to_an_ended_plugin_fails_with_the_text_of_the_kubelet(
    directory: Path, error: str
) -> None:
    path = directory / "p.sock"
    if error == "connection refused":
        with socket.socket(socket.AF_UNIX) as unserved:
            unserved.bind(str(path))
    connection = Connection(path, Settings())
    try:
        with pytest.raises(RpcError) as caught:
            connection.pre_start_container(())
    finally:
        connection.close()
        connection.join()
    assert str(caught.value) == (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while '
        f'dialing: dial unix {path}: connect: {error}"'
    )


@pytest.mark.parametrize(
    "text",
    [
        "connections to all backends failing; last error: UNKNOWN: "
        "connect failed: addr: unix:/p/a: b.sock error: Connection refused",
        "failed to connect to all addresses; last error: UNKNOWN: "
        "unix:/p/a: b.sock: connect: Connection refused (111)",
    ],
    ids=["with the event engine", "without it"],
)
def test_texts_of_both_engines_of_grpc_become_the_text_of_the_kubelet(text: str) -> None:
    assert not_connected(text) == (
        'connection error: desc = "transport: Error while dialing: dial unix /p/a: b.sock: '
        'connect: connection refused"'
    )


@pytest.mark.parametrize("text", ["", "Socket closed", "the plugin says: connect failed"])
def test_other_texts_of_grpc_are_unchanged(text: str) -> None:
    assert not_connected(text) == text
