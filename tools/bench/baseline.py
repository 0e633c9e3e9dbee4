"""The baseline of an admission: what no kubelet can do without.

One Allocate round trip to the same plugin and one durable write of the same bytes, each as
plain as Python can do it: a stub of grpc, and system calls.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc


class Baseline:
    """A connection of its own to the plugin, and a file beside the checkpoint."""

    def __init__(self, socket: Path, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._file = str(checkpoint.with_name(".floor"))
        self._temporary = str(checkpoint.with_name(".floor.tmp"))
        # As every connection to a plugin: not the kubelet's own.
        self._channel = grpc.insecure_channel(
            sockets.target(socket), [("grpc.use_local_subchannel_pool", 1)]
        )
        self._allocate = dp_grpc.DevicePluginStub(self._channel).Allocate
        self._bytes = b""
        self._request = dp.AllocateRequest(
            container_requests=[dp.ContainerAllocateRequest(devices_ids=["device-00000"])]
        )
        self.allocate()

    def allocate(self) -> None:
        """One round trip."""
        self._allocate(self._request)

    def refresh(self) -> None:
        """From now on write what the checkpoint holds now."""
        self._bytes = self._checkpoint.read_bytes()

    def write(self) -> None:
        """One write, as durable as the kubelet's by default."""
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(descriptor, self._bytes)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(self._temporary, self._file)  # noqa: PTH104  # the baseline has no Path

    def both(self) -> None:
        """The baseline of one admission."""
        self.allocate()
        self.write()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._channel.close()
