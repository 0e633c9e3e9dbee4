"""The error for an invalid message from a plugin or a checkpoint."""

from __future__ import annotations

from devicemanager.core.errors import EndpointError

__all__ = ["WireError"]


class WireError(EndpointError):
    """Error for an invalid message of the device plugin API; its text is one line."""
