"""What a check sees of a plugin that does not answer."""

from __future__ import annotations

import threading
from typing import Self

import grpc
import pytest

from devicemanager.conformance.client import CallFailed, ListStream


class Mute:
    """A stream on which nothing comes until it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> None:
        assert self._cancelled.wait(10)
        raise grpc.RpcError("cancelled")

    def cancel(self) -> None:
        self._cancelled.set()


def test_a_stream_without_a_list_is_given_up() -> None:
    with pytest.raises(CallFailed, match=r"no list came within 0.01 s"):
        ListStream(Mute()).next(0.01)


def test_a_stream_that_ends() -> None:
    with pytest.raises(CallFailed, match="the plugin ended it"):
        ListStream(iter(())).next()
