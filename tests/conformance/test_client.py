"""The suite's ListAndWatch streams, with plugins that send nothing."""

from __future__ import annotations

import threading
from typing import Self

import grpc
import pytest

from devicemanager.conformance.client import CallFailed, ListStream


class Mute:
    """Stream without messages, until it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> None:
        assert self._cancelled.wait(10)
        raise grpc.RpcError("cancelled")

    def cancel(self) -> None:
        self._cancelled.set()


def test_next_times_out_without_a_device_list() -> None:
    with pytest.raises(
        CallFailed, match=r"^ListAndWatch failed with UNKNOWN: no device list within 0.01 s"
    ):
        ListStream(Mute()).next(0.01)


def test_next_fails_when_the_plugin_ends_the_stream() -> None:
    with pytest.raises(
        CallFailed, match=r"^ListAndWatch failed with UNKNOWN: the plugin ended the stream"
    ):
        ListStream(iter(())).next()
