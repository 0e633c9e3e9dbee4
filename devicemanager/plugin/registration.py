"""One attempt to register with the kubelet, which can be given up at any moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import grpc

from devicemanager.core.api.deviceplugin import VERSION
from devicemanager.plugin.errors import RegistrationFailed
from podresources.sockets import CHANNEL_OPTIONS, target
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc

__all__ = ["Answer", "register"]


class Answer(Protocol):
    """A reply that is still to come."""

    def add_done_callback(self, fn: Callable[[Any], None], /) -> None: ...

    def done(self) -> bool: ...


def register(
    kubelet: Path,
    endpoint: str,
    resource: str,
    options: dp.DevicePluginOptions,
    timeout: float,
    wait: Callable[[Answer], bool],
) -> bool:
    """Call Register; False if ``wait`` gave up on the call that it was handed.

    The kubelet dials ``endpoint`` and opens the list stream before it answers, so nothing
    that those need may be held meanwhile. Raises RegistrationFailed with the kubelet's own
    text.
    """
    request = dp.RegisterRequest(
        version=VERSION, endpoint=endpoint, resource_name=resource, options=options
    )
    with grpc.insecure_channel(target(kubelet), options=CHANNEL_OPTIONS) as channel:
        call = deviceplugin_v1beta1_grpc.RegistrationStub(channel).Register.future(
            request, timeout=timeout
        )
        if not wait(call):
            call.cancel()
            return False
        try:
            call.result()
        except grpc.RpcError as error:
            raise RegistrationFailed(_explain(error)) from error
    return True


def _explain(error: grpc.RpcError) -> str:
    if not isinstance(error, grpc.Call):
        return str(error)
    text = " ".join((error.details() or "").split())
    return f"{text} ({error.code().name})"
