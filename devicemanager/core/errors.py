"""Errors that say whose fault it is.

``EndpointError``: a plugin misbehaved. ``RequestError``: what was asked for cannot be
met. Any other exception out of the core is a bug in it; ``InternalError`` is raised
where the core notices one itself.
"""

from __future__ import annotations

from devicemanager.core import messages


class DeviceManagerError(Exception):
    """Root of everything the kubelet's side raises on purpose.

    ``checkpoint``, ``podresources`` and ``devicemanager.plugin`` have roots of their own.
    """


class EndpointError(DeviceManagerError):
    """A plugin that has registered, or wants to, misbehaved or could not be reached.

    What a plugin's own side raises is ``devicemanager.plugin.PluginError``.
    """


class RequestError(DeviceManagerError):
    """What was asked for cannot be met."""


class StartError(DeviceManagerError):
    """A kubelet cannot start here; the text says what to do."""


class StopError(DeviceManagerError):
    """A kubelet has stopped, but could not clean everything up; the text says what."""


class InternalError(DeviceManagerError):
    """A bug of ours: an invariant does not hold."""


class KubeletPanic(DeviceManagerError):
    """The kubelet of the reference would end here with a panic; only by a quirk."""


class RpcError(EndpointError):
    """An RPC to a plugin failed. The text is what Go's grpc-go prints for the status.

    ``code`` is the code's name as Go spells it (``Unknown``, ``DeadlineExceeded``).
    """

    def __init__(self, code: str, description: str) -> None:
        self.code = code
        self.description = description
        super().__init__(messages.RPC_ERROR.format(code=code, description=description))


class InjectedError(RpcError):
    """An RPC failed because a test wants it to; ``fault`` says which fault it was."""

    def __init__(self, code: str, description: str, fault: str) -> None:
        super().__init__(code, description)
        self.fault = fault


class AllocationError(RequestError):
    """An allocation that the kubelet answers with ``UnexpectedAdmissionError``.

    ``behaviour`` names what kubelets of other versions do differently, if they do: a field
    of ``devicemanager.core.versions.behaviour.Behaviour``.
    """

    def __init__(self, text: str, behaviour: str = "") -> None:
        super().__init__(text)
        self.behaviour = behaviour
