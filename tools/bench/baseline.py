"""Baseline of an admission: the minimum that any kubelet must do.

The baseline is one Allocate call to the same plugin, through a grpcio stub, and one durable write
of the same bytes, with system calls. No code in Python could do this more directly.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc


class Baseline:
    """Separate connection to the plugin, and a file in the directory of the checkpoint."""

    def __init__(self, socket: Path, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._file = str(checkpoint.with_name(".floor"))
        self._temporary = str(checkpoint.with_name(".floor.tmp"))
        # Without a local subchannel pool, gRPC would share the kubelet's connection.
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
        """Call Allocate once."""
        self._allocate(self._request)

    def refresh(self) -> None:
        """Read the checkpoint, so that ``write`` writes its current contents."""
        self._bytes = self._checkpoint.read_bytes()

    def write(self) -> None:
        """Write the checkpoint's contents to the file with the kubelet's default durability: flush
        the data, then rename the file."""
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(descriptor, self._bytes)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(self._temporary, self._file)  # noqa: PTH104  # the baseline has no Path

    def both(self) -> None:
        """Make one Allocate call and one durable write, the minimum of an admission."""
        self.allocate()
        self.write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
