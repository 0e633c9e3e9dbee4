"""Exceptions of the kubelet's side, grouped by what caused the error.

``EndpointError``: a plugin misbehaved. ``RequestError``: a request cannot be met.
``InternalError``: an invariant is violated, because of a bug in devicemanager.
"""

from __future__ import annotations

from devicemanager.core import messages


class DeviceManagerError(Exception):
    """Base class of the errors that the mock kubelet raises deliberately.

    The errors of the packages ``checkpoint``, ``podresources`` and ``devicemanager.plugin`` have
    other base classes.
    """


class EndpointError(DeviceManagerError):
    """Error caused by a plugin that misbehaved or could not be reached.

    Code on the plugin's side of the socket raises ``devicemanager.plugin.PluginError`` instead.
    """


class RequestError(DeviceManagerError):
    """Error for a request that cannot be met, such as a pod that does not fit."""


class StartError(DeviceManagerError):
    """Error for a kubelet, or another server of the mock, that cannot start."""


class StopError(DeviceManagerError):
    """Error for a kubelet that has stopped but could not clean up, for example remove its files.

    The ``stop`` method of a server also raises it if the server had already stopped because of an
    error.
    """


class InternalError(DeviceManagerError):
    """Error for a bug in devicemanager: an invariant does not hold."""


class KubeletPanic(DeviceManagerError):
    """Error for a case in which the real kubelet would panic; raised only if a quirk is enabled."""


class RpcError(EndpointError):
    """Error for a failed RPC to a plugin, with the message that grpc-go prints.

    ``code`` is the name of the status code as Go spells it (``Unknown``,
    ``DeadlineExceeded``).
    """

    # The code is a string because the core does not import gRPC.
    def __init__(self, code: str, description: str) -> None:
        self.code = code
        self.description = description
        super().__init__(messages.RPC_ERROR.format(code=code, description=description))


class InjectedError(RpcError):
    """Error for an RPC that failed because of an injected fault.

    ``fault`` is the ID and kind of the fault, such as ``fault 1, fail-call``.
    """

    def __init__(self, code: str, description: str, fault: str) -> None:
        super().__init__(code, description)
        self.fault = fault


class PermanentError(DeviceManagerError):
    """Base class of errors after which the kubelet does not retry: a retry would fail again."""


class AllocationError(RequestError):
    """Error for a failed allocation. The pod is rejected with ``UnexpectedAdmissionError``.

    If other kubelet versions would admit the pod, ``behaviour`` names the field of
    ``devicemanager.core.versions.behaviour.Behaviour`` that has another value in these versions.
    """

    def __init__(self, text: str, behaviour: str = "") -> None:
        super().__init__(text)
        self.behaviour = behaviour
