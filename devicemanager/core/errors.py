"""Errors, by who is at fault.

``EndpointError``: a plugin misbehaved. ``RequestError``: the request cannot be met. Any other
exception from the core is a bug in it; the core raises ``InternalError`` where it detects a
violated invariant.
"""

from __future__ import annotations

from devicemanager.core import messages


class DeviceManagerError(Exception):
    """Base class of the errors that the kubelet's side raises on purpose.

    ``checkpoint``, ``podresources`` and ``devicemanager.plugin`` have separate base classes.
    """


class EndpointError(DeviceManagerError):
    """A registered or registering plugin misbehaved or could not be reached.

    The plugin's side raises ``devicemanager.plugin.PluginError`` instead.
    """


class RequestError(DeviceManagerError):
    """A request that cannot be met."""


class StartError(DeviceManagerError):
    """A kubelet cannot start here; the message says what to do."""


class StopError(DeviceManagerError):
    """A kubelet has stopped without removing all of its files; the message names them."""


class InternalError(DeviceManagerError):
    """A bug in devicemanager: an invariant does not hold."""


class KubeletPanic(DeviceManagerError):
    """The real kubelet would panic here. Raised only if a quirk is enabled."""


class RpcError(EndpointError):
    """An RPC to a plugin failed. The message is what grpc-go prints for the status.

    ``code`` is the name of the status code as Go spells it (``Unknown``,
    ``DeadlineExceeded``).
    """

    # The code is a string because the core does not import gRPC.
    def __init__(self, code: str, description: str) -> None:
        self.code = code
        self.description = description
        super().__init__(messages.RPC_ERROR.format(code=code, description=description))


class InjectedError(RpcError):
    """An RPC failed because of the injected fault ``fault``."""

    def __init__(self, code: str, description: str, fault: str) -> None:
        super().__init__(code, description)
        self.fault = fault


class AllocationError(RequestError):
    """A failed allocation; the kubelet rejects the pod with ``UnexpectedAdmissionError``.

    If kubelets of other versions would not reject it, ``behaviour`` names the field of
    ``devicemanager.core.versions.behaviour.Behaviour`` that differs.
    """

    def __init__(self, text: str, behaviour: str = "") -> None:
        super().__init__(text)
        self.behaviour = behaviour
