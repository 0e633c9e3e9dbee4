"""Clients of Register that do not read their responses."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from devicemanager import MockKubelet
from devicemanager.kubelet.registration import server
from podresources import accepted
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.attack import http2

REQUEST = dp.RegisterRequest(version="none").SerializeToString()


def test_kubelet_searches_for_clients_that_do_not_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = threading.Event()
    bound: list[Path] = []

    def search(path: Path, *_: object) -> int:
        bound.append(path)
        searched.set()
        return 0

    monkeypatch.setattr(accepted, "disconnect_unread", search)
    calls = [http2.call(2 * n + 1, dp_grpc.REGISTER, REQUEST) for n in range(100)]
    first = http2.PREFACE + http2.settings() + b"".join(calls)
    with MockKubelet(directory):
        path = directory / "device-plugins" / "kubelet.sock"
        while not searched.is_set():
            with http2.connect(path, first) as client:
                http2.wait_for_end(client)
        # Accepted sockets have the name under which the server was created.
        assert bound[0].parent == path.parent and bound[0] != path


def test_open_calls_of_a_connection_are_limited() -> None:
    assert ("grpc.max_concurrent_streams", 16) in server._OPTIONS
