"""A single connection to a plugin."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from devicemanager.core.errors import RpcError
from devicemanager.kubelet.registration.connection import Connection
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
